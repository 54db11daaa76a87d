//! `OMP_PLACES`, `OMP_PROC_BIND` (OpenMP 5.0, sections 6.4 and 6.5): place i holds the PU of thread i.

use super::Target;
use numaloc_model::Plan;

/// See the module.
pub struct OmpPlaces;

impl Target for OmpPlaces {
    fn name(&self) -> &'static str {
        "omp-places"
    }

    fn pins_threads(&self) -> bool {
        true
    }

    fn write(&self, threads: &[u32], _: &Plan) -> String {
        let places: Vec<String> = threads.iter().map(|pu| format!("{{{pu}}}")).collect();
        // With as many places as threads, `close` gives thread i place i.
        format!(
            "OMP_NUM_THREADS={}\nOMP_PROC_BIND=close\nOMP_PLACES={}",
            threads.len(),
            places.join(",")
        )
    }
}
