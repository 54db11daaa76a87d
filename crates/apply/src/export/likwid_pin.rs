//! `likwid-pin -c`: physical numbers in the order of thread creation. Inside a cpuset likwid numbers PUs
//! logically; its `N:` syntax would do the same there. likwid uses every PU only once, even if the list repeats
//! it: further threads start again at the beginning of the list.

use super::{Target, commas, set};
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

    fn loses(&self, threads: &[u32]) -> Option<String> {
        let distinct = set(threads).len();
        (distinct < threads.len()).then(|| {
            format!(
                "likwid-pin uses each PU once: {} threads on {distinct} PUs take turns in the order of the \
                 list, and OMP_NUM_THREADS must be set by hand",
                threads.len()
            )
        })
    }

    fn write(&self, threads: &[u32], _: &Plan) -> String {
        format!("likwid-pin -c {}", commas(threads.iter().copied()))
    }
}
