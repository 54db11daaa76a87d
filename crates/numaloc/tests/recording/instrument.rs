//! Programs built with `numaloc cc`, in C, C++ and Fortran: they run as before, and what they record
//! equals what the emulator sees.

use crate::support;
use crate::support::{assert_similar, matrix, numaloc, ok, record, root, share, workload};
use std::path::{Path, PathBuf};
use std::process::Command;

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
    assert_similar(&a, &b, 0.99, 0.02, "the two frontends");
    let read = |folder: &Path| numaloc_formats::profile::read(folder).unwrap();
    let (native, emulated) = (read(&native), read(&emulated));
    assert_eq!(native.meta().frontend, "instrument");
    let paths = |profile: &numaloc_model::Profile| -> Vec<String> {
        profile
            .threads()
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
    assert_eq!(profile.threads().len(), 7);
    assert!(profile.meta().complete);
    // Each worker stores and loads its 50,000 elements at least once.
    assert!(
        profile.threads()[1..]
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
    let accesses: u64 = profile.threads().iter().map(|thread| thread.accesses).sum();
    assert!((1_000_000..1_500_000).contains(&accesses), "{accesses}");
}

#[test]
fn a_program_without_the_library_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let error = support::fails(
        numaloc(&[
            "record",
            "--frontend",
            "instrument",
            "-o",
            "x.numaloc",
            "--",
            "/bin/true",
        ])
        .current_dir(dir.path()),
        126,
    );
    assert!(error.contains("numaloc cc"), "{error}");
}

/// Copies, fills and comparisons whose compilers' forms differ: calls, loops that become calls, structures, inline
/// expansions.
const COPIES: &str = r#"
#include <stdlib.h>
#include <string.h>
struct record { char bytes[3000]; };
int main(void)
{
    char *a = aligned_alloc(4096, 64 * 4096), *b = aligned_alloc(4096, 64 * 4096);
    long *c = aligned_alloc(4096, 8 * 4096);
    memset(a, 1, 64 * 4096);
    __asm__ volatile("" : : "r"(a) : "memory");
    memcpy(b, a, 64 * 4096);
    for (long i = 0; i < 8 * 512; i++) c[i] = 0;
    __asm__ volatile("" : : "r"(c) : "memory");
    *(struct record *)c = *(struct record *)(b + 8192);
    memset(c + 4 * 512, 7, 2000);
    __asm__ volatile("" : : "r"(c) : "memory");
    return memcmp(a, b, 64 * 4096) != 0;
}
"#;

#[test]
fn copies_and_fills_are_seen_as_ranges_under_every_compiler() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("copies.c");
    std::fs::write(&source, COPIES).unwrap();
    for compiler in ["gcc", "clang"] {
        let program = build(dir.path(), compiler, &source, &[]);
        ok(&mut Command::new(&program));
        let folder = dir.path().join(format!("{compiler}.numaloc"));
        record(&folder, 1, &[program.to_str().unwrap()]);
        let profile = numaloc_formats::profile::read(&folder).unwrap();
        // Reads and writes of the pages of a block, word by word: 512 for a page.
        let pages_of = |size: u64| {
            let found = profile
                .objects()
                .iter()
                .flat_map(|object| &object.variables);
            let mut blocks: Vec<_> = found.filter(|block| block.size == size).collect();
            blocks.dedup();
            assert!(!blocks.is_empty(), "{compiler}: a block of {size} bytes");
            let pages = profile.pages().pages().iter();
            let counts = pages.filter_map(|page| {
                let object = &profile.objects()[page.object?.index()];
                let at = page.object_page * 4096;
                let inside = object
                    .variables
                    .iter()
                    .find(|block| block.offset <= at && at + 4096 <= block.offset + block.size)?;
                (inside.size == size).then(|| {
                    let all = profile.pages().accesses(page).iter();
                    all.fold((0, 0), |sum, a| (sum.0 + a.reads, sum.1 + a.writes))
                })
            });
            counts.collect::<Vec<_>>()
        };
        // `a` is filled, then read by the copy and the comparison; `b` is written once and compared.
        let large = pages_of(64 * 4096);
        assert_eq!(large.len(), 128, "{compiler}");
        let of_a = large
            .iter()
            .filter(|&&counts| counts == (1024, 512))
            .count();
        let of_b = large.iter().filter(|&&counts| counts == (512, 512)).count();
        assert!(
            of_a >= 63 && of_b >= 62 && of_a + of_b >= 127,
            "{compiler}: {large:?}"
        );
        // `c`: a loop that becomes a call or stores of one or two words, a structure of 3,000 bytes once, a fill of
        // 2,000 bytes.
        let small = pages_of(8 * 4096);
        assert_eq!(small.len(), 8, "{compiler}");
        let filled = small[1].1;
        assert_eq!(filled, 512, "{compiler}: {small:?}");
        assert_eq!(small[0].1 - filled, 3000 / 8, "{compiler}: {small:?}");
        assert_eq!(small[4].1 - filled, 2000 / 8, "{compiler}: {small:?}");
    }
}

#[test]
fn no_vector_of_clang_is_too_wide_to_be_announced() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("wide.c");
    std::fs::write(
        &source,
        "void f(float *restrict a, const float *restrict b, long n) { for (long i = 0; i < n; i++) a[i] = b[i] + 1; }",
    )
    .unwrap();
    let assembly =
        ok(numaloc(&["cc", "--", "clang", "-O3", "-mavx2", "-S", "-o", "-"]).arg(&source));
    assert!(!assembly.contains("%ymm"), "{assembly}");
    assert!(assembly.contains("__tsan_unaligned_write16"), "{assembly}");
}

#[test]
fn every_entry_point_of_the_compilers_is_there() {
    let numaloc = PathBuf::from(env!("CARGO_BIN_EXE_numaloc"));
    let library = numaloc.with_file_name("libnumaloc_instrument.a");
    let listed = Command::new("nm").arg(&library).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout);
    let ours: std::collections::HashSet<&str> = listed
        .lines()
        .filter_map(|line| line.split_once(" T ").map(|(_, name)| name))
        .collect();
    let mut wanted: Vec<String> = Vec::new();
    // gcc, g++ and gfortran have the names they may emit as texts.
    for (driver, part) in [("gcc", "cc1"), ("g++", "cc1plus"), ("gfortran", "f951")] {
        let path = ok(Command::new(driver).arg(format!("-print-prog-name={part}")));
        let bytes = std::fs::read(path.trim()).unwrap();
        let texts = bytes.split(|&byte| byte == 0);
        let names = texts.filter(|text| text.starts_with(b"__tsan_"));
        let before = wanted.len();
        wanted.extend(names.map(|name| String::from_utf8_lossy(name).into_owned()));
        assert!(wanted.len() > before + 50, "{part}");
    }
    // clang puts them together.
    for size in [1, 2, 4, 8, 16] {
        for access in ["read", "write", "read_write"] {
            wanted.push(format!("__tsan_{access}{size}"));
            if size > 1 {
                wanted.push(format!("__tsan_unaligned_{access}{size}"));
            }
        }
        for access in ["read", "write"] {
            wanted.push(format!("__tsan_volatile_{access}{size}"));
            if size > 1 {
                wanted.push(format!("__tsan_unaligned_volatile_{access}{size}"));
            }
        }
        let operations = [
            "load",
            "store",
            "exchange",
            "fetch_add",
            "fetch_sub",
            "fetch_and",
            "fetch_or",
            "fetch_xor",
            "fetch_nand",
            "compare_exchange_val",
        ];
        wanted.extend(operations.map(|name| format!("__tsan_atomic{}_{name}", size * 8)));
    }
    let others = [
        "init",
        "func_entry",
        "func_exit",
        "vptr_update",
        "vptr_read",
        "ignore_thread_begin",
        "ignore_thread_end",
        "atomic_thread_fence",
        "atomic_signal_fence",
        "memcpy",
        "memmove",
        "memset",
        "acquire",
        "release",
    ];
    wanted.extend(others.map(|name| format!("__tsan_{name}")));
    wanted.sort();
    wanted.dedup();
    let missing: Vec<_> = wanted
        .iter()
        .filter(|name| !ours.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {}", wanted.len());
}

const ALLOCATIONS: &str = r#"#include <cstdlib>
#include <pthread.h>
#include <vector>
static double *make_grid(long cells)
{
    double *grid = (double *)std::malloc(cells * sizeof *grid);
    for (long i = 0; i < cells; i++) grid[i] = 1;
    return grid;
}
static double *rows[50];
static void *work(void *)
{
    double *own = new double[30000];
    for (int i = 0; i < 30000; i++) own[i] = i;
    return own;
}
int main()
{
    double *grid = make_grid(100000);
    for (int r = 0; r < 50; r++) {
        rows[r] = (double *)std::calloc(1000, sizeof(double));
        for (int i = 0; i < 1000; i++) rows[r][i] = grid[i];
    }
    std::vector<long> cells(60000, 1);
    pthread_t thread;
    pthread_create(&thread, nullptr, work, nullptr);
    pthread_join(thread, nullptr);
    return cells[7] != 1;
}
"#;

#[test]
fn heap_blocks_are_named_by_their_call_stack_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("blocks.cpp");
    std::fs::write(&source, ALLOCATIONS).unwrap();
    let program = build(
        dir.path(),
        "g++",
        &source,
        &["-fno-inline-functions-called-once", "-pthread"],
    );
    let objects_of = |folder: &str| {
        let folder = dir.path().join(folder);
        record(&folder, 1, &[program.to_str().unwrap()]);
        let shown = ok(numaloc(&["show", "--json"]).arg(&folder));
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or("").to_owned();
        let objects = shown["objects"].as_array().unwrap().iter();
        let mut found: Vec<(String, String, u64)> = objects
            .map(|o| {
                (
                    text(&o["variable"]),
                    text(&o["source"]),
                    o["pages"].as_u64().unwrap(),
                )
            })
            .filter(|object| object.1.starts_with("blocks.cpp"))
            .collect();
        found.sort();
        found
    };
    let found = objects_of("one.numaloc");
    // Pages that a block fills at least half of.
    for (name, line, least) in [
        ("malloc in make_grid < main", 6, 195),
        ("calloc in main #0..49", 21, 97),
        ("new in main", 24, 117),
        ("new in work, thread 0.1", 13, 58),
    ] {
        let source = format!("blocks.cpp:{line}");
        let object = found.iter().find(|o| o.0 == name && o.1 == source);
        let pages = object.map(|object| object.2);
        assert!(
            pages.is_some_and(|p| p >= least && p <= least + 3),
            "{name}, {source}: {found:?}"
        );
    }
    // The same in another run, whose addresses differ.
    let again = objects_of("two.numaloc");
    let names = |found: &[(String, String, u64)]| -> Vec<_> {
        found.iter().map(|o| (o.0.clone(), o.1.clone())).collect()
    };
    assert_eq!(names(&found), names(&again));
}

#[test]
fn layers_for_comparison_are_counted_in_instrumented_programs() {
    let dir = tempfile::tempdir().unwrap();
    let source = root().join("workloads/ring.c");
    let program = build(dir.path(), "gcc", &source, &["-fopenmp"]);
    let folder = dir.path().join("l.numaloc");
    ok(numaloc(&[
        "record",
        "--quiet",
        "--layers",
        "write_read,shared_line,last_two",
        "-o",
    ])
    .arg(&folder)
    .arg("--")
    .arg(&program)
    .args(["1024", "20"])
    .env("OMP_NUM_THREADS", "8"));
    let profile = numaloc_formats::profile::read(&folder).unwrap();
    // Who accessed a line last depends on how the host interleaves the threads, so of `last_two` it is only asked that
    // near threads have more than their share of the pairs, 16 of 28.
    for (layer, least) in [
        (numaloc_model::Layer::SharedLine, 0.8),
        (numaloc_model::Layer::LastTwo, 16.0 / 28.0),
    ] {
        let matrix = profile
            .matrix(layer, numaloc_model::profile::Amount::Events)
            .unwrap();
        assert!(
            matrix.is_symmetric() && matrix.total() > 1000.0,
            "{layer:?}"
        );
        let near: f64 = (0..8)
            .map(|i| matrix.get(i, (i + 1) % 8) + matrix.get(i, (i + 2) % 8))
            .sum();
        assert!(
            2.0 * near > least * matrix.total(),
            "{layer:?}: {near} of {}",
            matrix.total()
        );
    }
}
