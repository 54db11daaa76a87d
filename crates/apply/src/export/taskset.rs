//! `taskset -c`: a set of PUs.

use super::{Target, commas, set};
use numaloc_model::Plan;

/// See the module.
pub struct Taskset;

impl Target for Taskset {
    fn name(&self) -> &'static str {
        "taskset"
    }

    fn pins_threads(&self) -> bool {
        false
    }

    fn write(&self, threads: &[u32], _: &Plan) -> String {
        format!("taskset -c {}", commas(set(threads)))
    }
}
