//! Each iteration of each loop is executed exactly once, whatever the loop and the team, and loops are really dealt.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ONCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/once.c");

/// The library, next to the folder of the tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let folder = test.ancestors().nth(2).expect("target/PROFILE/deps/test");
    let library = folder.join("libnumaloc_deal.so");
    assert!(library.exists(), "{} is not built", library.display());
    library
}

fn exists(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Compilers of OpenMP that are here.
fn compilers() -> Vec<&'static str> {
    let all = ["gcc", "clang"];
    all.into_iter().filter(|name| exists(name)).collect()
}

fn compile(compiler: &str, arguments: &[&str], output: &Path) {
    let mut command = Command::new(compiler);
    command.args(["-g", "-pthread"]).args(arguments);
    let status = command.arg("-o").arg(output).status();
    assert!(
        status.expect("a compiler").success(),
        "{compiler}: {arguments:?}"
    );
}

/// Runs a program with the library.
fn run(program: &Path, mode: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", library())
        .env("NUMALOC_DEAL", mode)
        .env("OMP_WAIT_POLICY", "passive");
    command.args(arguments).envs(environment.iter().copied());
    command.output().expect("a program")
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    let both = [out.as_slice(), err.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn each_iteration_is_executed_once() {
    let folder = tempfile::tempdir().expect("a folder");
    for compiler in compilers() {
        for level in ["-O0", "-O2"] {
            let program = folder.path().join(format!("{compiler}{level}"));
            compile(compiler, &["-fopenmp", level, ONCE], &program);
            // A cancelled dynamic loop stops libomp 14 without the library too.
            let cancel = if compiler == "gcc" { "true" } else { "false" };
            for mode in ["node", "record"] {
                for schedule in ["dynamic,3", "guided", "static", "monotonic:dynamic"] {
                    let environment = [("OMP_CANCELLATION", cancel), ("OMP_SCHEDULE", schedule)];
                    let output = run(&program, mode, &[], &environment);
                    let said = text(&output);
                    let what = format!("{compiler} {level} {mode} {schedule}: {said}");
                    assert!(output.status.success(), "{what}");
                    assert_eq!(said, "each once\n", "{what}");
                }
            }
        }
    }
}

/// While a recording is made, thread k of 4 has the k-th quarter of each loop, also with `schedule(runtime)`.
#[test]
fn loops_are_dealt_by_rank_in_recordings() {
    let folder = tempfile::tempdir().expect("a folder");
    for compiler in compilers() {
        let program = folder.path().join(compiler);
        compile(compiler, &["-fopenmp", ONCE], &program);
        for schedule in ["dynamic", "guided"] {
            let output = run(&program, "record", &["who"], &[("OMP_SCHEDULE", schedule)]);
            assert_eq!(
                text(&output),
                "000111222333 000111222333\n",
                "{compiler} {schedule}"
            );
        }
    }
}

/// Two libraries that were loaded with a libgomp of their own each, as wheels of Python are.
#[test]
fn libraries_with_run_time_systems_of_their_own_use_these() {
    if !exists("gcc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let found = Command::new("gcc")
        .arg("-print-file-name=libgomp.so.1")
        .output();
    let found = String::from_utf8(found.expect("gcc").stdout).expect("a path");
    let gomp = std::fs::read(found.trim()).expect("libgomp");
    std::fs::write(
        path("loop.c"),
        "#include <omp.h>
        int sum(int n) {
            int sum = 0;
        #pragma omp parallel for schedule(dynamic) reduction(+ : sum) num_threads(3)
            for (int i = 0; i < n; i++) sum += omp_get_num_threads();
            return sum;
        }
        ",
    )
    .expect("a file");
    std::fs::write(
        path("main.c"),
        "#include <dlfcn.h>
        #include <stdio.h>
        int main(int count, char **names) {
            for (int round = 0; round < 3; round++)
                for (int at = 1; at < count; at++) {
                    void *library = dlopen(names[at], RTLD_NOW | RTLD_LOCAL);
                    if (!library) { puts(dlerror()); return 1; }
                    int (*sum)(int) = (int (*)(int))dlsym(library, \"sum\");
                    printf(\"%d \", sum(1000));
                }
            return 0;
        }
        ",
    )
    .expect("a file");
    let name = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
    let mut libraries = Vec::new();
    for own in ["libgompA.so1", "libgompB.so1"] {
        // The copy has another name, so that the dynamic linker loads it next to the first.
        let mut copy = gomp.clone();
        let wanted = b"libgomp.so.1\0";
        while let Some(at) = copy.windows(wanted.len()).position(|bytes| bytes == wanted) {
            copy[at..at + own.len()].copy_from_slice(own.as_bytes());
        }
        std::fs::write(path(own), copy).expect("a file");
        let library = path(&format!("{own}-user.so"));
        let (source, own) = (name(&path("loop.c")), name(&path(own)));
        let search = format!("-Wl,-rpath,{}", folder.path().display());
        // `-fopenmp` for the compiler alone: the linker gets the copy instead of the system's library.
        let object = name(&path("loop.o"));
        compile(
            "gcc",
            &["-fopenmp", "-fPIC", "-c", &source],
            Path::new(&object),
        );
        compile("gcc", &["-shared", &object, &own, &search], &library);
        libraries.push(name(&library));
    }
    compile("gcc", &[&name(&path("main.c")), "-ldl"], &path("main"));
    let arguments: Vec<&str> = libraries.iter().map(String::as_str).collect();
    for mode in ["node", "record"] {
        let output = run(&path("main"), mode, &arguments, &[]);
        assert_eq!(text(&output), "3000 ".repeat(6), "{mode}");
    }
}
