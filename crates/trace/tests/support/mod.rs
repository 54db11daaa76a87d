//! What tests of the engine share.

use numaloc_model::Profile;
use numaloc_trace::assemble::{Options, assemble};

/// The profile of the journals in `folder`, with pages of 4 KiB and at most 1000 slices.
pub fn assembled(folder: &std::path::Path) -> Profile {
    let options = Options {
        command: vec![],
        page_size: 4096,
        slices: 1000,
    };
    assemble(folder, &options).unwrap()
}
