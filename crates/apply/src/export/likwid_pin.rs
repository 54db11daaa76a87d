//! `likwid-pin -c`: physical numbers in the order threads are created. Inside a cpuset likwid renumbers
//! logically; its `N:` syntax would be the same there.

use super::{Target, commas};
use numaloc_model::Plan;

/// See the module.
pub struct LikwidPin;

impl Target for LikwidPin {
    fn name(&self) -> &'static str {
        "likwid-pin"
    }

    fn pins_threads(&self) -> bool {
        true
    }

    fn write(&self, threads: &[u32], _: &Plan) -> String {
        format!("likwid-pin -c {}", commas(threads.iter().copied()))
    }
}
