//! Recognises threads that serve a run-time system, not the program, by the library of their start routine or by the
//! name they set.
//!
//! Their role is [`ThreadRole::Helper`], so that plans and tables can leave them out. Names are the kernel's, of at
//! most 15 bytes.

use numaloc_model::ThreadRole;

/// Libraries whose threads serve a run-time system: progress threads of MPI, PMIx and their transports.
const LIBRARIES: [&str; 9] = [
    "libopen-pal",
    "libopen-rte",
    "libpmix",
    "libevent",
    "libucs",
    "libuct",
    "libfabric",
    "libpsm2",
    "libmpich",
];

/// Prefixes of the names of such threads: collectors, compilers and service threads of the Java and .NET virtual
/// machines, and of V8.
const NAMES: [&str; 29] = [
    "GC Thread#",
    "ParGC Thread#",
    "G1 Main Marker",
    "G1 Conc#",
    "G1 Refine#",
    "G1 Service",
    "G1 Young",
    "ZDirector",
    "ZDriver",
    "ZStat",
    "ZWorker",
    "Shenandoah GC",
    "VM Thread",
    "VM Periodic Tas",
    "C1 CompilerThre",
    "C2 CompilerThre",
    "Sweeper thread",
    "Signal Dispatch",
    "Service Thread",
    "Monitor Deflati",
    "Notification Th",
    "Attach Listener",
    "Reference Handl",
    "Finalizer",
    "Common-Cleaner",
    ".NET Finalizer",
    ".NET SigHandler",
    ".NET EventPipe",
    "V8 DefaultWorke",
];

/// The role of a thread whose start routine is in `library`, if such threads serve a run-time system.
#[must_use]
pub fn of_library(library: &str) -> Option<ThreadRole> {
    let serves = LIBRARIES.iter().any(|known| library.starts_with(known));
    serves.then(|| ThreadRole::helper(library))
}

/// The role of a thread named `name`, if such threads serve a run-time system.
#[must_use]
pub fn of_name(name: &str) -> Option<ThreadRole> {
    let serves = NAMES.iter().any(|known| name.starts_with(known));
    serves.then(|| ThreadRole::helper(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_are_recognised_by_library_and_by_name() {
        let role = of_name("GC Thread#3").unwrap();
        assert_eq!(role, ThreadRole::helper("GC Thread#3"));
        assert_eq!(of_name("worker-3"), None);
        assert!(of_library("libopen-pal.so.40.30.2").is_some());
        assert_eq!(of_library("libc.so.6"), None);
        // The kernel truncates names to 15 bytes: a longer prefix would never match.
        assert!(NAMES.iter().all(|name| name.len() <= 15));
    }
}
