//! The files: what a folder is prepared with, and the messages that carry what ranks wrote to another one.
//!
//! A sender's file is its name, its length, blocks of at most 1 MiB and a checksum; the receiver answers when it has
//! the file on disk. So a process holds one block, and files are sent one after the other.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::path::{Component, Path, PathBuf};

use crate::peers::Peers;

/// File in the recorder's folder as long as files of other hosts are missing there.
const MARK: &str = "to-be-gathered";
/// The same file when they have been gathered.
const DONE: &str = "gathered";
/// Prefix of the file whose creator works for the folder.
const CLAIM: &str = "gathering-";
/// Suffix of a file that is arriving.
const ARRIVING: &str = "arriving";
/// Bytes of a block.
const BLOCK: usize = 1 << 20;

pub(super) fn mark(folder: &Path) -> std::io::Result<()> {
    File::create(folder.join(MARK)).map(drop)
}

pub(super) fn unmark(folder: &Path) -> std::io::Result<()> {
    std::fs::rename(folder.join(MARK), folder.join(DONE))
}

pub(super) fn is_done(folder: &Path) -> bool {
    folder.join(DONE).is_file()
}

pub(super) fn is_marked(folder: &Path) -> bool {
    folder.join(MARK).is_file()
}

/// Creates `folder` with these files, names below it and contents. Other processes may do the same at the same time.
pub(super) fn fill(folder: &Path, files: &[(&str, &[u8])]) -> std::io::Result<()> {
    for (name, content) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        if !path.exists() {
            let unfinished = folder.join(format!("unfinished-{}", std::process::id()));
            std::fs::write(&unfinished, content)?;
            std::fs::rename(&unfinished, &path)?;
        }
    }
    Ok(())
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It sees no folder, or another process works for the one that it sees.
    Idle,
    Sends,
    Receives,
}

impl Role {
    const ALL: [Self; 3] = [Self::Idle, Self::Sends, Self::Receives];
}

/// Does this process' part: the files of all folders are in the recorder's at the end.
pub(super) fn gather(peers: &mut impl Peers, folder: &Path, host: &str) -> std::io::Result<()> {
    // All processes have the same name for the claim, and no two gatherings have.
    let claim = from_first(peers, || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_nanos());
        format!("{CLAIM}{now:x}").into_bytes()
    })?;
    let claim = folder.join(String::from_utf8_lossy(&claim).as_ref());
    let role = role(folder, &claim)?;
    let done = take_part(peers, role, folder, host);
    if role != Role::Idle {
        let _ = std::fs::remove_file(&claim);
    }
    if role == Role::Sends && done.is_ok() {
        clear(folder);
    }
    done
}

fn take_part(peers: &mut impl Peers, role: Role, folder: &Path, host: &str) -> std::io::Result<()> {
    let roles = from_first_of(peers, role)?;
    let with = |role: Role| {
        (0..)
            .zip(&roles)
            .filter(move |(_, r)| **r == role)
            .map(|(at, _)| at)
    };
    let Some(receiver) = with(Role::Receives).next() else {
        return Err(Error::other(
            "no process that the launcher started sees the recorder's folder; numaloc must run on one of the hosts of the run",
        ));
    };
    match role {
        Role::Idle => Ok(()),
        Role::Sends => send_all(peers, receiver, folder, host),
        Role::Receives => with(Role::Sends)
            .collect::<Vec<u32>>()
            .into_iter()
            .try_for_each(|sender| receive_all(peers, sender, folder)),
    }
}

/// Process 0's bytes, in all processes.
fn from_first(peers: &mut impl Peers, make: impl FnOnce() -> Vec<u8>) -> std::io::Result<Vec<u8>> {
    if peers.rank() > 0 {
        return peers.receive(0);
    }
    let bytes = make();
    for other in 1..peers.size() {
        peers.send(other, &bytes)?;
    }
    Ok(bytes)
}

/// The roles of all processes, in all processes.
fn from_first_of(peers: &mut impl Peers, mine: Role) -> std::io::Result<Vec<Role>> {
    if peers.rank() > 0 {
        peers.send(0, &[mine as u8])?;
    }
    let mut all = vec![mine as u8];
    if peers.rank() == 0 {
        for other in 1..peers.size() {
            all.push(*peers.receive(other)?.first().unwrap_or(&0));
        }
    }
    let all = from_first(peers, || all)?;
    let known = |byte: &u8| {
        Role::ALL
            .get(usize::from(*byte))
            .copied()
            .unwrap_or(Role::Idle)
    };
    Ok(all.iter().map(known).collect())
}

/// Claims the folder, if nobody else has.
fn role(folder: &Path, claim: &Path) -> std::io::Result<Role> {
    match File::create_new(claim) {
        Ok(_) if is_marked(folder) => Ok(Role::Receives),
        Ok(_) => Ok(Role::Sends),
        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {
            Ok(Role::Idle)
        }
        Err(error) => Err(error),
    }
}

/// Whether a file of this name was written by a rank: its messages, its accesses, or its place.
fn is_ranks(name: &str) -> bool {
    let path = Path::new(name);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    let written = path
        .extension()
        .is_some_and(|e| e == "nlmpi" || e == "journal");
    let place = path
        .file_name()
        .is_some_and(|n| n.as_encoded_bytes().starts_with(b"where-"));
    plain && path.components().count() <= 2 && (written || place)
}

/// Names of the ranks' files, in the folder and the folders in it, in order.
fn written(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(within) = folders.pop() {
        for entry in std::fs::read_dir(within)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() && path.parent() == Some(folder) {
                folders.push(path);
            } else if let Ok(name) = path.strip_prefix(folder)
                && let Some(name) = name.to_str().filter(|name| is_ranks(name))
            {
                names.push(name.to_owned());
            }
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn send_all(peers: &mut impl Peers, to: u32, folder: &Path, host: &str) -> std::io::Result<()> {
    peers.send(to, host.as_bytes())?;
    let mut block = vec![0; BLOCK];
    for name in written(folder)? {
        let path = folder.join(&name);
        let mut file = File::open(&path)?;
        let length = file.metadata()?.len();
        peers.send(to, name.as_bytes())?;
        peers.send(to, &length.to_le_bytes())?;
        let (mut left, mut crc) = (length, crc32fast::Hasher::new());
        while left > 0 {
            let part = &mut block[..left.min(BLOCK as u64) as usize];
            file.read_exact(part)?;
            crc.update(part);
            peers.send(to, part)?;
            left -= part.len() as u64;
        }
        peers.send(to, &crc.finalize().to_le_bytes())?;
        // Empty: the receiver could not keep it, and says why on its own.
        if peers.receive(to)?.is_empty() {
            return Err(Error::other(format!("the receiver did not take {name}")));
        }
        // A rank that outlived its launcher may still write.
        if file.metadata()?.len() == length {
            std::fs::remove_file(&path)?;
        }
    }
    peers.send(to, &[])
}

fn receive_all(peers: &mut impl Peers, from: u32, folder: &Path) -> std::io::Result<()> {
    let host = String::from_utf8_lossy(&peers.receive(from)?).into_owned();
    loop {
        let name = peers.receive(from)?;
        if name.is_empty() {
            return Ok(());
        }
        let name = String::from_utf8_lossy(&name).into_owned();
        let kept = receive(peers, from, folder, &name, &host)
            .map_err(|error| Error::other(format!("{name} of host {host}: {error}")));
        peers.send(from, if kept.is_ok() { b"kept" } else { b"" })?;
        kept?;
    }
}

/// Receives one file. The rest of it is received even if it cannot be kept.
fn receive(
    peers: &mut impl Peers,
    from: u32,
    folder: &Path,
    name: &str,
    host: &str,
) -> std::io::Result<()> {
    let mut left = u64::from_le_bytes(number(peers.receive(from)?)?);
    let path = if is_ranks(name) {
        Some(folder.join(name))
    } else {
        None
    };
    let mut kept = arriving(path.as_deref());
    let mut crc = crc32fast::Hasher::new();
    while left > 0 {
        let block = peers.receive(from)?;
        crc.update(&block);
        left = left
            .checked_sub(block.len() as u64)
            .filter(|_| !block.is_empty())
            .ok_or(ErrorKind::InvalidData)?;
        if let Ok((file, _)) = &mut kept
            && let Err(error) = file.write_all(&block)
        {
            kept = Err(error);
        }
    }
    let sum = u32::from_le_bytes(number(peers.receive(from)?)?);
    let (file, unfinished) = kept?;
    if sum != crc.finalize() {
        return Err(Error::other("its checksum is another"));
    }
    file.sync_all()?;
    std::fs::rename(
        &unfinished,
        free(&path.unwrap_or_default(), &unfinished, host)?,
    )
}

/// A new file that gets its name when it is complete.
fn arriving(path: Option<&Path>) -> std::io::Result<(File, PathBuf)> {
    let path = path.ok_or_else(|| Error::other("no rank writes a file of this name"))?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let unfinished = path.with_extension(ARRIVING);
    Ok((File::create(&unfinished)?, unfinished))
}

/// The name for an arrived file: `path`, or with its host if another file has that. One with the same content may be
/// there from an interrupted gathering.
fn free(path: &Path, arrived: &Path, host: &str) -> std::io::Result<PathBuf> {
    if !path.exists() || same(path, arrived)? {
        return Ok(path.to_owned());
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let host: String = host
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .collect();
    let extension = path
        .extension()
        .map(|e| format!(".{}", e.to_string_lossy()));
    Ok(path.with_file_name(format!("{stem}@{host}{}", extension.unwrap_or_default())))
}

fn same(one: &Path, other: &Path) -> std::io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut a, mut b) = (vec![0; BLOCK], vec![0; BLOCK]);
    loop {
        let length = one.read(&mut a)?;
        other.read_exact(&mut b[..length])?;
        if a[..length] != b[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
    }
}

fn number<const N: usize>(bytes: Vec<u8>) -> std::io::Result<[u8; N]> {
    bytes.try_into().map_err(|_| ErrorKind::InvalidData.into())
}

/// Removes what [`fill`] made, the state that emulated ranks report, and where their host's table of shared memory was,
/// if nothing else is there.
fn clear(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path
            .extension()
            .is_some_and(|e| e == "status" || e == "table")
        {
            let _ = std::fs::remove_file(path);
        }
    }
    let within = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for below in within
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
    {
        for entry in std::fs::read_dir(&below).into_iter().flatten().flatten() {
            if crate::shims::content_of(&entry.file_name()).is_some() {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        // Fails if something else is there.
        let _ = std::fs::remove_dir(below);
    }
    let _ = std::fs::remove_dir(folder);
}

#[cfg(test)]
mod tests;
