//! `GOMP_CPU_AFFINITY` of GCC's libgomp: thread i runs on the i-th number.

use super::{Target, commas};
use numaloc_model::Plan;

/// See the module.
pub struct Gomp;

impl Target for Gomp {
    fn name(&self) -> &'static str {
        "gomp"
    }

    fn pins_threads(&self) -> bool {
        true
    }

    fn write(&self, threads: &[u32], _: &Plan) -> String {
        let list = commas(threads.iter().copied());
        format!(
            "OMP_NUM_THREADS={}\nGOMP_CPU_AFFINITY={list}",
            threads.len()
        )
    }
}
