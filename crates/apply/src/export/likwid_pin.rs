//! `likwid-pin -c`: physical numbers in the order threads are created. Inside a cpuset likwid renumbers
//! logically; its `N:` syntax would be the same there. It uses every PU once, whatever the list says: further
//! threads start again at its beginning.

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
