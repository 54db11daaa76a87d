//! `meta.json`: the origin of a profile and its known limits.

use std::collections::BTreeMap;
use std::path::Path;

use numaloc_model::Profile;
use numaloc_model::conditions::{Conditions, Repeats, VARIABLES, WorkSharing};
use numaloc_model::profile::{Clock, Meta, Segment, Window, WindowSource};
use serde::{Deserialize, Serialize};

use super::checksums::{self, Sums};
use super::{FORMAT, KIND, VERSION};
use crate::error::FormatError;

/// Larger than any valid file: refused before it is read into memory.
const MAX_BYTES: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct MetaFile {
    format: String,
    version: u64,
    tool: String,
    command: Vec<String>,
    frontend: String,
    clock: String,
    time_unit: String,
    line_size_bytes: u64,
    page_size_bytes: u64,
    complete: bool,
    #[serde(default)]
    notes: Vec<String>,
    #[serde(default = "exact")]
    sampled: f64,
    #[serde(default)]
    dram_source: Option<String>,
    #[serde(default)]
    slow_loads_source: Option<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    work_sharing: Vec<SharingFile>,
    #[serde(default)]
    repeats: Option<RepeatsFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<WindowFile>,
    /// Length and checksum of every other file; profiles of earlier releases have none.
    #[serde(default)]
    files: Option<Sums>,
    /// Last field: the checksum of this file, computed with zeros in its place.
    #[serde(default)]
    checksum: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct SharingFile {
    kind: String,
    by: String,
}

#[derive(Serialize, Deserialize)]
struct RepeatsFile {
    runs: u32,
    correlation: Option<f64>,
    same_threads: bool,
}

/// Of a program that ran already.
#[derive(Serialize, Deserialize)]
struct WindowFile {
    of: String,
    source: String,
    seconds: f64,
    processes: u32,
    /// Pairs of node and bytes.
    resident: Vec<(u32, u64)>,
    segments: Vec<SegmentFile>,
}

#[derive(Serialize, Deserialize)]
struct SegmentFile {
    name: String,
    shared: bool,
    processes: u32,
    resident: Vec<(u32, u64)>,
}

impl WindowFile {
    fn of(window: &Window) -> Self {
        let segments = window.segments.iter().map(|segment| SegmentFile {
            name: segment.name.clone(),
            shared: segment.is_shared,
            processes: segment.processes,
            resident: segment.resident.clone(),
        });
        Self {
            of: window.of.clone(),
            source: window.source.name().to_owned(),
            seconds: window.seconds,
            processes: window.processes,
            resident: window.resident.clone(),
            segments: segments.collect(),
        }
    }

    /// `None` if a later version has named another source.
    fn read(self) -> Option<Window> {
        let segments = self.segments.into_iter().map(|segment| Segment {
            name: segment.name,
            is_shared: segment.shared,
            processes: segment.processes,
            resident: segment.resident,
        });
        Some(Window {
            source: WindowSource::from_name(&self.source)?,
            of: self.of,
            seconds: self.seconds,
            processes: self.processes,
            resident: self.resident,
            segments: segments.collect(),
        })
    }
}

fn exact() -> f64 {
    1.0
}

/// Selects the [`VARIABLES`] among those a file names: other values must not get into a command line.
pub(crate) fn known_variables(found: BTreeMap<String, String>) -> Vec<(String, String)> {
    found
        .into_iter()
        .filter(|(name, _)| VARIABLES.contains(&name.as_str()))
        .collect()
}

/// What the readers of the tables need.
pub(super) struct Read {
    pub meta: Meta,
    pub page_size: u64,
    pub sums: Option<Sums>,
    pub slow_loads_source: Option<String>,
}

pub(super) fn write(profile: &Profile, files: Sums, path: &Path) -> Result<(), FormatError> {
    let meta = profile.meta();
    let file = MetaFile {
        format: FORMAT.to_owned(),
        version: VERSION,
        tool: concat!("numaloc ", env!("CARGO_PKG_VERSION")).to_owned(),
        command: meta.command.clone(),
        frontend: meta.frontend.clone(),
        clock: meta.clock.name().to_owned(),
        time_unit: meta.clock.unit().to_owned(),
        line_size_bytes: meta.line_size,
        page_size_bytes: profile.pages().page_size(),
        complete: meta.complete,
        notes: meta.notes.clone(),
        sampled: meta.sampled,
        dram_source: meta.dram_source.clone(),
        slow_loads_source: profile.slow_loads().map(|slow| slow.source.clone()),
        environment: meta.conditions.environment.iter().cloned().collect(),
        work_sharing: meta
            .conditions
            .sharing
            .iter()
            .map(|(kind, by)| SharingFile {
                kind: kind.name().to_owned(),
                by: by.clone(),
            })
            .collect(),
        repeats: meta.conditions.repeats.map(|repeats| RepeatsFile {
            runs: repeats.runs,
            correlation: repeats.correlation,
            same_threads: repeats.same_threads,
        }),
        window: meta.window.as_ref().map(WindowFile::of),
        files: Some(files),
        checksum: Some(checksums::blank()),
    };
    let mut text = serde_json::to_string_pretty(&file).expect("plain data serialises");
    text.push('\n');
    let output = numaloc_files::FileOutput::check(path, false)?;
    Ok(output.write(checksums::seal(&text).as_bytes())?)
}

pub(super) fn read(path: &Path) -> Result<Read, FormatError> {
    let io = |error| FormatError::io("read", path, error);
    let bytes = numaloc_files::input::read_regular(path, MAX_BYTES).map_err(io)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let place = format!("byte {}", error.utf8_error().valid_up_to());
        FormatError::corrupt(path, place, "bytes that are no text", "UTF-8")
    })?;
    let file: MetaFile = serde_json::from_str(&text).map_err(|error| {
        FormatError::corrupt(
            path,
            format!("line {}, column {}", error.line(), error.column()),
            error.to_string(),
            "the fields of docs/formats/profile.md",
        )
    })?;
    if file.format != FORMAT {
        return Err(FormatError::WrongKind {
            path: path.to_owned(),
            found: format!("its format is {:?}", file.format),
            expected: KIND,
        });
    }
    if file.version > VERSION {
        return Err(FormatError::Newer {
            path: path.to_owned(),
            found: file.version,
            supported: VERSION,
        });
    }
    match (&file.checksum, &file.files) {
        (Some(said), _) => checksums::verify_meta(path, &text, said)?,
        (None, Some(_)) => {
            return Err(FormatError::corrupt(
                path,
                "content",
                "no field checksum",
                "one, because there is a field files",
            ));
        }
        (None, None) => {}
    }
    let clock = [Clock::Wall, Clock::Virtual]
        .into_iter()
        .find(|clock| clock.name() == file.clock)
        .ok_or_else(|| {
            let found = format!("{:?}", file.clock);
            FormatError::corrupt(path, "clock", found, "\"wall\" or \"virtual\"")
        })?;
    Ok(Read {
        meta: Meta {
            command: file.command,
            frontend: file.frontend,
            clock,
            line_size: file.line_size_bytes,
            complete: file.complete,
            notes: file.notes,
            sampled: file.sampled,
            dram_source: file.dram_source,
            conditions: Conditions {
                environment: known_variables(file.environment),
                // A later version may have more kinds.
                sharing: file
                    .work_sharing
                    .into_iter()
                    .filter_map(|row| Some((WorkSharing::from_name(&row.kind)?, row.by)))
                    .collect(),
                repeats: file.repeats.map(|repeats| Repeats {
                    runs: repeats.runs,
                    correlation: repeats.correlation,
                    same_threads: repeats.same_threads,
                }),
            },
            window: file.window.and_then(WindowFile::read),
        },
        page_size: file.page_size_bytes,
        sums: file.files,
        slow_loads_source: file.slow_loads_source,
    })
}
