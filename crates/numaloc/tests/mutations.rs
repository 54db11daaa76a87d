//! Damaged files, read by the real program: no panic, no hang, no memory beyond bounds, a correct exit status.
//!
//! Every reader gets files that were good once. Damage is drawn from a seed, so that a run repeats:
//! `NUMALOC_MUTATIONS=5000 NUMALOC_SEED=1 cargo test -p numaloc --test mutations` (`make mutate`). Each file is read by
//! a process of its own with 5 s of processor time and 1 GiB of address space; what it did wrong is reported with the
//! reader, the number of the mutation, and a copy of the file.

#[path = "mutations/damage.rs"]
mod damage;
#[path = "mutations/frames.rs"]
mod frames;
#[path = "mutations/in_process.rs"]
mod in_process;
#[path = "../../perf/tests/support/mod.rs"]
mod perf_data;
#[path = "mutations/rank_file.rs"]
mod rank_file;
#[path = "mutations/seeds.rs"]
mod seeds;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use damage::Random;
use seeds::Reader;

/// Mutations of a run of the tests; `make mutate` asks for more.
const FEW: usize = 100;
/// Bounds of one reading process: processor time, address space, and patience with one that waits for nothing.
const BOUNDS: &str =
    "ulimit -t 5 && ulimit -v 1048576 && ulimit -c 0 && exec timeout -s KILL 120 \"$0\" \"$@\"";
/// Set for the process that reads one rank file, which no command does by itself.
const ONE_RANK_FILE: &str = "NUMALOC_TEST_RANK_FILE";
/// Set for the process that behaves as a broken reader would.
const MISBEHAVE: &str = "NUMALOC_TEST_MISBEHAVE";

fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn damaged_files_end_in_one_line_of_error_or_in_a_result() {
    let work = tempfile::tempdir().unwrap();
    let mut readers = seeds::all(work.path());
    readers.retain(|reader| !reader.commands.is_empty());
    check_good(&readers, &work.path().join("good"));
    let count = number("NUMALOC_MUTATIONS").unwrap_or(FEW);
    let seed = number("NUMALOC_SEED").unwrap_or(1);
    let next = AtomicUsize::new(0);
    let tally: Mutex<BTreeMap<&str, [usize; 2]>> = Mutex::default();
    let faults: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let folder = work.path().join(format!("worker-{worker}"));
            let (readers, next, tally, faults) = (&readers, &next, &tally, &faults);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    let reader = &readers[at % readers.len()];
                    match try_one(reader, &folder, seed, at) {
                        Ok(refused) => {
                            let mut tally = tally.lock().unwrap();
                            tally.entry(reader.name).or_default()[usize::from(refused)] += 1;
                        }
                        Err(fault) => faults.lock().unwrap().push(fault),
                    }
                }
            });
        }
    });
    let (tally, faults) = (tally.into_inner().unwrap(), faults.into_inner().unwrap());
    for (name, [read, refused]) in &tally {
        println!("{name:<16} {read:>5} read {refused:>5} refused");
    }
    println!("{count} mutations, seed {seed}: {} faults", faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // Damage that is never detected would prove nothing.
    let refused: usize = tally.values().map(|[_, refused]| refused).sum();
    assert!(
        refused * 4 > count,
        "only {refused} of {count} were refused"
    );
}

/// Every reader takes its files as long as they are good, or the damage would not be what is refused.
fn check_good(readers: &[Reader], folder: &Path) {
    for reader in readers {
        let _ = std::fs::remove_dir_all(folder);
        copy(&reader.good, &folder.join("in"));
        for arguments in &reader.commands {
            let output = run(folder, arguments);
            let words = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "{}, undamaged: numaloc {}: {}: {words}",
                reader.name,
                arguments.join(" "),
                output.status
            );
        }
    }
}

/// Damages a copy of the reader's files and has them read; whether they were refused, or what went wrong.
fn try_one(reader: &Reader, folder: &Path, seed: usize, at: usize) -> Result<bool, String> {
    let _ = std::fs::remove_dir_all(folder);
    copy(&reader.good, &folder.join("in"));
    let mut random = Random::new((seed as u64) << 32 | at as u64);
    let file = random.choice(&reader.files);
    let path = folder.join("in").join(file);
    let good = std::fs::read(&path).unwrap();
    let bad = seeds::damage_of(reader.name)(&good, &mut random);
    std::fs::write(&path, &bad).unwrap();
    let arguments = random.choice(&reader.commands);
    let output = run(folder, arguments);
    let fault = judge(&output, reader.sealed && bad != good);
    if let Some(what) = fault {
        let kept = std::env::temp_dir().join(format!("numaloc-mutation-{seed}-{at}"));
        let _ = std::fs::remove_dir_all(&kept);
        copy(&folder.join("in"), &kept);
        return Err(format!(
            "{} {seed}:{at}: {file}: {what}; numaloc {}; kept in {}; {}",
            reader.name,
            arguments.join(" "),
            kept.display(),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(output.status.code() != Some(0))
}

fn bounded(bounds: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", bounds]);
    command
}

fn run(folder: &Path, arguments: &[String]) -> Output {
    let mut command = bounded(BOUNDS);
    if let [only] = arguments
        && let Some(file) = only.strip_prefix("rank-file:")
    {
        command
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "a_rank_file_is_merged", "--nocapture"])
            .env(ONE_RANK_FILE, folder.join(file));
    } else {
        command
            .arg(assert_cmd::cargo::cargo_bin("numaloc"))
            .args(arguments);
    }
    command.current_dir(folder).output().expect("sh runs")
}

/// What is wrong with how the program ended; `refuse` if it had to find the damage.
fn judge(output: &Output, refuse: bool) -> Option<String> {
    let Some(status) = output.status.code() else {
        return Some(format!("ended by {}", output.status));
    };
    let words = String::from_utf8_lossy(&output.stderr);
    let errors = words
        .lines()
        .filter(|line| line.starts_with("error: "))
        .count();
    match status {
        _ if words.contains("a defect in numaloc") || words.contains("panicked") => {
            Some("a panic".to_owned())
        }
        0 if refuse => Some("read as if intact".to_owned()),
        0 if errors == 0 => None,
        1 | 2 | 125 if errors == 1 => None,
        _ => Some(format!("status {status} with {errors} lines of error")),
    }
}

/// Files that each reader reads in a run of the tests; `make fuzz` asks for a time instead.
const FEW_IN_PROCESS: u64 = 80;
/// Set for the process in which one reader is called: reader, files, inputs, seconds and seed, one a line.
const IN_PROCESS: &str = "NUMALOC_TEST_IN_PROCESS";
/// Bounds of such a process: address space of the reader and 256 MiB for the harness, the stack of a main thread.
const IN_PROCESS_BOUNDS: &str =
    "ulimit -v 1310720 && ulimit -c 0 && RUST_MIN_STACK=8388608 exec \"$0\" \"$@\"";

/// `NUMALOC_FUZZ_SECONDS=60 cargo test -p numaloc --test mutations readers_called` (`make fuzz`) is the long form.
#[test]
fn readers_called_in_process_withstand_committed_and_damaged_files() {
    let work = tempfile::tempdir().unwrap();
    let mut readers = seeds::all(work.path());
    for name in in_process::names() {
        assert!(readers.iter().any(|reader| reader.name == name), "{name}");
    }
    assert_eq!(readers.len(), in_process::names().count());
    if let Ok(only) = std::env::var("NUMALOC_FUZZ_READER") {
        readers.retain(|reader| reader.name == only);
    }
    let seconds = number("NUMALOC_FUZZ_SECONDS");
    let seed = number("NUMALOC_SEED").unwrap_or(1);
    let next = AtomicUsize::new(0);
    let faults: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(reader) = readers.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let inputs = match (seconds, reader.name) {
                        (Some(_), _) => u64::MAX,
                        // A process for each.
                        (None, "hwloc XML") => FEW_IN_PROCESS / 8,
                        (None, _) => FEW_IN_PROCESS,
                    };
                    let folder = work.path().join(format!("called {}", reader.name));
                    // However busy the machine is, the tests are about the inputs.
                    let seconds = seconds.unwrap_or(3600);
                    let found = call(reader.name, reader, &folder, inputs, seconds, seed);
                    let named = found
                        .iter()
                        .map(|fault| format!("{}: {fault}", reader.name));
                    faults.lock().unwrap().extend(named);
                }
            });
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Calls reader `name` with damaged files of `reader` in a process of its own; what went wrong.
fn call(
    name: &str,
    reader: &Reader,
    folder: &Path,
    inputs: u64,
    seconds: usize,
    seed: usize,
) -> Vec<String> {
    let order = [
        name,
        reader.good.to_str().unwrap(),
        folder.to_str().unwrap(),
        &reader.files.join("\t"),
        &inputs.to_string(),
        &seconds.to_string(),
        &seed.to_string(),
    ];
    let output = bounded(IN_PROCESS_BOUNDS)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_reader_is_called", "--nocapture"])
        .env(IN_PROCESS, order.join("\n"))
        .output()
        .expect("sh runs");
    let mut faults = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some(tally) = line.strip_prefix("tally: ") {
            println!("{name:<16} {tally}");
        } else if let Some(fault) = line.strip_prefix("fault: ") {
            faults.push(fault.to_owned());
        }
    }
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let kept = in_process::keep(&folder.join("in"));
        let kept = kept.display();
        faults.push(format!("{}: {words}; kept in {kept}", output.status));
    }
    faults
}

#[test]
fn a_broken_reader_called_in_process_is_noticed() {
    let work = tempfile::tempdir().unwrap();
    let good = work.path().join("good");
    std::fs::create_dir(&good).unwrap();
    std::fs::write(good.join("m.txt"), "1 2 3\n").unwrap();
    let reader = Reader {
        name: "broken",
        good,
        files: vec!["m.txt".to_owned()],
        commands: Vec::new(),
        sealed: false,
    };
    for (name, expected) in [
        ("broken: well", None),
        ("broken: panic", Some("as asked")),
        ("broken: spin", Some("took more than 5 s")),
        (
            "broken: hoard",
            Some("memory allocation of 2147483648 bytes"),
        ),
    ] {
        let faults = call(name, &reader, &work.path().join(name), 20, 3600, 1);
        match expected {
            None => assert!(faults.is_empty(), "{faults:?}"),
            // Each place once, however often it panics.
            Some(words) => {
                assert!(
                    faults.len() == 1 && faults[0].contains(words),
                    "{name}: {faults:?}"
                );
                let kept = faults[0]
                    .rsplit_once("kept in ")
                    .expect("the files are kept")
                    .1;
                assert!(Path::new(kept).join("m.txt").exists(), "{kept}");
                std::fs::remove_dir_all(kept).unwrap();
            }
        }
    }
}

/// Not a test by itself: the process in which one reader is called for the test above.
#[test]
fn a_reader_is_called() {
    let Ok(order) = std::env::var(IN_PROCESS) else {
        return;
    };
    let [reader, good, folder, files, inputs, seconds, seed] =
        order.split('\n').collect::<Vec<_>>().try_into().unwrap();
    numaloc_topology::isolate_xml(|| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("numaloc"));
        command.arg("read-hwloc-xml");
        command
    });
    let files: Vec<String> = files.split('\t').map(str::to_owned).collect();
    let found = in_process::run(&in_process::Order {
        reader,
        good: Path::new(good),
        files: &files,
        folder: Path::new(folder),
        seed: seed.parse().unwrap(),
        inputs: inputs.parse().unwrap(),
        time: std::time::Duration::from_secs(seconds.parse().unwrap()),
    });
    println!();
    println!("tally: {:>8} read {:>8} refused", found.read, found.refused);
    for fault in found.faults {
        println!("fault: {}", fault.replace('\n', " "));
    }
}

/// Inputs that `make mutate` once found to break a reader.
#[test]
fn what_once_broke_a_reader_is_read_or_refused_within_bounds() {
    let work = tempfile::tempdir().unwrap();
    let readers = seeds::all(work.path());
    let folder = work.path().join("again");
    let end_of = |name: &str, file: &str, good: &str, bad: &str| {
        let reader = readers.iter().find(|reader| reader.name == name).unwrap();
        let _ = std::fs::remove_dir_all(&folder);
        copy(&reader.good, &folder.join("in"));
        let file = folder.join("in").join(file);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(good), "{name}: {text}");
        std::fs::write(&file, text.replacen(good, bad, 1)).unwrap();
        let output = run(&folder, reader.commands.last().unwrap());
        assert_eq!(judge(&output, false), None, "{name}: {good} made {bad}");
        output.status.code()
    };
    // 65,537 tasks, of which hardly any communicate: growing half of them took quadratic time.
    assert_eq!(
        end_of("matrix edges", "m.edges", "2 3 9", "2 65536 9"),
        Some(0)
    );
    // A node that the machine of the profile does not have.
    assert_eq!(
        end_of("task profile", "tasks.csv", "step,1,1,", "step,1,2,"),
        Some(1)
    );
    assert_eq!(
        end_of("task profile", "blocks.csv", "4096,1", "4096,255"),
        Some(1)
    );
}

/// Not a test by itself: the process that merges one rank file for the test above.
#[test]
fn a_rank_file_is_merged() {
    let Some(file) = std::env::var_os(ONE_RANK_FILE) else {
        return;
    };
    let merged =
        numaloc_mpi::merge::merge(&[PathBuf::from(file)], &[], numaloc_mpi::Options::default());
    if let Err(error) = merged {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

/// Each rank of a world takes memory, whether it left a file or not.
#[test]
fn a_world_far_beyond_its_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("1.nlmpi");
    let merged = |ranks: u32| {
        std::fs::write(&file, rank_file::of_world(ranks)).unwrap();
        let files = [file.clone()];
        numaloc_mpi::merge::merge(&files, &[], numaloc_mpi::Options::default())
            .map(|merged| merged.profile.threads().len())
            .map_err(|error| error.to_string())
    };
    assert_eq!(merged(4), Ok(4));
    let error = merged(1 << 23).unwrap_err();
    assert!(
        error.contains("rank 1 of 8388608, expected at most 1048576 ranks (rank files: 1)"),
        "{error}"
    );
}

#[test]
fn a_broken_reader_is_noticed() {
    let end_of = |how: &str| {
        let output = bounded(BOUNDS)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "a_broken_reader", "--nocapture"])
            .env(MISBEHAVE, how)
            .output()
            .expect("sh runs");
        judge(&output, false)
    };
    assert_eq!(end_of("well"), None);
    assert_eq!(end_of("error"), None);
    for (how, expected) in [
        ("spin", "signal: 9 (SIGKILL)"),
        ("hoard", "signal: 6 (SIGABRT)"),
        ("panic", "a panic"),
        ("crash", "signal: 8 (SIGFPE)"),
        ("silent", "status 1 with 0 lines of error"),
        ("twofold", "status 1 with 2 lines of error"),
        ("unknown", "status 77 with 1 lines of error"),
        ("untold", "status 0 with 1 lines of error"),
    ] {
        let fault = end_of(how).unwrap_or_else(|| panic!("{how}: not noticed"));
        assert!(fault.contains(expected), "{how}: {fault}");
    }
}

/// Not a test by itself: the process that misbehaves for the test above.
#[test]
fn a_broken_reader() {
    let Ok(how) = std::env::var(MISBEHAVE) else {
        return;
    };
    let end = |lines: usize, status: i32| -> ! {
        eprint!("{}", "error: broken\n".repeat(lines));
        std::process::exit(status)
    };
    match how.as_str() {
        "well" => end(0, 0),
        "error" => end(1, 1),
        "spin" => loop {
            std::hint::spin_loop();
        },
        "hoard" => drop(std::hint::black_box(vec![1_u8; 2 << 30])),
        "panic" => panic!("as asked"),
        "crash" => drop(
            Command::new("kill")
                .args(["-FPE", &std::process::id().to_string()])
                .status(),
        ),
        "silent" => end(0, 1),
        "twofold" => end(2, 1),
        "unknown" => end(1, 77),
        _ => end(1, 0),
    }
}

/// Copies a folder with all in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}
