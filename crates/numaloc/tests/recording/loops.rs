//! Loops that are reported with one call (`numaloc cc` with gcc): the recording is the same as with one call per
//! access.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{assert_similar, chosen, matrix, numaloc, ok, record, root};
use numaloc_model::Profile;

/// Builds `source`, with or without calls for whole loops.
fn build(dir: &Path, source: &Path, compiler: &[&str], loops: &str) -> PathBuf {
    let program = dir.join(format!("with-{loops}"));
    ok(numaloc(&["cc", "--loops", loops, "--"])
        .args(compiler)
        .arg(source)
        .args(["-lm", "-o"])
        .arg(&program));
    program
}

/// What a program writes, and its profile.
fn recorded(dir: &Path, program: &Path, options: &[&str]) -> (String, Profile) {
    let folder = dir.join("recorded.numaloc");
    let _ = std::fs::remove_dir_all(&folder);
    let mut command = numaloc(&["record", "--quiet"]);
    command
        .args(options)
        .arg("-o")
        .arg(&folder)
        .arg("--")
        .arg(program)
        .env("OMP_NUM_THREADS", "4");
    let said = ok(&mut command);
    (said, numaloc_formats::profile::read(&folder).unwrap())
}

/// Reads and writes of each page of the blocks that the program allocates, which are larger than a page.
fn pages(profile: &Profile) -> Vec<(u64, u64)> {
    let pages = profile.pages().pages().iter();
    let counts = pages.filter_map(|page| {
        let object = &profile.objects()[page.object?.index()];
        let at = page.object_page * 4096;
        object.variables.iter().find(|block| {
            block.size > 4096 && block.offset <= at && at < block.offset + block.size
        })?;
        let all = profile.pages().accesses(page).iter();
        Some(all.fold((0, 0), |sum, a| (sum.0 + a.reads, sum.1 + a.writes)))
    });
    counts.collect()
}

fn accesses(profile: &Profile) -> Vec<(String, u64)> {
    let threads = profile.threads().iter();
    threads
        .map(|thread| (thread.path.clone(), thread.accesses))
        .collect()
}

/// All kinds of loops; the program's result depends on each.
const LOOPS: &str = r#"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { N = 3000 };
struct buffer { long *cell; long cells; };
struct point { char tag; int x; double y; };
static long a[4096] __attribute__((aligned(4096))), b[4096] __attribute__((aligned(4096)));
/* On pages of its own: where the heap begins in a page depends on the program's name. */
static void *room(size_t bytes)
{
    bytes = (bytes + 4095) / 4096 * 4096;
    return memset(aligned_alloc(4096, bytes), 0, bytes);
}
static long columns(long *m, long rows, long width, long column)
{
    long sum = 0;
    for (long i = 0; i < rows; i++) sum += m[i * width + column];
    return sum;
}
static void fill(struct buffer *f) { for (long i = 0; i < f->cells; i++) f->cell[i] = i; }
static void gather(long *sum, const long *from, long n) { for (long i = 0; i < n; i++) *sum += from[i]; }
static long search(const long *in, const long *also, long n, long key)
{
    for (long i = 0; i < n; i++) {
        if (in[i] == key) return i;
        if (also[i] == key) return -i;
    }
    return n;
}
static long length(const char *text) { long n = 0; while (*text++) n++; return n; }
static void some(long *to, const long *from, int n) { for (int i = 0; i < n; i++) if (from[i] & 1) to[i] += from[i]; }
static void count(unsigned *in, const long *from, unsigned n) { for (unsigned i = 0; i != n; i++) in[from[i] & 63]++; }
static double roots(const struct point *p, long n)
{
    double sum = 0;
    for (long i = 0; i < n; i++) sum += sqrt(p[i].y) + p[i].x + p[i].tag;
    return sum;
}
__attribute__((noinline)) static long odd(long x) { __asm__ volatile("" : "+r"(x)); return x & 1; }
static long calls(const long *from, long n) { long sum = 0; for (long i = 0; i < n; i++) sum += odd(from[i]); return sum; }
static void backward(long *to, const long *from, long n) { for (long i = n - 1; i >= 0; i--) to[i] = from[n - 1 - i]; }
static void both_ways(short *t, long n, long step) { do { *t += 3; t += step; n -= 1; } while (n > 0); }
static long many(long (*m)[40], long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += m[0][i] + m[3000][i] + m[6000][i] * m[9000][i] + m[12000][i] + m[15000][i] + m[18000][i] + m[21000][i] + m[24000][i]
             + m[27000][i] + m[30000][i] + m[33000][i] + m[36000][i] + m[39000][i] + m[42000][i] + m[45000][i] + m[48000][i];
    return sum;
}
static long kinds(const unsigned char *code, long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++)
        switch (code[i] & 3) {
        case 0: sum += a[i]; break;
        case 1: sum -= b[i]; break;
        case 2: continue;
        default: if (sum > 100000) return sum;
        }
    return sum;
}
/* The inner cycle is entered at two places. */
__attribute__((noipa)) static long crooked(const long *odd, const long *from, long n, long k)
{
    long sum = 0;
    for (long i = 0; i < n; i++) {
        long j = 0;
        if (odd[i] & 1) goto middle;
    again:
        sum += 3; j += 2; sum ^= j << 3;
    middle:
        sum += from[i]; j++;
        if (j < k) goto again;
    }
    return sum;
}
__attribute__((optimize("tree-loop-distribute-patterns"))) static void clear(long *to, long n) { for (long i = 0; i < n; i++) to[i] = 0; }
int main(void)
{
    struct buffer f = {room(N * sizeof(long)), N};
    long *m = room(64 * 128 * sizeof *m), *g = room(N * sizeof *g), sum = 0, none = 0;
    struct point *p = room(N * sizeof *p);
    unsigned *h = room(4096 * sizeof *h);
    unsigned char *code = room(9000);
    short *t = room(20000 * sizeof *t);
    long (*wide)[40] = room(48001 * sizeof *wide);
    fill(&f);
    for (long i = 0; i < 64; i++) for (long k = 0; k < 128; k++) m[i * 128 + k] = i ^ k;
    for (long k = 0; k < 128; k += 3) sum += columns(m, 64, 128, k);
    gather(&sum, f.cell, N);
    gather(&g[0], f.cell, none);
    backward(g, f.cell, N);
    for (long key = 0; key < N; key += 701) sum += search(g, f.cell, N, key);
    sum += search(g, g, none, 1) + search(g, f.cell, N, -1);
    for (long i = 0; i < N; i++) { a[i] = i * 3; b[i] = i / 2; p[i].tag = i & 7; p[i].x = i; p[i].y = i; }
    some(a, f.cell, N); some(b, g, 17);
    count(h, a, N); count(h + 100, b, 0);
    sum += (long)roots(p, N) + calls(g, 500);
    for (long i = 0; i < 9000; i++) code[i] = 1 + i % 250;
    code[8999] = 0;
    sum += length((char *)code) + kinds(code, N);
    both_ways(t, 1000, 7); both_ways(t + 19999, 1500, -13); both_ways(t, 1, 1);
    for (long i = 0; i < N; i++) g[i] = f.cell[i];
    for (long i = 0; i < N / 2; i++) f.cell[i] = 0;
    sum += g[N - 1] + f.cell[N - 1];
    sum += crooked(f.cell, g, 600, 11);
    clear(g + 1000, 700);
    for (int i = 0; i < 20; i++) wide[i * 2400][i] = i;
    sum += many(wide, 40);
    for (long i = 0; i < 64; i++) sum += (long)h[i] * i + t[i] + a[i] + b[i];
    printf("%ld\n", sum);
    return 0;
}
"#;

/// Results and counts do not depend on how loops are reported.
fn agree(dir: &Path, source: &Path, compiler: &[&str]) {
    let (off, on) = (
        build(dir, source, compiler, "off"),
        build(dir, source, compiler, "require"),
    );
    let alone = ok(&mut Command::new(&on));
    let (said, expected) = recorded(dir, &off, &[]);
    assert_eq!(alone, said, "{compiler:?}");
    for options in [
        &[][..],
        &["--sample=5%"],
        &["--sample=5%", "--sample-by=bursts"],
    ] {
        let (said, found) = recorded(dir, &on, options);
        assert_eq!(alone, said, "{compiler:?} {options:?}");
        assert_eq!(
            accesses(&expected),
            accesses(&found),
            "{compiler:?} {options:?}"
        );
    }
    let (_, found) = recorded(dir, &on, &[]);
    assert_eq!(pages(&expected), pages(&found), "{compiler:?}");
    assert!(pages(&expected).len() > 20);
}

#[test]
fn each_kind_of_loop_is_counted_as_its_accesses() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("loops.c");
    std::fs::write(&source, LOOPS).unwrap();
    for level in chosen(["-O1", "-O2", "-O3"], &[2]) {
        agree(dir.path(), &source, &["gcc", level]);
    }
}

#[test]
fn loops_of_cpp_and_fortran_are_too() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("loops.cpp");
    std::fs::write(
        &source,
        r#"
#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <vector>
struct Row { alignas(4096) double cell[2048]; };
struct alignas(4096) Grid {
    Row rows[12];
    double &at(long row, long column)
    {
        if (column >= 2048) throw std::out_of_range("column");
        return rows[row].cell[column];
    }
};
int main()
{
    auto *grid = new Grid;
    for (auto &row : grid->rows) std::iota(row.cell, row.cell + 2048, 1.0);
    double sum = 0;
    for (const auto &row : grid->rows) sum = std::accumulate(row.cell, row.cell + 2048, sum);
    try {
        for (long i = 0; ; i++) sum += grid->at(3, i);
    } catch (const std::out_of_range &) { sum += 1; }
    std::vector<int> found;
    for (long i = 0; i < 2048; i++) if (grid->rows[i % 12].cell[i] > 2000) found.push_back((int)i);
    std::printf("%.1f %zu\n", sum, found.size());
}
"#,
    )
    .unwrap();
    agree(dir.path(), &source, &["g++", "-O2"]);
    let source = dir.path().join("loops.f90");
    std::fs::write(
        &source,
        "program p\n  implicit none\n  real(8), allocatable :: a(:, :), b(:, :)\n  integer :: i, j, found\n\
         allocate(a(512, 64), b(512, 64))\n  do j = 1, 64\n  do i = 1, 512\n  a(i, j) = i * j\n  end do\n  end do\n  b = 2 * a\n\
         b(1:512:3, :) = a(512:1:-3, :)\n  do i = 1, 512\n  a(i, 7) = sum(b(i, :))\n  end do\n  found = 0\n\
         do i = 1, 512\n  if (a(i, 7) > 1000000d0) exit\n  found = found + 1\n  end do\n\
         where (a > 300d0) a = sqrt(a)\n  print '(F14.3, I5)', sum(a) + sum(b), found\n\
         end program\n",
    )
    .unwrap();
    agree(dir.path(), &source, &["gfortran", "-O2"]);
}

#[test]
fn threads_communicate_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let source = root().join("workloads/ring.c");
    let events: Vec<Vec<Vec<f64>>> = ["off", "require"]
        .map(|loops| {
            let program = build(dir.path(), &source, &["gcc", "-O2", "-fopenmp"], loops);
            let folder = dir.path().join(format!("{loops}.numaloc"));
            record(&folder, 8, &[program.to_str().unwrap(), "1024", "20"]);
            matrix(&folder)
        })
        .into();
    assert_similar(&events[0], &events[1], 0.999, 0.01, "loops off and on");
}

/// The loop would run for hours if its memory did not end; so would reporting it.
#[test]
fn a_loop_that_runs_out_of_its_memory_ends_the_program_there() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("beyond.c");
    std::fs::write(
        &source,
        r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
int main(int argc, char **argv)
{
    long n = argc > 1 ? strtol(argv[1], 0, 10) : 1L << 50;
    long *cell = mmap(0, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (munmap(cell + 32 * 512, 32 * 4096)) return 2;
    for (long i = 0; i < n; i++) cell[i] = i;
    return 0;
}
"#,
    )
    .unwrap();
    let program = build(dir.path(), &source, &["gcc", "-O2"], "require");
    for (cells, status) in [("16384", 0), ("1125899906842624", 128 + 11)] {
        let folder = dir.path().join(format!("{cells}.numaloc"));
        let mut command = numaloc(&["record", "--quiet", "-o"]);
        command.arg(&folder).arg("--").arg(&program).arg(cells);
        assert_eq!(command.status().unwrap().code(), Some(status));
        let profile = numaloc_formats::profile::read(&folder).unwrap();
        // 512 cells on each of 32 pages; a program that crashes may take the last accesses with it.
        let pages = profile.pages().pages().iter();
        let full = pages.filter(|page| {
            let all = profile.pages().accesses(page).iter();
            (500..=512).contains(&all.map(|one| one.writes).sum::<u64>())
        });
        assert_eq!(full.count(), 32, "{cells}");
    }
}

#[test]
fn a_library_of_its_own_tells_its_loops_to_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let library = write(
        "sum.c",
        "long sum(const long *in, long n) { long s = 0; for (long i = 0; i < n; i++) s += in[i]; return s; }",
    );
    let main = write(
        "main.c",
        "#include <stdio.h>\nlong sum(const long *, long);\nstatic long in[100000];\nint main(void) { printf(\"%ld\\n\", sum(in, 100000)); }",
    );
    let shared = dir.path().join("libsum.so");
    ok(numaloc(&[
        "cc",
        "--loops=require",
        "--",
        "gcc",
        "-O2",
        "-shared",
        "-fPIC",
        "-o",
    ])
    .arg(&shared)
    .arg(&library));
    let program = dir.path().join("main");
    ok(
        numaloc(&["cc", "--loops=require", "--", "gcc", "-O2", "-o"])
            .arg(&program)
            .args([&main, &shared]),
    );
    let (said, profile) = recorded(dir.path(), &program, &[]);
    assert_eq!(said, "0\n");
    let recorded = accesses(&profile)[0].1;
    assert!((100_000..101_000).contains(&recorded), "{recorded}");
}
