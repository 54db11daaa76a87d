//! Every reader as a function called in this process, which reads many more files a second than a command started for
//! each.
//!
//! One process for each reader, with the address space that a reader may take and room for the harness. A panic is
//! caught and reported with its place, each place once; a reader that takes too much processor time or memory ends the
//! process, and the file that it was reading is the one that lies in the folder.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use numaloc_analysis::assignment::NodeAssignment;
use numaloc_analysis::characterise::{Setting, characterise};
use numaloc_formats::access_trace::AccessTrace;
use numaloc_formats::matrix::{MatrixFormat, looks_reversed, read_matrix};
use numaloc_formats::{numalize_pages, plan, profile};
use numaloc_model::trace::Action;
use numaloc_report::heatmap::Style;
use numaloc_report::{html, text};
use numaloc_topology::{Topology, hostlist, resolve};

use crate::damage::Random;
use crate::seeds;

/// Processor time that one file may take.
const MOST_CPU: Duration = Duration::from_secs(5);
/// Time that one file may take, for a reader that waits for something.
const MOST_TIME: Duration = Duration::from_secs(120);
/// Faults of one reader after which nothing more is learned.
const MOST_FAULTS: usize = 10;

type Read = fn(&Path) -> Result<(), String>;

/// The readers, by the names of [`seeds::all`]; each is given the folder of its files.
const READERS: [(&str, Read); 22] = [
    ("profile, sealed", only_profile),
    ("profile", whole_profile),
    ("profile, traced", whole_profile),
    ("access trace", trace),
    ("plan", plan_json),
    ("machine file", machine_file),
    ("cluster file", machine_file),
    ("host file", host_file),
    ("host list", host_list),
    ("switches", switches),
    ("hwloc XML", xml),
    ("matrix csv", matrix),
    ("matrix mtx", matrix),
    ("matrix edges", matrix),
    ("matrix npy", matrix),
    ("page table", page_table),
    ("perf.data", perf_data),
    ("rank file", rank_file),
    ("message dump", message_dump),
    ("journal", journal),
    ("task profile", task_profile),
    ("task plan", task_plan),
];

/// Readers that behave as broken ones would, for the test of what notices them.
const BROKEN: [(&str, Read); 4] = [
    ("broken: well", |_| Ok(())),
    ("broken: panic", |_| panic!("as asked")),
    ("broken: spin", |_| {
        loop {
            std::hint::spin_loop();
        }
    }),
    ("broken: hoard", |_| {
        drop(std::hint::black_box(vec![1_u8; 2 << 30]));
        Ok(())
    }),
];

fn said(error: impl std::fmt::Display) -> String {
    let words = error.to_string();
    assert!(!words.is_empty(), "an error without words");
    words
}

/// The folder or file in `folder` that ends like this.
fn ending(folder: &Path, end: &str) -> PathBuf {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().ends_with(end))
        .unwrap_or_else(|| panic!("{} has nothing that ends in {end}", folder.display()))
}

fn content(folder: &Path) -> Result<String, String> {
    std::fs::read_to_string(ending(folder, ".txt")).map_err(said)
}

fn only_profile(folder: &Path) -> Result<(), String> {
    profile::read(&ending(folder, ".numaloc"))
        .map(drop)
        .map_err(said)
}

/// Reads a profile, and what it holds is characterised, shown and exported.
fn whole_profile(folder: &Path) -> Result<(), String> {
    let profile = profile::read(&ending(folder, ".numaloc")).map_err(said)?;
    let setting = Setting {
        layer: None,
        assignment: NodeAssignment::blocks(profile.threads().len(), 2),
        cache_bytes: None,
        private_cache_bytes: 256 << 10,
        segments: numaloc_formats::segments::built_in(),
    };
    let found = characterise(&profile, &setting).map_err(said)?;
    let detail = text::Detail {
        threads: 16,
        columns: 80,
    };
    let style = Style {
        unicode: true,
        colour: true,
    };
    let page = text::Page {
        profile: &profile,
        found: &found,
        assumed: "two nodes",
        next: &[],
    };
    let _ = text::page(page, text::Depth::All, detail, style);
    let _ = numalize_pages::to_csv(&profile);
    let _ = html::page(&html::Report {
        profile: &profile,
        found: &found,
        assumed: "two nodes",
        machine: None,
        plans: &[],
        policies: &[],
        compared: &[],
        simulated: &[],
        next: &[],
        title: "a title",
        written: "today",
    });
    Ok(())
}

fn trace(folder: &Path) -> Result<(), String> {
    let files = profile::traces::files(&ending(folder, ".numaloc")).map_err(said)?;
    for (image, file) in files.iter().enumerate() {
        let trace = AccessTrace::open(file, image as u64).map_err(said)?;
        let _ = trace.tally();
        for stream in 0..trace.streams.len() {
            for event in trace.events(stream) {
                if matches!(event.map_err(said)?.action, Action::End) {
                    break;
                }
            }
        }
    }
    Ok(())
}

fn plan_json(folder: &Path) -> Result<(), String> {
    let read = plan::read(&folder.join("plan.json")).map_err(said)?;
    // What was read is written as something that can be read.
    let again = folder.join("again.json");
    std::fs::write(&again, plan::to_json(&read)).map_err(said)?;
    let same = plan::read(&again).unwrap_or_else(|error| panic!("its own plan: {error}"));
    assert!(same == read, "the plan changes when it is written");
    Ok(())
}

fn machine(file: &Path) -> Result<Topology, String> {
    let machine = resolve(file.to_str().expect("a name of ours")).map_err(said)?;
    let _ = machine.summary();
    let _ = machine.fingerprint();
    let _ = machine.levels();
    Ok(machine)
}

fn machine_file(folder: &Path) -> Result<(), String> {
    machine(&ending(folder, ".toml")).map(drop)
}

fn xml(folder: &Path) -> Result<(), String> {
    machine(&ending(folder, ".xml")).map(drop)
}

fn host_file(folder: &Path) -> Result<(), String> {
    hostlist::from_hostfile(&content(folder)?)
        .map(drop)
        .map_err(said)
}

fn host_list(folder: &Path) -> Result<(), String> {
    hostlist::expand(content(folder)?.trim())
        .map(drop)
        .map_err(said)
}

fn switches(folder: &Path) -> Result<(), String> {
    let hosts: Vec<String> = (1..=8).map(|host| format!("n{host}")).collect();
    numaloc_topology::slurm::network(&content(folder)?, &hosts)
        .map(drop)
        .ok_or_else(|| "not understood".to_owned())
}

fn message_dump(folder: &Path) -> Result<(), String> {
    numaloc_mpi::monitoring_dump::parse(&content(folder)?)
        .map(drop)
        .map_err(said)
}

fn matrix(folder: &Path) -> Result<(), String> {
    let file = ending(folder, "");
    let format = MatrixFormat::of_path(&file).expect("a matrix's name");
    for reversed in [false, true] {
        let matrix = read_matrix(&file, format, reversed).map_err(said)?;
        let _ = looks_reversed(&matrix);
    }
    Ok(())
}

fn page_table(folder: &Path) -> Result<(), String> {
    numalize_pages::read(&folder.join("pages.csv"), 4096)
        .map(drop)
        .map_err(said)
}

fn perf_data(folder: &Path) -> Result<(), String> {
    numaloc_perf::import(&folder.join("x.data"), &numaloc_perf::Options::default())
        .map(drop)
        .map_err(said)
}

fn rank_file(folder: &Path) -> Result<(), String> {
    let files = [folder.join("1.nlmpi")];
    numaloc_mpi::merge(&files, &[], numaloc_mpi::Options::default())
        .map(drop)
        .map_err(said)
}

fn journal(folder: &Path) -> Result<(), String> {
    let options = numaloc_assemble::Options {
        command: Vec::new(),
        page_size: 4096,
        slices: 4096,
    };
    numaloc_assemble::assemble(folder, &options)
        .map(drop)
        .map_err(said)
}

fn task_profile(folder: &Path) -> Result<(), String> {
    let profile = numaloc_task_plan::read_profile(folder).map_err(said)?;
    let machine = resolve(seeds::MACHINE).expect("a machine of ours");
    numaloc_task_plan::analyse(&profile, &machine, numaloc_task_plan::Options::default())
        .map(drop)
        .map_err(said)
}

fn task_plan(folder: &Path) -> Result<(), String> {
    numaloc_task_plan::read_plan(folder).map(drop).map_err(said)
}

/// What a process that reads damaged files is asked to do.
pub struct Order<'a> {
    pub reader: &'a str,
    /// Its good files; they are damaged in `folder`/in.
    pub good: &'a Path,
    pub files: &'a [String],
    pub folder: &'a Path,
    pub seed: u64,
    /// Files to read, and how long at most.
    pub inputs: u64,
    pub time: Duration,
}

/// Damaged files that were refused or read, and what went wrong.
#[derive(Default)]
pub struct Found {
    pub read: u64,
    pub refused: u64,
    pub faults: Vec<String>,
}

/// Names of all readers that can be called.
pub fn names() -> impl Iterator<Item = &'static str> {
    READERS.iter().map(|(name, _)| *name)
}

/// Files that are committed for a reader: (file that it stands for, its content).
fn corpus(reader: &str) -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutations/corpus");
    let folder = root.join(reader.replace([' ', ','], "-"));
    let mut cases = Vec::new();
    for file in sorted(&folder) {
        for case in sorted(&file) {
            let name = file
                .file_name()
                .unwrap()
                .to_string_lossy()
                .replace('@', "/");
            cases.push((name, std::fs::read(case).unwrap()));
        }
    }
    cases
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Reads the committed files as they are, and then damaged ones until the order is done.
pub fn run(order: &Order<'_>) -> Found {
    let (name, read) = READERS
        .iter()
        .chain(&BROKEN)
        .find(|(name, _)| *name == order.reader)
        .unwrap_or_else(|| panic!("no reader {}", order.reader));
    let folder = order.folder.join("in");
    crate::copy(order.good, &folder);
    let sealed = *name == "profile, sealed";
    let damage = seeds::damage_of(name);
    let mut good: Vec<(String, Vec<u8>)> = order
        .files
        .iter()
        .map(|file| (file.clone(), std::fs::read(folder.join(file)).unwrap()))
        .collect();
    let intact = good.clone();
    let cases = corpus(name);
    let mut harness = Harness::new(*read, folder);
    // A reader that refuses what is whole would be tried with nothing but refusals.
    let (file, whole) = &intact[0];
    if harness.read(file, whole, whole, false).is_break() {
        return harness.found;
    }
    if harness.found.refused > 0 {
        let fault = format!("{file}: refused, and nothing is wrong with it");
        harness.found.faults.push(fault);
    }
    for (file, bytes) in &cases {
        let whole = &intact.iter().find(|(of, _)| of == file).expect("a file").1;
        if harness.read(file, whole, bytes, false).is_break() {
            return harness.found;
        }
    }
    good.extend(cases);
    let start = Instant::now();
    for at in 0..order.inputs {
        if start.elapsed() > order.time {
            break;
        }
        let mut random = Random::new(order.seed << 32 | at);
        let (file, from) = random.choice(&good);
        let whole = &intact.iter().find(|(of, _)| of == file).expect("a file").1;
        let bad = damage(from, &mut random);
        let refuse = sealed && bad != *whole;
        if harness.read(file, whole, &bad, refuse).is_break() {
            break;
        }
    }
    harness.found
}

/// Which file is being read, for the thread that watches the time.
static READING: AtomicU64 = AtomicU64::new(0);
/// Where the last panic was, and its words.
static PANIC: Mutex<Option<(String, String)>> = Mutex::new(None);

struct Harness {
    read: Read,
    folder: PathBuf,
    found: Found,
    places: BTreeSet<String>,
}

impl Harness {
    fn new(read: Read, folder: PathBuf) -> Self {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic
                .location()
                .map_or_else(String::new, ToString::to_string);
            let words = panic.payload_as_str().unwrap_or("?").to_owned();
            *PANIC.lock().unwrap_or_else(|held| held.into_inner()) = Some((place, words));
        }));
        std::thread::spawn(watch);
        Self {
            read,
            folder,
            found: Found::default(),
            places: BTreeSet::new(),
        }
    }

    /// Has one damaged file read; ends after too many faults.
    fn read(&mut self, file: &str, good: &[u8], bad: &[u8], refuse: bool) -> ControlFlow<()> {
        let path = self.folder.join(file);
        std::fs::write(&path, bad).unwrap();
        READING.fetch_add(1, Ordering::Relaxed);
        let read = catch_unwind(AssertUnwindSafe(|| (self.read)(&self.folder)));
        READING.fetch_add(1, Ordering::Relaxed);
        let fault = match read {
            Ok(Ok(())) => {
                self.found.read += 1;
                refuse.then(|| "read as if intact".to_owned())
            }
            Ok(Err(_)) => {
                self.found.refused += 1;
                None
            }
            Err(_) => {
                let panic = PANIC.lock().unwrap_or_else(|held| held.into_inner()).take();
                let (place, words) = panic.unwrap_or_default();
                let is_new = self.places.insert(place.clone());
                is_new.then(|| format!("panic at {place}: {words}"))
            }
        };
        if let Some(what) = fault {
            let kept = keep(&self.folder);
            let fault = format!("{file}: {what}; kept in {}", kept.display());
            self.found.faults.push(fault);
        }
        std::fs::write(&path, good).unwrap();
        if self.found.faults.len() < MOST_FAULTS {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

/// Copies the files that a reader stumbled over to where they outlive the test.
pub fn keep(folder: &Path) -> PathBuf {
    let kept = tempfile::Builder::new()
        .prefix("numaloc-fuzz-")
        .tempdir()
        .unwrap()
        .keep();
    crate::copy(folder, &kept);
    kept
}

/// Ends the process when one file takes too long.
fn watch() {
    let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let mut since = (u64::MAX, cpu(), Instant::now());
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let reading = READING.load(Ordering::Relaxed);
        if reading != since.0 {
            since = (reading, cpu(), Instant::now());
        }
        let used = (cpu() - since.1).tv_sec;
        if reading % 2 == 1 && (used >= MOST_CPU.as_secs() as i64 || since.2.elapsed() > MOST_TIME)
        {
            eprintln!("one file took more than {} s", MOST_CPU.as_secs());
            std::process::abort();
        }
    }
}
