//! Finished simulations in a file, so that a run of many that was interrupted continues where it stopped.
//!
//! The file is one JSON object: `format`, `version`, and `results`, an object with a member for each finished
//! simulation. A member's name is a digest of everything that the result depends on: the trace, the machine with all
//! constants, the places of threads and pages, and the version of the simulator. Results of other inputs are kept, but
//! have no effect.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use numaloc_files::FileOutput;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::CliError;

const FORMAT: &str = "numaloc simulations";
const VERSION: u32 = 1;
/// Largest file that is read.
const MOST_BYTES: u64 = 4 << 30;
/// Shortest time between two writes of the file.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Serialize, Deserialize)]
struct Content {
    format: String,
    version: u32,
    results: BTreeMap<String, Value>,
}

/// Results by digest, and the file that keeps them, if there is one.
pub struct Saved {
    path: Option<PathBuf>,
    state: Mutex<State>,
}

struct State {
    content: Content,
    /// When the file was written last, and whether it lacks results.
    written: Instant,
    is_behind: bool,
}

impl Saved {
    /// Reads the file if it exists, and checks that it can be written.
    ///
    /// # Errors
    /// If it is not a file of finished simulations, or cannot be written.
    pub fn open(path: Option<&Path>) -> Result<Self, CliError> {
        let mut content = Content {
            format: FORMAT.to_owned(),
            version: VERSION,
            results: BTreeMap::new(),
        };
        if let Some(path) = path {
            let output = FileOutput::check(path, true)?;
            if output.is_stdout() {
                return Err(CliError::usage(
                    "--resume needs a file: standard output cannot be read again",
                ));
            }
            if let Some(text) = output
                .present_text(MOST_BYTES)
                .map_err(|error| unusable(path, error))?
            {
                content = read(path, &text)?;
            }
        }
        Ok(Self {
            path: path.map(Path::to_owned),
            state: Mutex::new(State {
                content,
                written: Instant::now(),
                is_behind: false,
            }),
        })
    }

    /// Whether results are kept: otherwise digests need not be computed.
    pub fn is_kept(&self) -> bool {
        self.path.is_some()
    }

    /// The result with this digest, if it is there and has the expected form.
    pub fn take<T: DeserializeOwned>(&self, digest: &str) -> Option<T> {
        let state = self.state.lock().ok()?;
        let found = state.content.results.get(digest)?;
        serde_json::from_value(found.clone()).ok()
    }

    /// Adds a result, and writes the file if that was some time ago.
    pub fn add<T: Serialize>(&self, digest: String, result: &T) -> Result<(), CliError> {
        let Ok(mut state) = self.state.lock() else {
            return Ok(());
        };
        let value = serde_json::to_value(result).map_err(CliError::tool)?;
        state.content.results.insert(digest, value);
        state.is_behind = true;
        if state.written.elapsed() < PAUSE {
            return Ok(());
        }
        self.write(&mut state)
    }

    /// Writes the file if it lacks results.
    pub fn flush(&self) -> Result<(), CliError> {
        match self.state.lock() {
            Ok(mut state) if state.is_behind => self.write(&mut state),
            _ => Ok(()),
        }
    }

    fn write(&self, state: &mut State) -> Result<(), CliError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let text = serde_json::to_string(&state.content).map_err(CliError::tool)? + "\n";
        FileOutput::check(path, true)?.write(text.as_bytes())?;
        (state.written, state.is_behind) = (Instant::now(), false);
        Ok(())
    }
}

fn read(path: &Path, text: &str) -> Result<Content, CliError> {
    let content: Content = serde_json::from_str(text).map_err(|error| {
        unusable(
            path,
            format_args!("it has no finished simulations ({error})"),
        )
    })?;
    if (content.format.as_str(), content.version) != (FORMAT, VERSION) {
        let found = format_args!("it is \"{}\" version {}", content.format, content.version);
        return Err(unusable(
            path,
            format_args!("{found}, expected \"{FORMAT}\" version {VERSION}"),
        ));
    }
    Ok(content)
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> CliError {
    CliError::tool(format!("cannot continue from {}: {why}", path.display())).hint(
        "--resume takes a file that an earlier `numaloc simulate --resume` wrote, or a new name",
    )
}

/// Digest of values by their debug representation: FNV-1a of 128 bits.
pub struct Digest(u128);

impl Digest {
    pub fn new(kind: &str) -> Self {
        let mut digest = Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        digest.add(&kind);
        digest.add(&env!("CARGO_PKG_VERSION"));
        digest.add(&numaloc_sim::MODEL_VERSION);
        digest
    }

    pub fn add(&mut self, value: &impl std::fmt::Debug) {
        // Writing to a digest cannot fail.
        let _ = write!(self, "{value:?};");
    }

    pub fn text(&self) -> String {
        format!("{:032x}", self.0)
    }
}

impl std::fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            let mixed = self.0 ^ u128::from(byte);
            self.0 = mixed.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
        Ok(())
    }
}
