//! Counts a program's data accesses in a virtual NUMA machine, by (vCPU, memory node).
//!
//! A plugin for `qemu-system-x86_64` (TCG). Counted are loads and stores of user-mode instructions
//! between the agent's `Start` and `Stop` markers, of the program and everything it runs. Not counted are
//! kernel instructions (page faults, system calls, page migration: see the kernel's own counters), the
//! agent (recognised by its link address), and launchers (numactl, numaloc itself) whose code
//! pages the agent has excluded. Every access goes through the vCPU's private cache filter ([`cache`]);
//! its misses are accesses below the private caches.
//!
//! QEMU is queried for the physical address once per virtual page and vCPU between two visits to the kernel:
//! no mapping can change for a vCPU that has not entered the kernel, and every entry or exit executes
//! `swapgs`, which is instrumented.
//!
//! On request one in a given number of these misses is a sample for the guest, as a PMU would take it ([`samples`]).
//!
//! Memory: 4 bytes per touched line of guest memory, about 18 bytes per line of private cache and vCPU, 256 time
//! slices.

#[cfg(not(test))]
mod api;
pub mod cache;
pub mod counters;
#[cfg(not(test))]
mod hooks;
pub mod layout;
pub mod machine;
pub mod marker;
pub mod samples;
pub mod strings;
