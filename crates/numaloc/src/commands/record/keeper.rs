//! Protects the recording from deletion by the program: some programs clean their working directory, where the
//! recording lies under a name that begins with a dot.
//!
//! Each file of the work folder is held open from the moment it appears, so that its contents survive deletion. A
//! deleted folder is created again at once, for processes that start later. At the end, deleted files get their names
//! back.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// Maximum number of files held open: the usual limit of descriptors is 1024. Files of later processes are not
/// protected.
const MOST: usize = 512;

type Held = Arc<Mutex<BTreeMap<OsString, File>>>;

/// Protects the files of a work folder; see the module.
pub struct Keeper {
    folder: PathBuf,
    held: Held,
    over: Arc<AtomicBool>,
}

impl Keeper {
    /// Starts to protect the files in `folder`.
    ///
    /// # Errors
    /// The kernel's, if it cannot watch another folder.
    pub fn watch(folder: &Path) -> std::io::Result<Self> {
        let events = inotify::init(CreateFlags::CLOEXEC)?;
        let keeper = Self {
            folder: folder.to_owned(),
            held: Held::default(),
            over: Arc::default(),
        };
        add_watch(&events, folder)?;
        let (folder, held, over) = (
            keeper.folder.clone(),
            Arc::clone(&keeper.held),
            Arc::clone(&keeper.over),
        );
        hold(&folder, &held);
        // Ends when the folder is finally deleted, which is an event.
        std::thread::spawn(move || follow(&events, &folder, &held, &over));
        Ok(keeper)
    }

    /// Restores the names of deleted files; returns their number.
    ///
    /// # Errors
    /// The kernel's, if they cannot be written.
    pub fn restore(self) -> std::io::Result<usize> {
        // Deletions from now on are our own.
        self.over.store(true, Ordering::Relaxed);
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut restored = 0;
        for (name, mut file) in held.iter() {
            let path = self.folder.join(name);
            if path.symlink_metadata().is_ok() {
                continue;
            }
            std::fs::create_dir_all(&self.folder)?;
            std::io::copy(&mut file, &mut File::create_new(path)?)?;
            restored += 1;
        }
        Ok(restored)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn add_watch(events: &OwnedFd, folder: &Path) -> std::io::Result<()> {
    let of_interest = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DELETE_SELF;
    inotify::add_watch(events, folder, of_interest)?;
    Ok(())
}

fn follow(events: &OwnedFd, folder: &Path, held: &Held, over: &AtomicBool) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events_of = inotify::Reader::new(events, &mut buffer);
    while events_of.next().is_ok() && !over.load(Ordering::Relaxed) {
        if !folder.is_dir() {
            let made = std::fs::create_dir(folder);
            if made.and_then(|()| add_watch(events, folder)).is_err() {
                return;
            }
        }
        hold(folder, held);
    }
}

/// Opens the files that are not open yet.
fn hold(folder: &Path, held: &Held) {
    let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
    // Programs that execute others by the thousand have as many files here.
    if held.len() >= MOST {
        return;
    }
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let regular = entry.file_type().is_ok_and(|kind| kind.is_file());
        if regular && held.len() < MOST && !held.contains_key(&entry.file_name()) {
            let file = File::open(entry.path());
            held.extend(file.ok().map(|file| (entry.file_name(), file)));
        }
    }
}
