//! Keeps what is recorded although the program deletes it: some programs clean their working directory, where the recording
//! lies under a name that begins with a dot.
//!
//! Each file of the work folder is held open from when it appears, so that its contents outlive its name. A folder that is
//! deleted is made again at once, for processes that begin later. At the end, files without a name get theirs back.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// Most files held at once: the usual limit of descriptors is 1024. Of more processes, those that came later are not kept.
const MOST: usize = 512;

type Held = Arc<Mutex<BTreeMap<OsString, File>>>;

/// See the module.
pub struct Keeper {
    folder: PathBuf,
    held: Held,
    over: Arc<AtomicBool>,
}

impl Keeper {
    /// Begins to keep what is in `folder`.
    ///
    /// # Errors
    /// The kernel's, where it watches no more folders.
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
        // Ends when the folder is deleted for good, which is an event.
        std::thread::spawn(move || follow(&events, &folder, &held, &over));
        Ok(keeper)
    }

    /// Gives back their names to files that were deleted; how many there were.
    ///
    /// # Errors
    /// The kernel's, where they cannot be written.
    pub fn restore(self) -> std::io::Result<usize> {
        // What is deleted from now on, we delete.
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

/// Opens what is not open yet.
fn hold(folder: &Path, held: &Held) {
    let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let regular = entry.file_type().is_ok_and(|kind| kind.is_file());
        if regular && held.len() < MOST && !held.contains_key(&entry.file_name()) {
            let file = File::open(entry.path());
            held.extend(file.ok().map(|file| (entry.file_name(), file)));
        }
    }
}
