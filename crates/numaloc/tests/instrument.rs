//! Programs built with `numaloc cc`, in C, C++ and Fortran: they run as before, and what they record
//! equals what the emulator sees.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use support::{correlation, matrix, numaloc, ok, record, root, share, workload};

fn build(dir: &Path, compiler: &str, source: &Path, flags: &[&str]) -> PathBuf {
    let program = dir.join(source.file_stem().unwrap());
    ok(numaloc(&["cc", "--", compiler, "-O2"])
        .args(flags)
        .arg(source)
        .arg("-o")
        .arg(&program));
    program
}

#[test]
fn both_exact_frontends_see_the_same_communication() {
    let dir = tempfile::tempdir().unwrap();
    let source = root().join("workloads/ring.c");
    let program = build(dir.path(), "gcc", &source, &["-fopenmp"]);
    let (native, emulated) = (dir.path().join("i.numaloc"), dir.path().join("q.numaloc"));
    record(&native, 16, &[program.to_str().unwrap(), "1024", "20"]);
    record(
        &emulated,
        16,
        &[workload("ring").to_str().unwrap(), "1024", "20"],
    );
    let (a, b) = (matrix(&native), matrix(&emulated));
    let near = share(&a, |i, j| (i + 1) % 16 == j || (j + 1) % 16 == i);
    assert!(near >= 0.95, "share of neighbours is {near}");
    let same = correlation(&a, &b);
    assert!(same >= 0.99, "the frontends correlate at {same}");
    let read = |folder: &Path| numaloc_formats::profile::read(folder).unwrap();
    let (native, emulated) = (read(&native), read(&emulated));
    assert_eq!(native.meta.frontend, "instrument");
    let paths = |profile: &numaloc_model::Profile| -> Vec<String> {
        profile
            .threads
            .iter()
            .map(|thread| thread.path.clone())
            .collect()
    };
    assert_eq!(paths(&native), paths(&emulated));
}

#[test]
fn cpp_threads_exceptions_atomics_and_exit_status_are_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("t.cpp");
    std::fs::write(
        &source,
        r#"
#include <atomic>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>
std::mutex lock; long total; std::atomic<int> count{0};
struct Base { virtual long twice(long x) { return x; } virtual ~Base() {} };
struct Derived : Base { long twice(long x) override { return 2 * x; } };
int main() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; i++)
        threads.emplace_back([i] {
            std::vector<long> v(50000, i);
            Base *object = new Derived;
            long sum = 0;
            try {
                for (long x : v) sum += object->twice(x);
                if (i == 3) throw std::runtime_error("three");
            } catch (std::exception &) { count++; }
            delete object;
            count++;
            std::lock_guard<std::mutex> guard(lock);
            total += sum;
        });
    for (auto &t : threads) t.join();
    std::printf("%ld %d\n", total, count.load());
    return 3;
}
"#,
    )
    .unwrap();
    let program = build(dir.path(), "g++", &source, &[]);
    let folder = dir.path().join("t.numaloc");
    let mut recorded = numaloc(&["record", "--quiet", "-o"]);
    recorded.arg(&folder).arg("--").arg(&program);
    for command in [&mut Command::new(&program), &mut recorded] {
        let output = command.output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(3),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1500000 7\n");
    }
    let profile = numaloc_formats::profile::read(&folder).unwrap();
    assert_eq!(profile.threads.len(), 7);
    assert!(profile.meta.complete);
    // Each worker stores and loads its 50,000 elements at least once.
    assert!(
        profile.threads[1..]
            .iter()
            .all(|thread| thread.accesses >= 100_000)
    );
}

#[test]
fn fortran_arrays_in_openmp_regions_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("f.f90");
    std::fs::write(
        &source,
        "program p\n  real(8), allocatable :: a(:), b(:)\n  integer :: i, k\n  integer, parameter :: n = 40000\n\
         allocate(a(n), b(n))\n  a = 1d0\n  b = 1d0\n  do k = 1, 5\n!$omp parallel do\n  do i = 2, n-1\n\
         b(i) = 0.5d0*(a(i-1)+a(i+1))\n  end do\n!$omp parallel do\n  do i = 2, n-1\n  a(i) = b(i)\n  end do\n\
         end do\n  print '(F8.1)', sum(a)\nend program\n",
    )
    .unwrap();
    let program = build(
        dir.path(),
        "gfortran",
        &source,
        &["-fopenmp", "-ffree-form"],
    );
    let folder = dir.path().join("f.numaloc");
    let mut command = numaloc(&["record", "--quiet", "-o"]);
    command
        .arg(&folder)
        .arg("--")
        .arg(&program)
        .env("OMP_NUM_THREADS", "4");
    assert_eq!(ok(&mut command).trim(), "40000.0");
    let profile = numaloc_formats::profile::read(&folder).unwrap();
    // 5 x 2 loops over 40,000 elements, 3 and 2 accesses each: a million, shared by 4 threads.
    let accesses: u64 = profile.threads.iter().map(|thread| thread.accesses).sum();
    assert!((1_000_000..1_500_000).contains(&accesses), "{accesses}");
}

#[test]
fn a_program_without_the_library_is_refused_by_name() {
    let error = support::fails(
        &mut numaloc(&[
            "record",
            "--frontend",
            "instrument",
            "-o",
            "x.numaloc",
            "--",
            "/bin/true",
        ]),
        126,
    );
    assert!(error.contains("numaloc cc"), "{error}");
}
