//! What the simulator says of small traces, against answers worked out by hand and against other models.

mod common;
mod congestion;
mod contended;
mod dependent_loads;
mod known_answers;
mod last_level;
mod moves;
mod moving;
mod one_cache_model;
mod one_time_model;
mod sampling;
mod tiers;
mod translation;
mod windows;
mod work;
mod written;
