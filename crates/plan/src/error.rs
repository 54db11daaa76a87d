//! Errors of planning.

use numaloc_mapping::MapError;
use numaloc_model::{CommError, Layer, ProfileError};
use numaloc_placement::PlaceError;

/// Why there is no plan. The caller knows where the profile comes from and names it.
#[derive(Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The profile has no row of the layer that was asked for.
    #[error("the profile has no layer {}", .layer.name())]
    NoLayer {
        /// The layer.
        layer: Layer,
        /// Layers of the profile.
        present: Vec<Layer>,
    },
    /// The profile's communication is no matrix of its threads.
    #[error(transparent)]
    Communication(#[from] CommError),
    /// The profile without helpers, or with all communication in one layer, has amounts that no profile holds.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The profile has no page usage to group threads by.
    #[error("the profile has no page usage")]
    NoPageUse,
    /// There are no schedules for a policy or machine.
    #[error("no schedule for {what}: its threads are not moved one by one by communication")]
    NotDynamic {
        /// The policy or kind of machine.
        what: String,
    },
    /// A thread policy failed, or its input is not valid.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A page policy or the joint policy cannot work with its parameters.
    #[error(transparent)]
    Place(#[from] PlaceError),
}
