//! Page policies: which NUMA node should hold which page.
//!
//! Pure functions: page usage, thread mapping and machine in, placement out; no I/O, no clock, randomness only from the
//! seed. A policy gives a *preferred* node for each page ([`PlacementPolicy::preferred_nodes`]); the steps that all
//! policies share are in [`place()`]: merging access counts up to the page size, checking the input, and respecting
//! every node's capacity.
//!
//! | policy | file | from |
//! |---|---|---|
//! | `first-touch` | `policies/first_touch.rs` | the operating system's default |
//! | `next-touch` | `policies/next_touch.rs` | Goglin and Furmento 2009, as a static choice |
//! | `random` | `policies/random.rs` | Diener et al. 2015 (locality vs. balance), section III-1 |
//! | `interleave` | `policies/interleave.rs` | section III-2, equation 6 |
//! | `weighted-interleave` | `policies/weighted_interleave.rs` | BWAP, Gureya et al. 2020 |
//! | `locality` | `policies/locality.rs` | section III-3, equation 7 |
//! | `balanced` | `policies/balanced.rs` | section III-4, algorithm 1 |
//! | `mixed` | `policies/mixed.rs` | section III-5, equation 8 |
//! | `hbm` | `policies/hbm.rs` | memkind, Cantalupo et al. 2015 |
//! | `tier` | `policies/tier.rs` | Colloid, Vuppalapati and Agarwal 2024, as a static choice |
//! | `marathe` | `policies/marathe.rs` | Marathe and Mueller 2006, as compared in OPT section 7.6 |
//! | `joint` | `joint/` | threads and pages together; ours |
//!
//! To add one: a file in `policies/` and a line in [`POLICIES`].

#![forbid(unsafe_code)]

mod assemble;
mod bandwidth;
mod capacity;
mod deal;
mod error;
mod input;
pub mod joint;
mod links;
mod place;
mod policies;
mod random;
#[cfg(test)]
mod test_support;
pub mod tiers;
mod unplanned;
mod view;

pub use assemble::{Assembled, assemble, object_key};
pub use capacity::Spill;
pub use error::PlaceError;
pub use input::PlaceInput;
pub use links::Links;
pub use place::{Placed, place};
pub use policies::{BASELINE, POLICIES, PlacementPolicy, policy};
pub use view::View;
