//! What end-to-end tests share: the real command, the real workloads, and checkers that share no code
//! with what they check.

#![allow(dead_code)]

pub mod loops;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::{Mutex, PoisonError};

use numaloc_model::{Layer, Profile};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether everything is tried (`make test-full`), not only what `make test` has time for.
pub fn is_full() -> bool {
    std::env::var_os("NUMALOC_FULL_TESTS").is_some()
}

/// All of `cases` in a full test, else those whose `at` is in `few`.
pub fn chosen<T>(cases: impl IntoIterator<Item = T>, few: &[usize]) -> Vec<T> {
    let cases = cases.into_iter().enumerate();
    let cases = cases.filter(|(at, _)| is_full() || few.contains(at));
    cases.map(|(_, case)| case).collect()
}

/// A workload built by `make workloads`; built now if it is not there.
pub fn workload(name: &str) -> PathBuf {
    /// While one thread builds it, no other may find half of it.
    static BUILDING: Mutex<()> = Mutex::new(());
    let _alone = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = root().join("target/workloads").join(name);
    if !path.is_file() {
        let made = Command::new("make")
            .arg(format!("target/workloads/{name}"))
            .current_dir(root())
            .output()
            .expect("make runs");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
    }
    path
}

/// A C program with POSIX threads, built in `folder` from its text: by `numaloc cc` if `instrumented`, else by the bare
/// compiler.
///
/// Its path has blanks, as anybody's may: names of its objects and variables must survive them.
pub fn compile(folder: &Path, name: &str, text: &str, instrumented: bool) -> PathBuf {
    let folder = folder.join("a program");
    std::fs::create_dir_all(&folder).expect("the folder takes another");
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, text).expect("the folder takes a file");
    let mut command = if instrumented {
        numaloc(&["cc", "--", "gcc"])
    } else {
        Command::new("gcc")
    };
    ok(command
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(&source));
    program
}

/// `numaloc` with arguments.
pub fn numaloc(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_numaloc"));
    command.args(args);
    command
}

/// Runs a command that must succeed; its stdout.
pub fn ok(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What a panic of the program is reported as.
pub const DEFECT: &str = "a defect in numaloc";

/// Runs a command that must fail with `status`; its stderr, which must be one line of error (further
/// lines are indented).
pub fn fails(command: &mut Command, status: i32) -> String {
    let output: Output = command.output().expect("it runs");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(status), "{command:?}\n{stderr}");
    assert!(stderr.starts_with("error: "), "{command:?}\n{stderr}");
    assert!(
        stderr.lines().skip(1).all(|line| line.starts_with("  ")),
        "{command:?}\n{stderr}"
    );
    assert!(!stderr.contains(DEFECT), "{stderr}");
    stderr
}

/// Records a workload with `threads` OpenMP threads into `folder`.
pub fn record(folder: &Path, threads: usize, program: &[&str]) {
    let mut command = numaloc(&["record", "--quiet", "-o"]);
    command.arg(folder).arg("--").args(program);
    command.env("OMP_NUM_THREADS", threads.to_string());
    ok(&mut command);
}

/// `show --matrix csv` as numbers, row after row.
pub fn matrix(folder: &Path) -> Vec<Vec<f64>> {
    let text = ok(numaloc(&["show", "--matrix", "csv"]).arg(folder));
    let rows: Vec<Vec<f64>> = text
        .lines()
        .map(|line| {
            line.split(',')
                .map(|cell| cell.trim().parse().expect("a number"))
                .collect()
        })
        .collect();
    assert!(
        rows.iter().all(|row| row.len() == rows.len()),
        "not square:\n{text}"
    );
    rows
}

/// Share of a matrix's sum in the cells that `inside(i, j)` names.
pub fn share(matrix: &[Vec<f64>], inside: impl Fn(usize, usize) -> bool) -> f64 {
    let (mut within, mut all) = (0.0, 0.0);
    for (i, row) in matrix.iter().enumerate() {
        for (j, cell) in row.iter().enumerate() {
            all += cell;
            if inside(i, j) {
                within += cell;
            }
        }
    }
    assert!(all > 0.0, "the matrix is empty");
    within / all
}

/// Pearson correlation of the off-diagonal cells of two matrices of one size.
pub fn correlation(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    assert_eq!(a.len(), b.len());
    let cells = |m: &[Vec<f64>]| -> Vec<f64> {
        (0..m.len())
            .flat_map(|i| (0..m.len()).filter(move |&j| j != i).map(move |j| (i, j)))
            .map(|(i, j)| m[i][j])
            .collect()
    };
    let (x, y) = (cells(a), cells(b));
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (mx, my) = (mean(&x), mean(&y));
    let covariance: f64 = x.iter().zip(&y).map(|(p, q)| (p - mx) * (q - my)).sum();
    let spread = |v: &[f64], m: f64| v.iter().map(|p| (p - m).powi(2)).sum::<f64>().sqrt();
    covariance / (spread(&x, mx) * spread(&y, my))
}

/// Two matrices of the same program: one pattern (correlation of at least `least`) and, to `off` of it, one amount. A
/// frontend that counts everything twice correlates perfectly.
pub fn assert_similar(a: &[Vec<f64>], b: &[Vec<f64>], least: f64, off: f64, what: &str) {
    let same = correlation(a, b);
    assert!(same >= least, "{what}: correlation is {same}");
    let total = |matrix: &[Vec<f64>]| matrix.iter().flatten().sum::<f64>();
    let (x, y) = (total(a), total(b));
    assert!((x / y - 1.0).abs() <= off, "{what}: {x} and {y} events");
}

/// Says that a test cannot run here; fails where that would go unnoticed.
pub fn skip(why: &str) {
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!ci, "skipped, which CI=true does not allow: {why}");
    println!("SKIPPED: {why}");
}

/// Busy processes that run during the test, two for each core; they end with it.
pub struct Load(Vec<Child>);

impl Load {
    pub fn start() -> Self {
        let cores = std::thread::available_parallelism().unwrap().get();
        let spin = || {
            Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .spawn()
        };
        Self((0..2 * cores).map(|_| spin().unwrap()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `write_read` events of each slice: all, between neighbours, between distant pairs.
pub fn by_slice(profile: &Profile) -> Vec<[f64; 3]> {
    let threads = profile.threads().len();
    let mut slices = vec![[0.0; 3]; profile.slices().len()];
    for row in profile.communication() {
        let (i, j) = (row.src.index(), row.dst.index());
        if row.layer == Layer::WriteRead {
            let events = row.events as f64;
            let slice = &mut slices[row.slice.index()];
            slice[0] += events;
            slice[1] += if i ^ 1 == j { events } else { 0.0 };
            slice[2] += if i.abs_diff(j) == threads / 2 {
                events
            } else {
                0.0
            };
        }
    }
    slices
}

/// Times from the first to the last first touch of each 64 pages of the variable `stretch`.
pub fn stretches(profile: &Profile) -> Vec<Range<u64>> {
    const PAGES: u64 = 64;
    let mut found = Vec::new();
    for (index, object) in profile.objects().iter().enumerate() {
        let Some(variable) = object.variables.iter().find(|v| v.name == "stretch") else {
            continue;
        };
        let count = variable.size / (PAGES * 4096);
        found = vec![(u64::MAX, 0); count as usize];
        for page in profile.pages().pages() {
            let at = page.object_page * 4096;
            let inside = variable.offset..variable.offset + variable.size;
            if page.object.is_some_and(|o| o.index() == index) && inside.contains(&at) {
                let stretch = &mut found[((at - variable.offset) / (PAGES * 4096)) as usize];
                stretch.0 = stretch.0.min(page.first_touch_time);
                stretch.1 = stretch.1.max(page.first_touch_time);
            }
        }
    }
    assert!(!found.is_empty(), "no variable of that name");
    found.into_iter().map(|(first, last)| first..last).collect()
}
