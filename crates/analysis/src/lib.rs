//! Characterisation: computes metrics of a recorded run's communication and pages.
//!
//! Pure functions over [`numaloc_model`] types: no I/O, no clock, no environment, and the same result for the same
//! profile. Each module names the paper, section and equation it implements and its deviations; `docs/metrics.md`
//! describes the same for users.
//!
//! | module | answers | source |
//! |---|---|---|
//! | [`characterise`](mod@characterise) | all of it at once | |
//! | [`communication`] | how much, between whom, how unevenly | OPT eq. 1-3, DeLoc eq. 4-6, 8, 9 |
//! | [`mapping_cost`] | what a mapping leaves remote, and how even its load is | CMLB eq. 4-6 |
//! | [`kmeans`] | optimal clusters of points on a line | DeLoc eq. 1 |
//! | [`bic`](mod@bic) | how many clusters | DeLoc II-C |
//! | [`compare`] | whether two runs are similar | |
//! | [`concurrency`] | what communicates at the same time | DeLoc II-C, II-D |
//! | [`pages`] | whose pages, how balanced, how well placed | data mapping eq. 1-5, OPT eq. 5-9 |
//! | [`assignment`] | which threads share a node: blocks, and the extremes of exclusivity | OPT 5.1.1 |
//! | [`migrations`] | how often pages would have to move | data mapping II-C |
//! | [`phases`] | when the pattern changes | OPT eq. 4 |
//! | [`pattern_phases`](mod@pattern_phases) | when the communication partners change | ours |
//! | [`load`] | memory load over time, its phases, and each thread's share | CMLB III-A |
//! | [`objects`] | which memory it is, by name | |
//! | [`dram`] | which accesses reach memory, by a model of the last-level caches | DeLoc eq. 7 |
//! | [`sharing`] | which memory threads share lines of, and whether they share data | |
//! | [`sites`] | which lines of the program communicate and access others' pages | ours |
//! | [`hybrid`] | a common unit for messages and shared memory, and which threads need a place | ours |
//! | [`beyond_caches`] | which page accesses leave a core's private caches | ours |
//! | [`local`] | where pages are expected to be, and which accesses to them are local | ours |
//! | [`roles`](mod@roles) | which threads and processes do the same kind of work | ours |
//! | [`segments`](mod@segments) | memory by the names that people use for it | ours |
//! | [`outlook`] | what binding, mapping and placement would each do | ours |
//! | [`remark`] | what is wrong with memory that no page policy makes up for, in words | ours |
//! | [`verdict`] | what is likely to help | DeLoc III, OPT 4.3, data mapping II |

#![forbid(unsafe_code)]

pub mod assignment;
pub mod beyond_caches;
pub mod bic;
pub mod characterise;
pub mod communication;
pub mod compare;
pub mod concurrency;
pub mod contended;
pub mod dram;
pub mod hybrid;
pub mod kmeans;
pub mod load;
pub mod local;
pub mod mapping_cost;
pub mod migrations;
pub mod objects;
pub mod outlook;
pub mod pages;
pub mod pattern_phases;
pub mod phases;
pub mod remark;
pub mod roles;
mod seconds;
pub mod segments;
pub mod sharing;
pub mod sites;
pub mod timeline;
pub mod verdict;

pub use assignment::NodeAssignment;
pub use characterise::{Characterisation, Setting, characterise};
pub use communication::CommunicationMetrics;
pub use concurrency::{Concurrency, concurrency_groups};
pub use load::{LoadSource, LoadVector};
pub use pages::PageMetrics;
