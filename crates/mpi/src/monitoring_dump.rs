//! Reads Open MPI's own text dump (`pml_monitoring_enable_output 3`, `pml_monitoring_filename`): an
//! independent count of the same messages, with which the tests compare the tracer.
//!
//! The dump of 4.1 has two errors that the tracer does not have: messages of collectives that the
//! library sends through its own persistent requests (MPI_Alltoallv) are listed as point-to-point,
//! and persistent sends of the program (MPI_Start) are missing.

use crate::rank_file::Kind;

/// One line of a dump: the messages of a kind between two ranks in the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpLine {
    /// Kind of the messages.
    pub kind: Kind,
    /// The rank that wrote the dump.
    pub rank: u32,
    /// The other rank.
    pub peer: u32,
    /// Number of messages.
    pub events: u64,
    /// Sum of their sizes in bytes.
    pub bytes: u64,
}

/// A line of a dump that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: found {found:?}, expected rank, peer, \"N bytes\" and \"M msgs sent\"")]
pub struct DumpError {
    /// Its number, from 1.
    pub line: usize,
    /// Its text.
    pub found: String,
}

/// The per-pair lines of one rank's `NAME.RANK.prof`.
///
/// Lines are `LETTER<tab>rank<tab>peer<tab>N bytes<tab>M msgs sent[<tab>histogram]`; `E` external
/// (point-to-point), `I` internal (inside collectives), `S` and `R` one-sided put and get, `C` the
/// estimate per collective call. Summaries per communicator (`D`, `O2A`, `A2O`, `A2A`) are skipped.
///
/// # Errors
/// [`DumpError`] with the line's number and text.
pub fn parse(text: &str) -> Result<Vec<DumpLine>, DumpError> {
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let fields: Vec<&str> = line.split('\t').collect();
        let kind = match fields[0] {
            "E" => Kind::PointToPoint,
            "I" => Kind::Collective,
            "S" => Kind::Put,
            "R" => Kind::Get,
            "C" => Kind::Operation,
            _ => continue,
        };
        let number =
            |field: usize, unit: &str| fields.get(field)?.strip_suffix(unit)?.parse::<u64>().ok();
        let parsed = (|| {
            Some(DumpLine {
                kind,
                rank: number(1, "")?.try_into().ok()?,
                peer: number(2, "")?.try_into().ok()?,
                bytes: number(3, " bytes")?,
                events: number(4, " msgs sent")?,
            })
        })();
        lines.push(parsed.ok_or_else(|| DumpError {
            line: at + 1,
            found: line.to_owned(),
        })?);
    }
    Ok(lines)
}
