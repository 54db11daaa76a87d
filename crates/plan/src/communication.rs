//! What threads are mapped by: communication, its direction, groups of concurrent communication, and load on memory.

use std::borrow::Cow;

use numaloc_analysis::load::load_to_level;
use numaloc_analysis::{Characterisation, concurrency_groups};
use numaloc_mapping::{Direction, MapInput};
use numaloc_model::profile::Amount;
use numaloc_model::{CommError, CommMatrix, Layer, Profile, TaskGroup};
use numaloc_topology::Topology;

/// The input of thread policies for a profile.
#[derive(Clone, Debug)]
pub struct Communication<'a> {
    /// Threads x threads, in the unit of the layer's weights: bytes for messages, events for lines of memory.
    matrix: Cow<'a, CommMatrix>,
    direction: Direction,
    groups: Cow<'a, [TaskGroup]>,
    /// By thread; `None` if there is no load to balance.
    load: Option<Cow<'a, [f64]>>,
}

impl<'a> Communication<'a> {
    /// Computes it from a profile; `load` is each thread's load on memory.
    ///
    /// # Errors
    /// [`CommError::OutOfRange`] if a row names a thread that the profile does not have.
    pub fn of(profile: &Profile, layer: Layer, load: &[f64]) -> Result<Self, CommError> {
        Ok(Self {
            matrix: Cow::Owned(profile.matrix(layer, Amount::of_layer(layer))?),
            direction: direction(layer),
            groups: Cow::Owned(concurrency_groups(profile, layer).groups),
            load: load_to_level(load).map(|load| Cow::Owned(load.to_vec())),
        })
    }

    /// What a characterisation has computed already: the same as [`Communication::of`] its profile and layer.
    #[must_use]
    pub fn found(found: &'a Characterisation) -> Self {
        Self {
            matrix: Cow::Borrowed(found.weighed()),
            direction: direction(found.layer),
            groups: Cow::Borrowed(&found.concurrency.groups),
            load: load_to_level(&found.load.by_thread).map(Cow::Borrowed),
        }
    }

    /// The same with another matrix of the same threads.
    #[must_use]
    pub(crate) fn with_matrix<'b>(&'b self, matrix: CommMatrix) -> Communication<'b> {
        Communication {
            matrix: Cow::Owned(matrix),
            direction: self.direction,
            groups: Cow::Borrowed(&self.groups),
            load: self.load.as_deref().map(Cow::Borrowed),
        }
    }

    /// The same threads with the communication of a part of the run, which counts as concurrent.
    #[must_use]
    pub(crate) fn during(&self, matrix: CommMatrix) -> Communication<'_> {
        Communication {
            groups: Cow::Borrowed(&[]),
            ..self.with_matrix(matrix)
        }
    }

    /// Threads x threads.
    #[must_use]
    pub fn matrix(&self) -> &CommMatrix {
        &self.matrix
    }

    /// The mapping problem on a machine.
    #[must_use]
    pub fn input<'b>(&'b self, machine: &'b Topology) -> MapInput<'b> {
        MapInput::directed(&self.matrix, self.direction, machine)
            .with_load(self.load.as_deref())
            .with_groups(&self.groups)
    }
}

fn direction(layer: Layer) -> Direction {
    match layer.is_directed() {
        true => Direction::Directed,
        false => Direction::Undirected,
    }
}
