//! What is planned: the threads of a profile that need a place, and the communication and load they are mapped by.

use std::borrow::Cow;
use std::collections::BTreeSet;

use numaloc_analysis::LoadVector;
use numaloc_analysis::characterise::default_layer;
use numaloc_analysis::hybrid;
use numaloc_analysis::load::load_to_level;
use numaloc_model::profile::Amount;
use numaloc_model::{Layer, Profile, ProfileError};

use crate::communication::Communication;
use crate::error::PlanError;

/// Which part of a profile is planned by what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// Layer to map by; `None`: the profile's default layer, and for ranks recorded with their threads all layers
    /// together, in cache lines.
    pub layer: Option<Layer>,
    /// Whether run-time helper threads are left out and their work counts for their creators. Always so for ranks
    /// recorded with their threads.
    pub exclude_helpers: bool,
}

/// Unit of the amounts that threads are mapped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of messages.
    Bytes,
    /// Events on lines of memory.
    Events,
    /// Cache lines moved, by messages and by shared memory.
    CacheLines,
}

impl Unit {
    /// Name for the user.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Events => "events",
            Self::CacheLines => "cache lines",
        }
    }
}

/// A profile as it is planned.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    profile: Cow<'a, Profile>,
    left_out: Vec<String>,
    hybrid: bool,
    layer: Layer,
    unit: Unit,
    load: LoadVector,
    communication: Communication<'a>,
}

impl<'a> Subject<'a> {
    /// Leaves out helper threads, unites the layers of hybrid profiles, chooses layer and unit, and computes what
    /// policies are given. O(rows + threads²) and the search for groups of concurrent communication.
    ///
    /// # Errors
    /// [`PlanError::NoLayer`] if the layer of `scope` has no row; [`PlanError::Communication`] if a row names a thread
    /// that the profile does not have; [`PlanError::Profile`] if united amounts exceed what a profile holds.
    pub fn new(profile: Cow<'a, Profile>, scope: &Scope) -> Result<Self, PlanError> {
        let hybrid = hybrid::is_hybrid(&profile);
        let united = hybrid && scope.layer.is_none();
        let (profile, left_out) = match hybrid || scope.exclude_helpers {
            true => without_helpers(profile)?,
            false => (profile, Vec::new()),
        };
        let profile = match united {
            true => in_cache_lines(profile)?,
            false => profile,
        };
        let layer = layer(&profile, scope.layer)?;
        let unit = match Amount::of_layer(layer) {
            Amount::Bytes => Unit::Bytes,
            Amount::Events if united => Unit::CacheLines,
            Amount::Events => Unit::Events,
        };
        let load = LoadVector::of(&profile);
        let communication = Communication::of(&profile, layer, &load.by_thread)?;
        Ok(Self {
            profile,
            left_out,
            hybrid,
            layer,
            unit,
            load,
            communication,
        })
    }

    /// The profile of the threads that are planned.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Paths of recorded threads that are left out.
    #[must_use]
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Whether messages between ranks and memory accesses of their threads were both recorded.
    #[must_use]
    pub fn is_hybrid(&self) -> bool {
        self.hybrid
    }

    /// The layer that threads are mapped by.
    #[must_use]
    pub fn layer(&self) -> Layer {
        self.layer
    }

    /// Unit of the amounts that threads are mapped by.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Each thread's load on memory.
    #[must_use]
    pub fn load(&self) -> &LoadVector {
        &self.load
    }

    /// The quantity that policies balance, for the user.
    #[must_use]
    pub fn load_in_words(&self) -> String {
        match load_to_level(&self.load.by_thread) {
            Some(_) => self.load.source.in_words(),
            None => "communication (no accesses were recorded)".to_owned(),
        }
    }

    /// What policies map by, as recorded.
    #[must_use]
    pub fn communication(&self) -> &Communication<'a> {
        &self.communication
    }
}

/// The profile without helper threads, and the paths of those that it lost.
fn without_helpers(
    profile: Cow<'_, Profile>,
) -> Result<(Cow<'_, Profile>, Vec<String>), ProfileError> {
    let recorded: Vec<String> = profile.threads().iter().map(|t| t.path.clone()).collect();
    let profile = hybrid::without_helpers(profile.into_owned())?;
    let kept: BTreeSet<&str> = profile.threads().iter().map(|t| &*t.path).collect();
    let left_out = recorded
        .into_iter()
        .filter(|path| !kept.contains(&**path))
        .collect();
    Ok((Cow::Owned(profile), left_out))
}

/// The profile of ranks with threads, with all communication in one layer.
fn in_cache_lines(profile: Cow<'_, Profile>) -> Result<Cow<'_, Profile>, ProfileError> {
    let rows = hybrid::in_cache_lines(&profile);
    let united = profile.into_owned();
    let united = united.changed(|tables| tables.communication = rows)?;
    Ok(Cow::Owned(united))
}

/// The layer to map by: the one that was asked for, or the profile's default.
fn layer(profile: &Profile, asked: Option<Layer>) -> Result<Layer, PlanError> {
    match asked {
        None => Ok(default_layer(profile)),
        Some(layer) if profile.has_layer(layer) => Ok(layer),
        Some(layer) => Err(PlanError::NoLayer {
            layer,
            present: profile.layers(),
        }),
    }
}
