//! Helpers for tests of the engine.

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

/// Consecutive recordings with the same tables, because address space is limited.
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

    /// A new engine with cleared tables.
    pub fn engine(&self) -> &'static Engine {
        for file in std::fs::read_dir(self.folder.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        let engine = self.first.forked("0".to_owned(), 0, "test").unwrap();
        // A child would inherit the pages.
        engine.forget(0, u64::MAX);
        Box::leak(Box::new(engine))
    }

    /// Folder of the newest engine's journal.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}
