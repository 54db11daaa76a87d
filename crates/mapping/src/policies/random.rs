//! A random mapping (DeLoc, "Random"): every seat equally likely, the same for the same seed. The paper draws a new one
//! for every run; use another seed per run for that. O(N + P).

use numaloc_model::LogicalPu;

use crate::error::MapError;
use crate::input::MapInput;
use crate::policy::{Mapped, MappingPolicy};
use crate::slots::Spread;

/// The policy; see the module documentation.
pub struct Random;

impl MappingPolicy for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn summary(&self) -> &'static str {
        "any seat with equal chance, by seed"
    }

    fn source(&self) -> &'static str {
        "DeLoc 2020"
    }

    fn map(&self, input: &MapInput) -> Result<Mapped, MapError> {
        let slots = input.slots(Spread::Auto);
        let mut seats: Vec<LogicalPu> = slots
            .capacity()
            .iter()
            .enumerate()
            .flat_map(|(pu, &seats)| std::iter::repeat_n(LogicalPu::from_index(pu), seats as usize))
            .collect();
        fastrand::Rng::with_seed(input.seed()).shuffle(&mut seats);
        seats.truncate(input.tasks());
        Ok(Mapped::plain(seats))
    }
}
