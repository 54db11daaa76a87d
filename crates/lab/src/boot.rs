//! Boots the machine, runs the job, and collects the reports of guest and plugin.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use numaloc_launch::Stop;

use crate::counts::Counts;
use crate::disk::Disk;
use crate::error::LabError;
use crate::image;
use crate::job::Job;
use crate::kept::Kept;
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::protocol::{Ended, Transcript};
use crate::qemu::{self, PORTS};
use crate::watch::Watch;

/// Number of boot attempts: on a busy host one boot in some dozens hangs or panics in the emulated kernel, long before
/// the program starts.
const BOOTS: u32 = 3;
/// What the guest prints when it has only its job to wait for (`guest/init`).
const WAITS: &str = "numaloc-lab: waits for its job";
const POLL: Duration = Duration::from_millis(10);

/// Where the program's output is written as it arrives.
pub struct Sinks {
    /// Its standard output.
    pub out: Box<dyn Write + Send>,
    /// Its standard error.
    pub err: Box<dyn Write + Send>,
}

/// A QEMU process that is killed when dropped.
struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boots `machine` with `kernel`, runs `job`, and returns what was observed. `plugin` is the path of the counting
/// plugin's shared object.
///
/// SIGINT, SIGTERM and SIGHUP end the virtual machine and return [`LabError::Interrupted`].
///
/// # Errors
/// [`LabError`]; in particular `Guest` if the machine does not come up, `Counts` if calibration was
/// ambiguous, `NotStarted`, `Timeout`.
pub fn run(
    machine: &Machine,
    kernel: &Kernel,
    plugin: &Path,
    job: &Job,
    sinks: Sinks,
) -> Result<Outcome, LabError> {
    let sinks = [sinks.out, sinks.err].map(|sink| Arc::new(Mutex::new(sink)));
    let qemu = qemu::find()?;
    let seen = qemu::guest(machine, kernel, job, Path::new(""));
    let mut kept = Kept::of(&qemu, kernel, &seen);
    let order = Order {
        machine,
        kernel,
        plugin,
        job,
        qemu,
    };
    // If something goes wrong with a guest that continues or is to be kept, the next one is only booted.
    boot_again(|| boot(&order, kept.take().as_ref(), &sinks))
}

/// What is run, and where.
struct Order<'a> {
    machine: &'a Machine,
    kernel: &'a Kernel,
    plugin: &'a Path,
    job: &'a Job,
    qemu: PathBuf,
}

/// Boots until the guest is ready to start the program, at most [`BOOTS`] times. The program has not executed
/// anything until then, so a second boot is indistinguishable from the first.
fn boot_again<T>(mut boot: impl FnMut() -> Result<T, LabError>) -> Result<T, LabError> {
    let mut boots = 1;
    loop {
        match boot() {
            Err(LabError::NotReady { .. } | LabError::Died { .. }) if boots < BOOTS => boots += 1,
            other => return other,
        }
    }
}

type Sink = Arc<Mutex<Box<dyn Write + Send>>>;

/// One attempt of [`run`]: continues the guest that is kept, or boots one and keeps it.
fn boot(order: &Order, kept: Option<&Kept>, sinks: &[Sink; 2]) -> Result<Outcome, LabError> {
    let Order { machine, job, .. } = *order;
    let folder = tempfile::Builder::new()
        .prefix("numaloc-lab-")
        .tempdir()
        .map_err(|error| LabError::file("create a folder in", &std::env::temp_dir(), error))?;
    let path = folder.path();
    let at = |name: &str| path.join(name);
    image::initial(&at("initrd"), order.kernel)?;
    let disk = Disk::make(&at("job"), machine, job, kept.is_some())?;
    let mut arguments = qemu::guest(machine, order.kernel, job, path);
    arguments.extend(qemu::counting(machine, order.plugin, job, path));
    let offered = kept.and_then(|kept| kept.offer(path));
    let (continued, new) = (
        kept.filter(|_| offered.is_some()),
        kept.filter(|_| offered.is_none()),
    );
    arguments.extend(offered.into_iter().flatten());
    if new.is_some() {
        disk.hide(true)?;
        arguments.extend(Kept::control(path));
    }
    let outcome = attempt(order, &arguments, path, sinks, |qemu, stop| {
        let Some(new) = new else { return Ok(()) };
        until_it_waits(qemu, stop, path)?;
        // Who does not answer may have stopped the guest.
        new.keep(path).map_err(|error| LabError::Died {
            why: format!("it could not be kept: {error}"),
            console: String::new(),
        })?;
        disk.hide(false)
    });
    let Some(continued) = continued else {
        return outcome;
    };
    outcome.map_err(|error| match error {
        LabError::NotReady { .. } | LabError::Died { .. } => {
            continued.remove();
            error
        }
        LabError::Guest { why, console } if !at("counts").exists() && console.is_empty() => {
            continued.remove();
            LabError::Died { why, console }
        }
        error => error,
    })
}

/// Starts QEMU, lets `prepare` have it once it is connected, and waits for its end.
fn attempt(
    order: &Order,
    arguments: &[String],
    folder: &Path,
    sinks: &[Sink; 2],
    prepare: impl FnOnce(&mut Child, &Stop) -> Result<(), LabError>,
) -> Result<Outcome, LabError> {
    let Order { machine, job, .. } = *order;
    let at = |name: &str| folder.join(name);
    let stop =
        Stop::new().map_err(|error| LabError::Machine(format!("no signal handler: {error}")))?;
    let ports = Ports::listen(folder)?;
    let mut qemu = Qemu(qemu::start(&order.qemu, arguments, folder)?);
    let transcript = Arc::new(Mutex::new(Transcript::default()));
    let unwritten = Arc::new(OnceLock::new());
    let pumps = ports.connect(&mut qemu.0, &stop, sinks, &transcript, &unwritten);
    let ended = pumps.and_then(|pumps| {
        prepare(&mut qemu.0, &stop)?;
        let ended = wait(&mut qemu.0, &stop, &transcript, folder, job.timeout);
        if ended.is_ok() {
            // QEMU has closed its ends; data in transit still arrives.
            for pump in pumps {
                let _ = pump.join();
            }
        }
        ended
    });
    let console = || std::fs::read_to_string(at("console")).unwrap_or_default();
    if let Err(LabError::Guest { why, .. }) = ended {
        let words = std::fs::read_to_string(at("qemu.log")).unwrap_or_default();
        let why = match words.lines().last() {
            Some(last) => format!("{why}; QEMU says: {last}"),
            None => why,
        };
        return Err(LabError::Guest {
            why,
            console: console(),
        });
    }
    if let Err(LabError::NotReady { seconds, .. }) = ended {
        return Err(LabError::NotReady {
            seconds,
            console: console(),
        });
    }
    ended?;
    let guest = transcript.lock().expect("no panic holds it").clone();
    let text = std::fs::read_to_string(at("counts"));
    let mut outcome = conclude(machine, job, guest, text.ok().as_deref(), &console())?;
    outcome.unwritten = unwritten.get().map(ToString::to_string);
    Ok(outcome)
}

/// Waits until a guest has only its job to wait for.
fn until_it_waits(qemu: &mut Child, stop: &Stop, folder: &Path) -> Result<(), LabError> {
    let mut watch = Watch::new();
    loop {
        check(stop)?;
        let console = std::fs::read_to_string(folder.join("console")).unwrap_or_default();
        if console.contains(WAITS) {
            return Ok(());
        }
        if let Ok(Some(_)) = qemu.try_wait() {
            let why = "it ended before it got its job".to_owned();
            return Err(LabError::Died { why, console });
        }
        if watch.hangs(qemu, || (console.len() as u64, 0)) {
            let seconds = watch.seconds();
            return Err(LabError::NotReady { seconds, console });
        }
        std::thread::sleep(POLL);
    }
}

/// Makes an outcome of both reports, or determines what went wrong.
fn conclude(
    machine: &Machine,
    job: &Job,
    guest: Transcript,
    counts: Option<&str>,
    console: &str,
) -> Result<Outcome, LabError> {
    let guest_error = |why: String| LabError::Guest {
        why,
        console: console.to_owned(),
    };
    if let Some(why) = &guest.failed {
        return Err(guest_error(format!("its agent could not {why}")));
    }
    if let Some((errno, why)) = &guest.not_started {
        return Err(LabError::NotStarted {
            program: job.program.display().to_string(),
            why: why.clone(),
            errno: *errno,
        });
    }
    let counts = counts.map(|text| Counts::parse(text, machine.cpu_count(), machine.cpus.len()));
    let Some(counts) = counts else {
        if guest.ended.is_some() {
            return Err(LabError::Counts("the plugin wrote none".into()));
        }
        let died = |why: &str| LabError::Died {
            why: why.to_owned(),
            console: console.to_owned(),
        };
        return Err(match (guest.ready, guest.calibrated) {
            (false, _) => died("it ended before its agent reported"),
            (true, false) => died("it ended during calibration"),
            (true, true) => guest_error("it ended before the program did".to_owned()),
        });
    };
    // The plugin writes whole counts when the program has ended: what the agent could not report any more, because the
    // guest ended first, does not change them.
    let counts = counts?;
    let ended = guest.ended.unwrap_or(Ended::Unreported);
    Ok(Outcome::new(machine, ended, guest, counts))
}

/// An error if a signal asked this process to end.
fn check(stop: &Stop) -> Result<(), LabError> {
    stop.signal()
        .map_or(Ok(()), |signal| Err(LabError::Interrupted { signal }))
}

/// The sockets to which QEMU connects the guest's ports.
struct Ports(Vec<UnixListener>);

impl Ports {
    fn listen(folder: &Path) -> Result<Self, LabError> {
        let listen = |name: &&str| {
            let path: PathBuf = folder.join(name);
            let listener = UnixListener::bind(&path)
                .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
            listener.map_err(|error| LabError::file("listen on", &path, error))
        };
        Ok(Self(PORTS.iter().map(listen).collect::<Result<_, _>>()?))
    }

    /// Waits until QEMU has connected all three and starts a thread for each.
    fn connect(
        self,
        qemu: &mut Child,
        stop: &Stop,
        sinks: &[Sink; 2],
        transcript: &Arc<Mutex<Transcript>>,
        unwritten: &Arc<OnceLock<io::Error>>,
    ) -> Result<Vec<JoinHandle<()>>, LabError> {
        let mut streams: Vec<UnixStream> = Vec::new();
        for listener in &self.0 {
            loop {
                if let Ok((stream, _)) = listener.accept() {
                    stream
                        .set_nonblocking(false)
                        .map_err(|error| LabError::file("read", Path::new("a port"), error))?;
                    streams.push(stream);
                    break;
                }
                check(stop)?;
                if let Ok(Some(status)) = qemu.try_wait() {
                    return Err(LabError::Guest {
                        why: format!("QEMU did not start ({status})"),
                        console: String::new(),
                    });
                }
                std::thread::sleep(POLL);
            }
        }
        let [control, out, err] = <[UnixStream; 3]>::try_from(streams).expect("three ports");
        let transcript = Arc::clone(transcript);
        let listen = move || {
            let mut lines = BufReader::new(control);
            let mut line = Vec::new();
            while lines
                .read_until(b'\n', &mut line)
                .is_ok_and(|count| count > 0)
            {
                let text = String::from_utf8_lossy(&line);
                transcript
                    .lock()
                    .expect("no panic holds it")
                    .parse_line(text.trim_end_matches('\n'));
                line.clear();
            }
        };
        Ok(vec![
            std::thread::spawn(listen),
            pump(out, &sinks[0], Some(Arc::clone(unwritten))),
            // If standard error cannot be written, there is no way to report that.
            pump(err, &sinks[1], None),
        ])
    }
}

/// Copies bytes as they arrive. A sink that fails does not end the run: the first failure goes to
/// `unwritten`, and the rest is read and dropped, so that the output is a prefix. A closed pipe is no failure: its
/// reader did not want more.
fn pump(
    mut from: impl Read + Send + 'static,
    to: &Sink,
    unwritten: Option<Arc<OnceLock<io::Error>>>,
) -> JoinHandle<()> {
    let to = Arc::clone(to);
    std::thread::spawn(move || {
        let mut buffer = [0; 8192];
        let mut failed = false;
        while let Ok(count) = from.read(&mut buffer) {
            if count == 0 {
                return;
            }
            if failed {
                continue;
            }
            let mut to = to.lock().expect("no panic holds it");
            if let Err(error) = to.write_all(&buffer[..count]).and_then(|()| to.flush()) {
                failed = true;
                if error.kind() != io::ErrorKind::BrokenPipe
                    && let Some(unwritten) = &unwritten
                {
                    let _ = unwritten.set(error);
                }
            }
        }
    })
}

/// Waits for QEMU to end, within the time limits. Its files are in `folder`.
fn wait(
    qemu: &mut Child,
    stop: &Stop,
    transcript: &Mutex<Transcript>,
    folder: &Path,
    timeout: Duration,
) -> Result<(), LabError> {
    let (console, counts) = (folder.join("console"), folder.join("counts"));
    let mut watch = Watch::new();
    let mut running: Option<Instant> = None;
    loop {
        check(stop)?;
        if let Ok(Some(_)) = qemu.try_wait() {
            return Ok(());
        }
        let (calibrated, done, lines) = {
            let received = transcript.lock().expect("no panic holds it");
            (
                received.calibrated,
                received.ended.is_some() || received.failed.is_some(),
                received.lines,
            )
        };
        let printed = || std::fs::metadata(&console).map_or(0, |about| about.len());
        match running {
            None if calibrated => running = Some(Instant::now()),
            None if watch.hangs(qemu, || (printed(), lines)) => {
                return Err(LabError::NotReady {
                    seconds: watch.seconds(),
                    console: String::new(),
                });
            }
            Some(since) if !done && since.elapsed() > timeout => {
                return Err(LabError::Timeout {
                    seconds: timeout.as_secs(),
                });
            }
            _ => {}
        }
        // A counts file before the program's end reports an error of the plugin, so waiting is pointless.
        if !done
            && counts.is_file()
            && std::fs::read_to_string(&counts).is_ok_and(|text| text.contains("\nerror "))
        {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sink that accepts a number of bytes and then fails.
    struct Full(usize, io::ErrorKind, Arc<Mutex<Vec<u8>>>);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.0);
            if count == 0 {
                return Err(self.1.into());
            }
            self.0 -= count;
            self.2.lock().unwrap().extend(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn output_that_cannot_be_written_is_drained_and_reported_and_a_closed_pipe_is_no_failure() {
        let pumped = |kind| {
            let taken = Arc::new(Mutex::new(Vec::new()));
            let sink: Box<dyn Write + Send> = Box::new(Full(10_000, kind, Arc::clone(&taken)));
            let unwritten = Arc::new(OnceLock::new());
            let (mut guest, port) = UnixStream::pair().unwrap();
            let pump = pump(
                port,
                &Arc::new(Mutex::new(sink)),
                Some(Arc::clone(&unwritten)),
            );
            // More than the socket's buffer holds: the write returns only if everything is read.
            guest.write_all(&[7; 1 << 20]).unwrap();
            drop(guest);
            pump.join().unwrap();
            assert_eq!(*taken.lock().unwrap(), [7; 10_000]);
            unwritten.get().map(io::Error::kind)
        };
        let full = io::ErrorKind::StorageFull;
        assert_eq!(pumped(full), Some(full));
        assert_eq!(pumped(io::ErrorKind::BrokenPipe), None);
    }

    #[test]
    fn a_guest_that_died_before_the_program_is_booted_again_and_a_later_death_is_final() {
        let died = || LabError::Died {
            why: "it ended before its agent reported".to_owned(),
            console: "Kernel panic - not syncing".to_owned(),
        };
        let mut boots = 0;
        let outcome = boot_again(|| {
            boots += 1;
            if boots < BOOTS {
                Err(died())
            } else {
                Ok(boots)
            }
        });
        assert_eq!(outcome.unwrap(), BOOTS);
        let mut boots = 0;
        let outcome: Result<(), _> = boot_again(|| {
            boots += 1;
            Err(died())
        });
        let error = outcome.unwrap_err().to_string();
        assert!(
            boots == BOOTS && error.contains("Kernel panic"),
            "{boots}: {error}"
        );
        let mut boots = 0;
        let outcome: Result<(), _> = boot_again(|| {
            boots += 1;
            Err(LabError::Counts("no".to_owned()))
        });
        assert!(outcome.is_err() && boots == 1);
    }

    #[test]
    fn the_guests_progress_shows_whether_the_program_may_have_run() {
        let machine = Machine::even(1, 1, 1 << 29, None).unwrap();
        let job = Job::new("/bin/true", &[]);
        let ended = |ready, calibrated| {
            let guest = Transcript {
                ready,
                calibrated,
                ..Transcript::default()
            };
            conclude(&machine, &job, guest, None, "").unwrap_err()
        };
        for (ready, calibrated) in [(false, false), (true, false)] {
            let error = ended(ready, calibrated);
            assert!(matches!(error, LabError::Died { .. }), "{error}");
        }
        let error = ended(true, true);
        assert!(matches!(error, LabError::Guest { .. }), "{error}");
    }

    #[test]
    fn counts_of_a_program_that_has_ended_are_kept_if_the_guest_ends_before_its_report() {
        let machine = Machine::even(1, 1, 1 << 29, None).unwrap();
        let job = Job::new("/bin/true", &[]);
        let counts = "numaloc-lab-counts 1\nlayout flat\nseconds 1.5\nunknown 0\nloads 0 7\nend\n";
        let concluded = |ended, counts: &str| {
            let guest = Transcript {
                ready: true,
                calibrated: true,
                ended,
                ..Transcript::default()
            };
            conclude(&machine, &job, guest, Some(counts), "")
        };
        for (ended, status) in [(Some(Ended::Exited(3)), 3), (None, 0)] {
            let outcome = concluded(ended, counts).unwrap();
            assert_eq!(
                (outcome.ended.status(), outcome.all_accesses.total()),
                (status, 7)
            );
        }
        // Counts that are not whole, or an error of the plugin.
        for bad in [
            &counts[..counts.len() - 4],
            "numaloc-lab-counts 1\nerror no room\n",
        ] {
            let error = concluded(None, bad).unwrap_err();
            assert!(matches!(error, LabError::Counts(_)), "{error}");
        }
    }
}
