//! What the processes of a merge send each other, as bytes: little endian, texts and lists with their length.

use std::path::{Path, PathBuf};

use numaloc_model::comm::Layer;
use numaloc_model::profile::CommRow;
use numaloc_model::{SliceIdx, ThreadIdx};

use super::MergeError;
use super::plan::Plan;
use super::sums::{Limits, Sums};
use super::survey::{Seen, Survey};
use crate::rank_file::{Header, Source};

/// Bytes of a row.
pub(super) const ROW: usize = 32;

/// A message under construction.
#[derive(Debug, Default)]
pub(super) struct Message(pub Vec<u8>);

impl Message {
    pub fn number(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn texts(&mut self, texts: &[String]) -> &mut Self {
        self.number(texts.len() as u64);
        for text in texts {
            self.bytes(text.as_bytes());
        }
        self
    }
}

/// A message being read.
pub(super) struct Parts<'a>(pub &'a [u8]);

/// A message that ends early or has an impossible value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl From<Malformed> for MergeError {
    fn from(_: Malformed) -> Self {
        Self::Elsewhere("a message between the processes of the merge is damaged".to_owned())
    }
}

impl<'a> Parts<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn number(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    fn number32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed)
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        self.take(length)
    }

    pub fn text(&mut self) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    fn texts(&mut self) -> Result<Vec<String>, Malformed> {
        (0..self.number()?).map(|_| self.text()).collect()
    }
}

/// A success with its content, or an error as its text.
pub(super) fn outcome(result: Result<Message, &MergeError>) -> Message {
    let mut message = Message::default();
    match result {
        Ok(content) => message.number(0).0.extend(content.0),
        Err(error) => {
            message.number(1).bytes(error.to_string().as_bytes());
        }
    }
    message
}

/// The content of an [`outcome`].
pub(super) fn content(bytes: &[u8]) -> Result<Parts<'_>, MergeError> {
    let mut parts = Parts(bytes);
    match parts.number()? {
        0 => Ok(parts),
        _ => Err(MergeError::Elsewhere(parts.text()?)),
    }
}

fn put_seen(message: &mut Message, seen: &[Seen]) {
    message.number(seen.len() as u64);
    for s in seen {
        let name = s.path.file_name().unwrap_or_default();
        message.bytes(name.as_encoded_bytes());
        let header = &s.header;
        message.number(u64::from(header.rank));
        message.number(u64::from(header.world_size.unwrap_or(0)));
        message.number(u64::from(header.pid));
        message.number(match header.source {
            Source::OpenMpiMonitoring => 1,
            Source::Pmpi => 2,
        });
        message.number(header.zero_ns).number(header.slice_ns);
        message.bytes(header.job.as_bytes());
        message.bytes(header.host.as_bytes());
        message.number(header.affinity.len() as u64);
        for pu in &header.affinity {
            message.0.extend(pu.to_le_bytes());
        }
        message.number(s.first_ns).number(s.last_ns);
    }
}

fn seen(parts: &mut Parts<'_>, folder: &Path) -> Result<Vec<Seen>, Malformed> {
    let files = parts.number()?;
    let one = |_| {
        let name = parts.text()?;
        let (rank, size, pid) = (parts.number32()?, parts.number32()?, parts.number32()?);
        let source = match parts.number()? {
            1 => Source::OpenMpiMonitoring,
            2 => Source::Pmpi,
            _ => return Err(Malformed),
        };
        let (zero_ns, slice_ns) = (parts.number()?, parts.number()?);
        let (job, host) = (parts.text()?, parts.text()?);
        let pus = usize::try_from(parts.number()?).map_err(|_| Malformed)?;
        let mask = parts.take(pus.checked_mul(4).ok_or(Malformed)?)?;
        let affinity = mask.as_chunks().0.iter().copied();
        let header = Header {
            rank,
            world_size: (size > 0).then_some(size),
            pid,
            source,
            zero_ns,
            slice_ns,
            job,
            host,
            affinity: affinity.map(u32::from_le_bytes).collect(),
        };
        Ok(Seen {
            path: folder.join(name),
            header,
            first_ns: parts.number()?,
            last_ns: parts.number()?,
        })
    };
    (0..files).map(one).collect()
}

/// What a process found in its files. The error of an unusable file goes as its text.
pub(super) fn survey_message(survey: &Survey) -> Message {
    let mut message = Message::default();
    message.number(survey.longest_ns);
    message.number(u64::from(survey.complete));
    let unusable = survey.unusable.as_ref().map(ToString::to_string);
    message.texts(unusable.as_slice()).texts(&survey.notes);
    put_seen(&mut message, &survey.seen);
    message
}

pub(super) fn survey_of(parts: &mut Parts<'_>, folder: &Path) -> Result<Survey, Malformed> {
    let (longest_ns, complete) = (parts.number()?, parts.number()? == 1);
    let unusable = parts.texts()?.pop().map(MergeError::Elsewhere);
    Ok(Survey {
        longest_ns,
        complete,
        unusable,
        notes: parts.texts()?,
        seen: seen(parts, folder)?,
    })
}

/// What every process needs to know for the second pass.
pub(super) struct Task {
    pub slice_ns: u64,
    pub limits: Limits,
    /// Files with their ranks, ordered by rank.
    pub files: Vec<(PathBuf, u32)>,
}

pub(super) fn task_message(plan: &Plan, limits: &Limits) -> Message {
    let mut message = Message::default();
    message.number(plan.slice_ns);
    message.number(u64::from(limits.size)).number(limits.end);
    message.number(limits.rows as u64);
    message.number(plan.seen.len() as u64);
    for s in &plan.seen {
        let name = s.path.file_name().unwrap_or_default();
        message.bytes(name.as_encoded_bytes());
        message.number(u64::from(s.header.rank));
    }
    message
}

pub(super) fn task_of(parts: &mut Parts<'_>, folder: &Path) -> Result<Task, Malformed> {
    let slice_ns = parts.number()?;
    let limits = Limits {
        size: parts.number32()?,
        end: parts.number()?,
        rows: parts.number()? as usize,
    };
    let files = (0..parts.number()?).map(|_| Ok((folder.join(parts.text()?), parts.number32()?)));
    let files = files.collect::<Result<_, Malformed>>()?;
    Ok(Task {
        slice_ns,
        limits,
        files,
    })
}

/// What is known of sums apart from their rows, and the number of rows.
pub(super) struct SumsHead {
    pub slice_ns: u64,
    pub modelled: bool,
    pub to_self: (u64, u64),
    pub rows: u64,
}

pub(super) fn sums_message(sums: &Sums) -> Message {
    let mut message = Message::default();
    message
        .number(sums.slice_ns)
        .number(u64::from(sums.modelled))
        .number(sums.to_self.0)
        .number(sums.to_self.1)
        .number(sums.rows.len() as u64);
    message
}

pub(super) fn sums_head(parts: &mut Parts<'_>) -> Result<SumsHead, Malformed> {
    let head = SumsHead {
        slice_ns: parts.number()?,
        modelled: parts.number()? == 1,
        to_self: (parts.number()?, parts.number()?),
        rows: parts.number()?,
    };
    if head.slice_ns == 0 {
        return Err(Malformed);
    }
    Ok(head)
}

pub(super) fn put_row(bytes: &mut Vec<u8>, row: &CommRow) {
    bytes.extend(row.slice.0.to_le_bytes());
    bytes.extend(row.src.0.to_le_bytes());
    bytes.extend(row.dst.0.to_le_bytes());
    bytes.extend(u32::from(row.layer == Layer::Collective).to_le_bytes());
    bytes.extend(row.events.to_le_bytes());
    bytes.extend(row.bytes.to_le_bytes());
}

pub(super) fn row(bytes: &[u8; ROW]) -> CommRow {
    let at = |from: usize| u32::from_le_bytes(bytes[from..from + 4].try_into().expect("four"));
    let wide = |from: usize| u64::from_le_bytes(bytes[from..from + 8].try_into().expect("eight"));
    CommRow {
        slice: SliceIdx(at(0)),
        src: ThreadIdx(at(4)),
        dst: ThreadIdx(at(8)),
        layer: if at(12) == 1 {
            Layer::Collective
        } else {
            Layer::Message
        },
        events: wide(16),
        bytes: wide(24),
    }
}

/// The plan of a finished merge, without its files.
pub(super) fn plan_message(plan: &Plan) -> Message {
    let mut message = Message::default();
    message.number(u64::from(plan.size)).number(plan.end);
    message.number(u64::from(plan.complete)).texts(&plan.notes);
    put_seen(&mut message, &plan.seen);
    message
}

pub(super) fn plan_of(parts: &mut Parts<'_>, folder: &Path) -> Result<Plan, Malformed> {
    let (size, end) = (parts.number32()?, parts.number()?);
    let (complete, notes) = (parts.number()? == 1, parts.texts()?);
    let seen = seen(parts, folder)?;
    if seen.iter().any(|s| s.header.rank >= size) {
        return Err(Malformed);
    }
    Ok(Plan {
        seen,
        size,
        slice_ns: 1,
        end,
        notes,
        complete,
    })
}
