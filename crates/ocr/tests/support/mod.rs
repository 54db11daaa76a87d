//! Programs in C, compiled against `ocr.h` and the library as a user would.
#![allow(dead_code)] // Every test program uses a part.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Builds the library. A C program needs it, but cargo does not build it for this package's tests; so it is built here,
/// once, by the cargo that runs the tests. `make test` has built it, and sets `NUMALOC_BUILT`.
fn library() -> PathBuf {
    use std::sync::OnceLock;
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            let me = std::env::current_exe().expect("a test program");
            let folder = me.parent().and_then(Path::parent).expect("target/debug");
            if std::env::var_os("NUMALOC_BUILT").is_some() {
                return folder.to_owned();
            }
            let status = Command::new(env!("CARGO"))
                .args(["build", "-q", "--offline", "-p", "numaloc-ocr"])
                .current_dir(root())
                .status()
                .expect("cargo runs");
            assert!(status.success());
            folder.to_owned()
        })
        .clone()
}

/// Compiles a source file, named from the repository's root, into `folder`.
pub fn compile_file(folder: &Path, source: &str) -> PathBuf {
    let source = root().join(source);
    let program = folder.join(source.file_stem().expect("a file"));
    let library = library();
    let output = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror"])
        .arg(format!("-I{}", root().join("crates/ocr/include").display()))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg(format!("-L{}", library.display()))
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .args(["-lnumaloc_ocr", "-lm"])
        .output()
        .expect("a C compiler");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// Runs a program with settings, and kills it if it hangs.
pub fn run_any(program: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut child = Command::new(program)
        .args(arguments)
        .envs(
            settings
                .iter()
                .map(|(name, value)| (format!("NUMALOC_OCR_{name}"), value)),
        )
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // Far longer than it takes on a busy machine: only a program that hangs reaches this.
    let limit = Instant::now() + Duration::from_secs(120);
    while child.try_wait().expect("a child").is_none() {
        if Instant::now() > limit {
            let _ = child.kill();
            let output = child.wait_with_output().expect("a child");
            panic!(
                "{} {arguments:?} {settings:?} hangs: {output:?}",
                program.display()
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("a child")
}

/// The schedulers, with few and many workers, on this machine and a described one.
pub const SCHEDULERS: [&[(&str, &str)]; 7] = [
    &[("SCHEDULER", "numa"), ("WORKERS", "1")],
    &[("SCHEDULER", "numa"), ("WORKERS", "4")],
    &[
        ("MACHINE", "numa:4 pu:2"),
        ("THREADS", "1"),
        ("STEAL", "node"),
    ],
    &[("SCHEDULER", "single"), ("ALLOCATOR", "system")],
    &[("SCHEDULER", "tbb"), ("WORKERS", "3"), ("ALLOCATOR", "tbb")],
    &[("MACHINE", "numa:4 pu:2")],
    &[("MACHINE", "numa:4 pu:2"), ("SCHEDULER", "tbb")],
];
