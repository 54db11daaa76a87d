//! Where the processes of a recording get their journals, whatever they do to themselves.
//!
//! A process may give up its user, change its root, its namespaces or hide the recording's folder, so no path leads to
//! it. It inherits two descriptors: the folder, in which it creates its journal if it may, and a socket to the
//! recorder, which otherwise creates the journal and sends it back ([`Registrar`]).
//!
//! A request is one message: the journal's name, and one end of a pair of sockets for the answer, which is the file.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::descriptors::{self, Lifted};
use crate::settings::{Config, Inherited, Station};

/// Longest name of a journal in bytes.
const LONGEST: usize = 255;
/// Journals of one process image: more means that names of this kind are taken on purpose.
const SAME: u32 = 4096;
/// Seconds that an answer is waited for.
const PATIENCE: libc::time_t = 10;

/// Room for a control message with one descriptor.
type Control = [u64; 4];

impl Inherited {
    /// A descriptor of this process.
    ///
    /// # Errors
    /// The system's.
    pub fn of(descriptor: RawFd) -> io::Result<Self> {
        let (_, inode) = kind_and_inode(descriptor).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            descriptor: descriptor as u32,
            inode,
        })
    }

    /// The descriptor, if it still is what was inherited.
    fn get(self, kind: libc::mode_t) -> Option<RawFd> {
        let descriptor = self.descriptor as RawFd;
        (kind_and_inode(descriptor)? == (kind, self.inode)).then_some(descriptor)
    }
}

fn kind_and_inode(descriptor: RawFd) -> Option<(libc::mode_t, u64)> {
    let mut data = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the call fills the structure it is given.
    if unsafe { libc::fstat(descriptor, data.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled, and zero is a value of all its fields.
    let data = unsafe { data.assume_init() };
    Some((data.st_mode & libc::S_IFMT, data.st_ino))
}

/// The descriptors that a process inherits for its recording.
fn inherited(config: &Config) -> impl Iterator<Item = RawFd> {
    let station = config.station;
    let folder = station.map(|station| station.folder.descriptor);
    let registrar = station.map(|station| station.registrar.descriptor);
    let table = config.cross_process.map(|place| place.descriptor);
    let all = [folder, registrar, table].into_iter().flatten();
    all.map(|descriptor| descriptor as RawFd)
}

/// Lists what this process has inherited for its recording as ours. Programs that it executes do not inherit it.
pub fn keep(config: &Config) {
    let is = |inherited: Inherited, kind| inherited.get(kind).is_some();
    let Some(station) = config.station else {
        return;
    };
    // Otherwise none was inherited, and the numbers are the program's.
    if is(station.folder, libc::S_IFDIR) || is(station.registrar, libc::S_IFSOCK) {
        for descriptor in inherited(config) {
            descriptors::list(descriptor);
            descriptors::pass_on(descriptor, false);
        }
    }
}

/// Whether the program that this process executes inherits what its recording needs.
pub fn pass_on(config: &Config, passed: bool) {
    for descriptor in inherited(config).filter(|&descriptor| descriptors::is_kept(descriptor)) {
        descriptors::pass_on(descriptor, passed);
    }
}

/// Creates a file for a journal in the recording's folder: `NAME.journal`, or with a number after the name if there is
/// one, because processes in different namespaces have the same process ids.
///
/// # Errors
/// The system's, of the last way that was tried.
pub fn create(folder: &Path, station: Option<Station>, name: &str) -> io::Result<File> {
    let _lifted = Lifted::for_descriptors();
    let Some(station) = station else {
        return numbered(name, |name| create_new(&folder.join(name)));
    };
    if let Some(folder) = station.folder.get(libc::S_IFDIR)
        && let Ok(file) = numbered(name, |name| create_at(folder, name))
    {
        return Ok(file);
    }
    if let Some(registrar) = station.registrar.get(libc::S_IFSOCK)
        && let Ok(file) = request(registrar, name)
    {
        return Ok(file);
    }
    // The folder may be another one at this place: then the journal is not found, but nothing else is harmed.
    let same = folder.metadata()?.ino() == station.folder.inode;
    match same {
        true => numbered(name, |name| create_new(&folder.join(name))),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

fn numbered(name: &str, create: impl Fn(&str) -> io::Result<File>) -> io::Result<File> {
    let mut number = 0;
    loop {
        let tried = match number {
            0 => format!("{name}.journal"),
            number => format!("{name}_{number}.journal"),
        };
        match create(&tried) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < SAME => {
                number += 1;
            }
            result => return result,
        }
    }
}

fn create_new(path: &Path) -> io::Result<File> {
    File::options().append(true).create_new(true).open(path)
}

fn create_at(folder: RawFd, name: &str) -> io::Result<File> {
    let name = std::ffi::CString::new(name)?;
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: a string that lives.
    let file = unsafe { libc::openat(folder, name.as_ptr(), flags, 0o666) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor with no other owner.
    Ok(unsafe { File::from_raw_fd(file) })
}

/// Asks the recorder for a journal.
fn request(registrar: RawFd, name: &str) -> io::Result<File> {
    let (ours, theirs) = pair()?;
    send(registrar, name.as_bytes(), Some(theirs.as_raw_fd()))?;
    drop(theirs);
    let patience = libc::timeval {
        tv_sec: PATIENCE,
        tv_usec: 0,
    };
    // SAFETY: the option's value is the structure pointed to.
    unsafe {
        libc::setsockopt(
            ours.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const patience).cast(),
            size_of::<libc::timeval>() as libc::socklen_t,
        );
    }
    let mut answer = [0; 1];
    match receive(ours.as_raw_fd(), &mut answer)? {
        (_, Some(file)) => Ok(file.into()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// A pair of connected sockets that keep messages whole.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the call fills the array it is given.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new descriptors with no other owner.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// A message of `bytes` with room for a descriptor in `control`.
fn message(bytes: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: a structure of integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>();
    message
}

fn send(socket: RawFd, bytes: &[u8], descriptor: Option<RawFd>) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control::default();
    let mut message = message(&mut part, &mut control);
    match descriptor {
        None => message.msg_controllen = 0,
        // SAFETY: the room is aligned, and large enough for a header and one descriptor.
        Some(descriptor) => unsafe {
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(head).cast::<RawFd>().write(descriptor);
            message.msg_controllen = libc::CMSG_SPACE(4) as usize;
        },
    }
    loop {
        // SAFETY: the message refers to memory that lives.
        if unsafe { libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Receives one message: its length, 0 at the end, and the descriptor that came with it.
fn receive(socket: RawFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control::default();
    let mut message = message(&mut part, &mut control);
    let length = loop {
        // SAFETY: the message refers to memory that lives.
        let length = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        if length >= 0 {
            break length as usize;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    // SAFETY: the kernel has filled the room; a descriptor in it is new and ours.
    let descriptor = unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (!head.is_null()
            && (*head).cmsg_level == libc::SOL_SOCKET
            && (*head).cmsg_type == libc::SCM_RIGHTS
            && (*head).cmsg_len == libc::CMSG_LEN(4) as usize)
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(head).cast::<RawFd>().read()))
    };
    Ok((length, descriptor))
}

/// The recorder's side: creates journals for processes that cannot.
pub struct Registrar {
    path: PathBuf,
    folder: OwnedFd,
    /// The end that processes inherit.
    theirs: OwnedFd,
    ours: OwnedFd,
}

impl Registrar {
    /// For the recording whose folder is at `path`.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<Self> {
        let folder = descriptors::out_of_the_way(File::open(path)?.into());
        let (ours, theirs) = pair()?;
        Ok(Self {
            path: path.to_owned(),
            folder,
            theirs: descriptors::out_of_the_way(theirs),
            ours,
        })
    }

    /// What processes need to know.
    ///
    /// # Errors
    /// The system's.
    pub fn station(&self) -> io::Result<Station> {
        Ok(Station {
            folder: Inherited::of(self.folder.as_raw_fd())?,
            registrar: Inherited::of(self.theirs.as_raw_fd())?,
        })
    }

    /// Whether processes that are started inherit the descriptors.
    pub fn pass_on(&self, passed: bool) {
        descriptors::pass_on(self.folder.as_raw_fd(), passed);
        descriptors::pass_on(self.theirs.as_raw_fd(), passed);
    }

    /// The recording's folder by a path that leads there even if something was mounted over it, or it was moved.
    #[must_use]
    pub fn current(&self) -> PathBuf {
        let inode = |path: &Path| path.metadata().ok().map(|data| data.ino());
        let open = PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()));
        let open_data = open.metadata().ok();
        // A folder that was deleted has no links; what was in it is restored at its path.
        match open_data.filter(|data| data.nlink() > 0) {
            Some(data) if inode(&self.path) != Some(data.ino()) => open,
            _ => self.path.clone(),
        }
    }

    /// Answers requests until the last process that could make one has ended, or this is dropped.
    ///
    /// # Errors
    /// The system's.
    pub fn serve(&self) -> io::Result<()> {
        let (ours, folder) = (self.ours.try_clone()?, self.folder.try_clone()?);
        let path = self.path.clone();
        std::thread::spawn(move || {
            let mut name = [0; LONGEST];
            while let Ok((length, answer)) = receive(ours.as_raw_fd(), &mut name) {
                if length == 0 {
                    return;
                }
                let file = granted(&name[..length], folder.as_raw_fd(), &path);
                // The process may have ended.
                if let (Ok(file), Some(answer)) = (file, answer) {
                    let _ = send(answer.as_raw_fd(), b"j", Some(file.as_raw_fd()));
                }
            }
        });
        Ok(())
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        descriptors::unlist(self.folder.as_raw_fd());
        descriptors::unlist(self.theirs.as_raw_fd());
        // SAFETY: our socket; ends the thread.
        unsafe { libc::shutdown(self.ours.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

/// The file for a request. Who asks may be anyone to whom the program has given the socket: a name leads nowhere else.
fn granted(name: &[u8], folder: RawFd, path: &Path) -> io::Result<File> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let name = std::str::from_utf8(name).ok().filter(|name| {
        !name.starts_with('.') && name.len() < LONGEST - 16 && name.bytes().all(|b| plain(&b))
    });
    let name = name.ok_or(io::ErrorKind::InvalidInput)?;
    numbered(name, |name| match create_at(folder, name) {
        // The program has deleted the folder: there is another one at its path.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(path)?;
            create_new(&path.join(std::ffi::OsStr::from_bytes(name.as_bytes())))
        }
        result => result,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn processes_with_the_same_id_get_journals_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            create(folder.path(), None, "0-1-0").unwrap();
        }
        let expected = ["0-1-0.journal", "0-1-0_1.journal", "0-1-0_2.journal"];
        assert_eq!(names(folder.path()), expected);
    }

    #[test]
    fn the_folder_is_found_by_its_descriptor_wherever_it_is() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("work");
        std::fs::create_dir(&path).unwrap();
        let registrar = Registrar::open(&path).unwrap();
        let station = registrar.station().unwrap();
        let moved = parent.path().join("moved");
        std::fs::rename(&path, &moved).unwrap();
        std::fs::create_dir(&path).unwrap();
        create(&path, Some(station), "0-1-0").unwrap();
        assert_eq!(names(&moved), ["0-1-0.journal"]);
        assert_eq!(names(&registrar.current()), ["0-1-0.journal"]);
    }

    #[test]
    fn the_recorder_creates_what_the_process_cannot() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("work");
        std::fs::create_dir(&path).unwrap();
        let registrar = Registrar::open(&path).unwrap();
        registrar.serve().unwrap();
        // As after `rm -rf`, without the keeper.
        let station = registrar.station().unwrap();
        std::fs::remove_dir(&path).unwrap();
        let mut file = create(&path, Some(station), "0-7-1").unwrap();
        file.write_all(b"x").unwrap();
        assert_eq!(std::fs::read(path.join("0-7-1.journal")).unwrap(), b"x");
        assert_eq!(registrar.current(), path);
        // No name leads elsewhere.
        for name in ["../x", "a/b", ".hidden", "", "a\n"] {
            assert!(granted(name.as_bytes(), -1, &path).is_err(), "{name}");
        }
    }

    #[test]
    fn a_descriptor_that_is_another_file_by_now_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let registrar = Registrar::open(folder.path()).unwrap();
        let mut station = registrar.station().unwrap();
        station.folder.descriptor = File::open("/").unwrap().as_raw_fd() as u32;
        station.registrar.descriptor = station.folder.descriptor;
        // Nothing leads to the folder but its path, and another path is not taken for it.
        create(folder.path(), Some(station), "0-1-0").unwrap();
        assert!(create(other.path(), Some(station), "0-1-0").is_err());
    }
}
