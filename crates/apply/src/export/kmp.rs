//! `KMP_AFFINITY` of the LLVM and Intel OpenMP run times: an explicit list, one PU a thread.

use super::{Target, commas};
use numaloc_model::Plan;

/// See the module.
pub struct Kmp;

impl Target for Kmp {
    fn name(&self) -> &'static str {
        "kmp"
    }

    fn pins_threads(&self) -> bool {
        true
    }

    fn write(&self, threads: &[u32], _: &Plan) -> String {
        let list = commas(threads.iter().copied());
        format!(
            "OMP_NUM_THREADS={}\nKMP_AFFINITY=granularity=fine,proclist=[{list}],explicit",
            threads.len()
        )
    }
}
