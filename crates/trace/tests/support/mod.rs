//! What tests of the engine share.

#![allow(dead_code)]

use numaloc_assemble::{Options, assemble};
use numaloc_model::Profile;
use numaloc_trace::{Config, Engine};

/// The profile of the journals in `folder`, with pages of 4 KiB and at most 1000 slices.
pub fn assembled(folder: &std::path::Path) -> Profile {
    let options = Options {
        command: vec![],
        page_size: 4096,
        slices: 1000,
    };
    assemble(folder, &options).unwrap()
}

/// Recordings one after the other, with the same tables: address space is not endless.
pub struct Recorder {
    folder: tempfile::TempDir,
    first: Engine,
}

impl Recorder {
    pub fn new(config: Config) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = Config {
            folder: folder.path().to_owned(),
            ..config
        };
        let first = Engine::start(config, "test").unwrap();
        Self { folder, first }
    }

    /// An engine with empty tables.
    pub fn engine(&self) -> &'static Engine {
        for file in std::fs::read_dir(self.folder.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        let engine = self.first.forked("0".to_owned(), 0, "test").unwrap();
        Box::leak(Box::new(engine))
    }

    /// Where the newest one's journal is.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}
