//! A merge by several processes: each reads a share of the files in both passes, and the parts go up a binary tree to
//! process 0.
//!
//! Sums are a sparse set of rows, of which each process has others. `MPI_Reduce` combines vectors of equal length, so
//! the tree is made of sends and receives. Rows travel in blocks of 1 MiB. A process holds at most
//! [`Options::rows`] rows, whatever the number of ranks, and process 0 in addition the headers of all files.
//!
//! The result is the file `merged` in the folder. It appears complete or not at all; the rank files stay.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use super::plan::Plan;
use super::sums::Sums;
use super::survey::Survey;
use super::wire::{self, Message, Parts, ROW, Task};
use super::{MergeError, Merged, Options};
use crate::peers::Peers;

/// File with the result of a merge, in the folder of the rank files.
const RESULT: &str = "merged";
/// The same while it is written.
const UNFINISHED: &str = "merged.unfinished";
const MAGIC: &[u8; 8] = b"NLMERGED";
/// Rows in a block.
const BLOCK: usize = (1 << 20) / ROW;

impl From<std::io::Error> for MergeError {
    fn from(error: std::io::Error) -> Self {
        Self::Elsewhere(format!(
            "the processes of the merge lost each other: {error}"
        ))
    }
}

/// The processes whose results this one combines with its own, in order, and the one that gets the sum. Each covers
/// the ranks from its own to the next one's, so results stay in order.
fn tree(rank: u32, size: u32) -> (Vec<u32>, Option<u32>) {
    let mut below = Vec::new();
    let mut step = 1;
    while step < size {
        if rank & step != 0 {
            return (below, Some(rank - step));
        }
        if rank + step < size {
            below.push(rank + step);
        }
        step *= 2;
    }
    (below, None)
}

/// This process' part of `items`.
fn part<T>(items: &[T], peers: &impl Peers) -> std::ops::Range<usize> {
    let at = |rank: u32| items.len() * rank as usize / peers.size() as usize;
    at(peers.rank())..at(peers.rank() + 1)
}

/// Sends process 0's bytes to all.
fn broadcast(peers: &mut impl Peers, mine: Vec<u8>) -> Result<Vec<u8>, MergeError> {
    let (below, above) = tree(peers.rank(), peers.size());
    let bytes = match above {
        Some(above) => peers.receive(above)?,
        None => mine,
    };
    for below in below.into_iter().rev() {
        peers.send(below, &bytes)?;
    }
    Ok(bytes)
}

/// Does this process' part of a merge of the rank files in `folder`; process 0 writes the result there.
///
/// # Errors
/// [`MergeError`] if there is no result: a process is gone, or process 0 cannot write. What is wrong with the files is
/// part of the result.
pub fn share(peers: &mut impl Peers, folder: &Path, options: Options) -> Result<(), MergeError> {
    let merged = merge(peers, folder, options);
    match merged {
        Ok(None) => Ok(()),
        Ok(Some((plan, sums))) => write(folder, Ok((&plan, sums))),
        Err(error) if peers.rank() == 0 => write(folder, Err(&error)),
        Err(error) => Err(error),
    }
}

/// The plan and the sums in process 0, `None` in the others.
fn merge(
    peers: &mut impl Peers,
    folder: &Path,
    options: Options,
) -> Result<Option<(Plan, Sums)>, MergeError> {
    // Process 0 lists the files: on a network file system others may see a new file later.
    let names = if peers.rank() == 0 {
        let files = crate::shims::rank_files(folder)?;
        let names = files.iter().filter_map(|file| file.file_name());
        let names: Vec<&[u8]> = names.map(std::ffi::OsStr::as_encoded_bytes).collect();
        names.join(&0)
    } else {
        Vec::new()
    };
    let names = broadcast(peers, names)?;
    let files: Vec<PathBuf> = names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| folder.join(&*String::from_utf8_lossy(name)))
        .collect();
    let mine = &files[part(&files, peers)];
    let survey = surveys(peers, Survey::of(mine), folder)?;

    let planned = survey.map(|survey| Plan::of(survey?, options));
    let task = match &planned {
        None => Vec::new(),
        Some(planned) => {
            let message = planned.as_ref();
            let message = message.map(|plan| wire::task_message(plan, &plan.limits(options)));
            wire::outcome(message).0
        }
    };
    let task = broadcast(peers, task)?;
    let plan = match planned {
        None => None,
        Some(plan) => Some(plan?),
    };
    let Ok(mut parts) = wire::content(&task) else {
        // Process 0 has the reason.
        return Ok(None);
    };
    let task = wire::task_of(&mut parts, folder)?;
    let sums = reduce(peers, summed(peers, &task), &task)?;
    Ok(plan.zip(sums))
}

/// The surveys of all processes in process 0, `None` in the others.
fn surveys(
    peers: &mut impl Peers,
    mut mine: Result<Survey, MergeError>,
    folder: &Path,
) -> Result<Option<Result<Survey, MergeError>>, MergeError> {
    let (below, above) = tree(peers.rank(), peers.size());
    for below in below {
        let bytes = peers.receive(below)?;
        mine = mine.and_then(|mut all| {
            let other = wire::survey_of(&mut wire::content(&bytes)?, folder)?;
            all.seen.extend(other.seen);
            all.longest_ns = all.longest_ns.max(other.longest_ns);
            all.unusable = all.unusable.or(other.unusable);
            all.notes.extend(other.notes);
            all.complete &= other.complete;
            Ok(all)
        });
    }
    let Some(above) = above else {
        return Ok(Some(mine));
    };
    let message = wire::outcome(mine.as_ref().map(wire::survey_message));
    peers.send(above, &message.0)?;
    Ok(None)
}

/// The sums of this process' files.
fn summed(peers: &impl Peers, task: &Task) -> Result<Sums, MergeError> {
    let mut sums = Sums::new(task.slice_ns);
    for (path, rank) in &task.files[part(&task.files, peers)] {
        sums.add_file(path, *rank, &task.limits)?;
    }
    Ok(sums)
}

/// The sums of all processes in process 0, `None` in the others.
fn reduce(
    peers: &mut impl Peers,
    mut mine: Result<Sums, MergeError>,
    task: &Task,
) -> Result<Option<Sums>, MergeError> {
    let (below, above) = tree(peers.rank(), peers.size());
    for below in below {
        let bytes = peers.receive(below)?;
        let head = wire::content(&bytes).and_then(|mut parts| Ok(wire::sums_head(&mut parts)?));
        let head = match head {
            Ok(head) => head,
            // Without rows.
            Err(error) => {
                mine = mine.and(Err(error));
                continue;
            }
        };
        if let Ok(sums) = &mut mine {
            sums.lengthen(head.slice_ns);
            sums.add_rest(head.modelled, head.to_self);
        }
        let mut left = head.rows;
        while left > 0 {
            let block = peers.receive(below)?;
            let (rows, _) = block.as_chunks::<ROW>();
            left = left.saturating_sub(rows.len().max(1) as u64);
            if let Ok(sums) = &mut mine {
                sums.add_rows(rows.iter().map(wire::row), head.slice_ns, &task.limits);
            }
        }
    }
    let Some(above) = above else {
        return mine.map(Some);
    };
    let head = wire::outcome(mine.as_ref().map(wire::sums_message));
    peers.send(above, &head.0)?;
    if let Ok(sums) = mine {
        blocks(sums, |block| peers.send(above, block))?;
    }
    Ok(None)
}

/// Passes the rows of `sums` on in blocks.
fn blocks(sums: Sums, mut pass: impl FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut block = Vec::with_capacity(BLOCK * ROW);
    for row in sums.rows.into_rows() {
        wire::put_row(&mut block, &row);
        if block.len() == BLOCK * ROW {
            pass(&block)?;
            block.clear();
        }
    }
    if block.is_empty() {
        return Ok(());
    }
    pass(&block)
}

/// Writes the result: a checksum at its end, and its name when it is complete.
fn write(folder: &Path, result: Result<(&Plan, Sums), &MergeError>) -> Result<(), MergeError> {
    let (unfinished, path) = (folder.join(UNFINISHED), folder.join(RESULT));
    let written = || -> std::io::Result<()> {
        let mut out = BufWriter::new(File::create(&unfinished)?);
        let mut crc = crc32fast::Hasher::new();
        let mut put = |bytes: &[u8]| {
            crc.update(bytes);
            out.write_all(bytes)
        };
        put(MAGIC)?;
        let head = |(plan, sums): &(&Plan, Sums)| {
            let mut message = wire::plan_message(plan);
            message.0.extend(wire::sums_message(sums).0);
            message
        };
        let mut whole = Message::default();
        whole.bytes(&wire::outcome(result.as_ref().map(head).map_err(|error| *error)).0);
        put(&whole.0)?;
        if let Ok((_, sums)) = result {
            blocks(sums, &mut put)?;
        }
        let sum = crc.finalize();
        out.write_all(&sum.to_le_bytes())?;
        out.into_inner()
            .map_err(std::io::IntoInnerError::into_error)?;
        std::fs::rename(&unfinished, &path)
    };
    written().map_err(|error| {
        let _ = std::fs::remove_file(&unfinished);
        MergeError::Elsewhere(format!("cannot write {}: {error}", path.display()))
    })
}

/// Removes what an earlier merge left in `folder`.
pub(super) fn clear(folder: &Path) -> std::io::Result<()> {
    for name in [RESULT, UNFINISHED] {
        match std::fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The profile from the result of a merge in `folder`; the result is removed.
///
/// # Errors
/// [`MergeError`] of the merge, or if its result is absent or damaged.
pub(super) fn result(
    folder: &Path,
    command: &[String],
    options: Options,
) -> Result<Merged, MergeError> {
    let path = folder.join(RESULT);
    let damaged = |why: &str| MergeError::Elsewhere(format!("{}: {why}", path.display()));
    let file = File::open(&path).map_err(|error| damaged(&error.to_string()))?;
    // Its blocks are read in place; the name is not needed again, whatever comes.
    let _ = std::fs::remove_file(&path);
    let length = file.metadata()?.len();
    let mut input = Checked {
        input: std::io::BufReader::new(file),
        crc: crc32fast::Hasher::new(),
        left: length.saturating_sub(4),
    };
    let magic = input.take(8)?;
    if magic != MAGIC {
        return Err(damaged("it is no result of a merge"));
    }
    let head = input.take(8)?;
    let head = u64::from_le_bytes(head.try_into().expect("eight bytes"));
    let head = input.take(usize::try_from(head).unwrap_or(usize::MAX))?;
    let mut parts: Parts<'_> = wire::content(&head)?;
    let plan = wire::plan_of(&mut parts, folder)?;
    let head = wire::sums_head(&mut parts)?;
    let mut sums = Sums::new(head.slice_ns);
    sums.add_rest(head.modelled, head.to_self);
    let limits = plan.limits(options);
    let mut left = usize::try_from(head.rows).unwrap_or(usize::MAX);
    while left > 0 {
        let rows = left.min(BLOCK);
        let block = input.take(rows * ROW)?;
        let rows_of = block.as_chunks::<ROW>().0.iter().map(wire::row);
        sums.add_rows(rows_of, head.slice_ns, &limits);
        left -= rows;
    }
    let sum = input.crc.clone().finalize();
    let mut last = [0; 4];
    input.input.read_exact(&mut last)?;
    if u32::from_le_bytes(last) != sum {
        return Err(damaged("it fails its checksum"));
    }
    plan.profile(sums, command, options)
}

/// A file with a checksum at its end.
struct Checked {
    input: std::io::BufReader<File>,
    crc: crc32fast::Hasher,
    /// Bytes before the checksum.
    left: u64,
}

impl Checked {
    fn take(&mut self, length: usize) -> std::io::Result<Vec<u8>> {
        if length as u64 > self.left {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; length];
        self.input.read_exact(&mut bytes)?;
        self.crc.update(&bytes);
        self.left -= length as u64;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
