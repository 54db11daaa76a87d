//! Guests kept as they are before they get their job. A run of a guest that was booted once continues it, which takes a
//! second instead of a boot.
//!
//! A kept guest is what QEMU's migration writes to a file: the state of CPUs, devices and memory. It fits one QEMU, one
//! kernel, one initial file system and one set of devices: all of these are its key, which is stored with it. At most
//! [`MOST`] are kept, some 100 MB each; the one that was not used for the longest time makes room. What cannot be
//! kept or continued is booted, and a state that does not continue is removed.
//!
//! Only if [`WANTED`] is set: of some hundred guests that continued, one did not end its program, when the agent still
//! switched NUMA balancing in the first second after it continued, while all code was translated (`qemu.rs`,
//! `KERNEL_ARGUMENTS`). That this was the cause is likely and not certain.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::image;
use crate::kernel::{Kernel, cache_folder};
use crate::qemu;

/// Environment variable without which guests are neither kept nor continued.
const WANTED: &str = "NUMALOC_LAB_KEEP";
/// Most guests that are kept.
const MOST: usize = 6;
/// Name of a state in the folder of a run, and in that of a guest.
const STATE: &str = "state";
/// Name of QEMU's control socket in the folder of a run.
const CONTROL: &str = "qmp";
/// Longest time for an answer of QEMU, and for writing the state.
const ANSWER: Duration = Duration::from_secs(60);

/// The place of a guest among those that are kept.
pub(crate) struct Kept {
    /// Folder with the state and its key.
    folder: PathBuf,
    key: String,
}

impl Kept {
    /// The place of guests with this kernel and these of QEMU's arguments; `None` if guests are not to be kept, or
    /// there is no cache folder.
    pub fn of(program: &Path, kernel: &Kernel, arguments: &[String]) -> Option<Self> {
        std::env::var_os(WANTED).filter(|value| !value.is_empty())?;
        let cache = cache_folder().ok()?.join("guests");
        Some(Self::within(&cache, key(program, kernel, arguments)?))
    }

    fn within(cache: &Path, key: String) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Self {
            folder: cache.join(format!("{:016x}", hasher.finish())),
            key,
        }
    }

    /// Offers the state, if there is one, to a QEMU that runs in `folder`. Returns its arguments.
    pub fn offer(&self, folder: &Path) -> Option<[String; 2]> {
        let known = fs::read_to_string(self.folder.join("key")).ok()?;
        let state = self.folder.join(STATE);
        if known != self.key || !state.is_file() {
            return None;
        }
        // Its time is that of its last use. Another user's may not be changed, and is used.
        let _ = File::open(&state).and_then(|file| file.set_modified(SystemTime::now()));
        symlink(std::path::absolute(state).ok()?, folder.join(STATE)).ok()?;
        let read = format!("exec:cat \"${}\"", qemu::STATE);
        Some(["-incoming".to_owned(), read])
    }

    /// Arguments of a QEMU in `folder` whose guest is to be kept.
    pub fn control(folder: &Path) -> [String; 2] {
        let socket = folder.join(CONTROL).display().to_string();
        let socket = socket.replace(',', ",,");
        [
            "-qmp".to_owned(),
            format!("unix:{socket},server=on,wait=off"),
        ]
    }

    /// Keeps the guest of the QEMU that runs in `folder`, and lets it go on. A guest that cannot be kept goes on, too.
    ///
    /// # Errors
    /// If QEMU does not answer: then it is not known whether the guest goes on.
    pub fn keep(&self, folder: &Path) -> io::Result<()> {
        let mut control = Control::connect(&folder.join(CONTROL))?;
        control.ask("qmp_capabilities", Value::Null)?;
        let to = serde_json::json!({ "uri": format!("exec:cat > \"${}\"", qemu::STATE) });
        // As fast as the file is written; not stopped before: a state of a guest that is stopped continues stopped.
        let fast = serde_json::json!({ "max-bandwidth": 1_u64 << 40 });
        control.ask("migrate-set-parameters", fast)?;
        control.ask("migrate", to)?;
        let began = std::time::Instant::now();
        let whole = loop {
            let status = control.ask("query-migrate", Value::Null)?;
            match status["status"].as_str() {
                Some("completed") => break true,
                Some("failed" | "cancelled") => break false,
                _ if began.elapsed() > ANSWER => return Err(io::ErrorKind::TimedOut.into()),
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        control.ask("cont", Value::Null)?;
        let state = folder.join(STATE);
        if whole && self.store(&state).is_err() {
            // No room: the next run boots again.
            let _ = fs::remove_dir_all(&self.folder);
        }
        let _ = fs::remove_file(state);
        Ok(())
    }

    /// Moves a state to its place; the key, without which it is not there, comes last.
    fn store(&self, state: &Path) -> io::Result<()> {
        let cache = self.folder.parent().expect("a folder below the cache");
        fs::create_dir_all(cache)?;
        let new = tempfile::Builder::new().prefix(".new-").tempdir_in(cache)?;
        let to = new.path().join(STATE);
        fs::rename(state, &to).or_else(|_| fs::copy(state, &to).map(drop))?;
        fs::write(new.path().join("key"), &self.key)?;
        let _ = fs::remove_dir_all(&self.folder);
        // Whoever was faster keeps an equal one.
        fs::rename(new.path(), &self.folder)?;
        let _ = new.keep();
        make_room(cache)
    }

    /// Removes a state that does not continue.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Everything that a state depends on. Files are those that they are now, by size and time.
fn key(program: &Path, kernel: &Kernel, arguments: &[String]) -> Option<String> {
    let mut hasher = DefaultHasher::new();
    image::parts().hash(&mut hasher);
    let mut key = format!("{:016x}\n{}\n", hasher.finish(), arguments.join(" "));
    let files = [program, &kernel.image, Path::new(crate::kernel::BUSYBOX)];
    let modules = kernel.modules.iter().map(PathBuf::as_path);
    for path in files.into_iter().chain(modules) {
        let about = fs::metadata(path).ok()?;
        let time = about.modified().ok()?;
        key += &format!("{} {} {time:?}\n", path.display(), about.len());
    }
    Some(key)
}

/// Removes those that were not used for the longest time.
fn make_room(cache: &Path) -> io::Result<()> {
    let mut found = Vec::new();
    for entry in fs::read_dir(cache)? {
        let path = entry?.path();
        if let Ok(used) = fs::metadata(path.join(STATE)).and_then(|about| about.modified()) {
            found.push((used, path));
        }
    }
    found.sort();
    let many = found.len().saturating_sub(MOST);
    for (_, path) in &found[..many] {
        fs::remove_dir_all(path)?;
    }
    Ok(())
}

/// QEMU's control socket: one JSON object in each line.
struct Control {
    read: BufReader<UnixStream>,
    write: UnixStream,
}

impl Control {
    fn connect(path: &Path) -> io::Result<Self> {
        let write = UnixStream::connect(path)?;
        write.set_read_timeout(Some(ANSWER))?;
        let read = BufReader::new(write.try_clone()?);
        Ok(Self { read, write })
    }

    /// What a command returns. Its greeting and events are skipped.
    fn ask(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        let mut asked = serde_json::json!({ "execute": command });
        if !arguments.is_null() {
            asked["arguments"] = arguments;
        }
        writeln!(self.write, "{asked}")?;
        loop {
            let mut line = String::new();
            if self.read.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut answer: Value = serde_json::from_str(&line)?;
            if let Some(found) = answer.get_mut("return") {
                return Ok(found.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(io::Error::other(format!("{command}: {error}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(cache: &Path, key: &str) -> Kept {
        Kept::within(cache, key.to_owned())
    }

    fn store(cache: &Path, key: &str) {
        let state = cache.with_extension("written");
        fs::write(&state, "a guest").unwrap();
        kept(cache, key).store(&state).unwrap();
    }

    #[test]
    fn a_guest_is_offered_to_those_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, run) = (folder.path().join("guests"), folder.path());
        assert_eq!(kept(&cache, "two nodes").offer(run), None);
        store(&cache, "two nodes");
        assert_eq!(kept(&cache, "four nodes").offer(run), None);
        let offered = kept(&cache, "two nodes").offer(run).unwrap();
        assert_eq!(offered, ["-incoming", "exec:cat \"$NUMALOC_LAB_STATE\""]);
        assert_eq!(fs::read_to_string(run.join("state")).unwrap(), "a guest");
        // A key that differs although its hash does not.
        let same = kept(&cache, "two nodes");
        fs::write(same.folder.join("key"), "another").unwrap();
        fs::remove_file(run.join("state")).unwrap();
        assert_eq!(same.offer(run), None);
    }

    #[test]
    fn the_one_that_was_not_used_longest_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("guests");
        let name = |at: usize| format!("machine {at}");
        for at in 0..MOST {
            store(&cache, &name(at));
            let state = File::open(kept(&cache, &name(at)).folder.join(STATE)).unwrap();
            let then = SystemTime::UNIX_EPOCH + Duration::from_secs(at as u64);
            state.set_modified(then).unwrap();
        }
        // The first is used again.
        assert!(kept(&cache, &name(0)).offer(folder.path()).is_some());
        store(&cache, &name(MOST));
        let there = |at: usize| kept(&cache, &name(at)).folder.is_dir();
        assert!(there(0) && !there(1) && (2..=MOST).all(there));
    }

    #[test]
    fn what_cannot_be_stored_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("guests");
        let nothing = folder.path().join("nothing");
        assert!(kept(&cache, "any").store(&nothing).is_err());
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
    }

    #[test]
    fn a_guest_goes_on_whether_its_state_could_be_written_or_not() {
        for status in ["completed", "failed"] {
            let folder = tempfile::tempdir().unwrap();
            let listener =
                std::os::unix::net::UnixListener::bind(folder.path().join(CONTROL)).unwrap();
            let answers = std::thread::spawn(move || {
                let (stream, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let mut to = stream;
                writeln!(to, r#"{{"QMP": {{}}}}"#).unwrap();
                let mut asked = Vec::new();
                while let Some(Ok(line)) = lines.next() {
                    let line: Value = serde_json::from_str(&line).unwrap();
                    let command = line["execute"].as_str().unwrap().to_owned();
                    writeln!(to, r#"{{"event": "STOP"}}"#).unwrap();
                    let found = match &*command {
                        "query-migrate" => serde_json::json!({ "status": status }),
                        _ => serde_json::json!({}),
                    };
                    writeln!(to, "{}", serde_json::json!({ "return": found })).unwrap();
                    asked.push(command);
                }
                asked
            });
            let cache = folder.path().join("guests");
            fs::write(folder.path().join(STATE), "a guest").unwrap();
            kept(&cache, "any").keep(folder.path()).unwrap();
            assert_eq!(answers.join().unwrap().last().unwrap(), "cont");
            let there = kept(&cache, "any").offer(folder.path()).is_some();
            assert_eq!(there, status == "completed");
        }
    }
}
