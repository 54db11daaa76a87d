//! The native frontend against arithmetic and against the QEMU frontend.
//!
//! Needs qemu-x86_64, gcc, the plugin and numaloc-native (`cargo build --workspace` first).

use crate::support;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::loops::{EXPECTED, EXPECTED_STACK, LOOPS};
use crate::support::{assert_similar, chosen, matrix, numaloc, ok, workload};
use numaloc_model::Profile;

pub fn compile(folder: &Path, name: &str, text: &str, flags: &[&str]) -> PathBuf {
    let (source, program) = (folder.join(name), folder.join("program"));
    std::fs::write(&source, text).unwrap();
    ok(Command::new("gcc")
        .args(["-g", "-pthread", "-o"])
        .args([&program, &source])
        .args(flags));
    program
}

/// `record` with a frontend.
pub fn recording(frontend: &str, folder: &Path, threads: usize) -> Command {
    let mut command = numaloc(&["record", "--quiet", "--force", "--frontend", frontend, "-o"]);
    command.arg(folder).arg("--");
    command.env("OMP_NUM_THREADS", threads.to_string());
    command
}

pub fn read(folder: &Path) -> Profile {
    numaloc_formats::profile::read(folder).unwrap()
}

/// Reads and writes of each page.
fn page_counts(profile: &Profile) -> Vec<(u64, u64)> {
    let mut counts = Vec::new();
    for page in profile.pages().pages() {
        let accesses = profile.pages().accesses(page).iter();
        counts.push(accesses.fold((0, 0), |s, a| (s.0 + a.reads, s.1 + a.writes)));
    }
    counts
}

/// Reads and writes of the whole profile.
fn sums(profile: &Profile) -> (u64, u64) {
    let pages = profile.pages();
    let counts = pages.pages().iter().flat_map(|page| pages.accesses(page));
    counts.fold((0, 0), |sum, count| {
        (sum.0 + count.reads, sum.1 + count.writes)
    })
}

#[test]
fn hand_written_loops_are_counted_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(
        dir.path(),
        "loops.s",
        LOOPS,
        &["-static", "-no-pie", "-nostdlib"],
    );
    let folder = dir.path().join("p.numaloc");
    ok(recording("native", &folder, 1).arg(&program));
    let profile = read(&folder);
    assert_eq!(profile.meta().frontend, "native");
    assert!(profile.meta().complete);
    let counts = page_counts(&profile);
    // The stack lies above the array.
    assert_eq!(counts[..4], EXPECTED);
    assert_eq!(counts[4..], [EXPECTED_STACK]);
}

/// Vectors of all sizes, aligned and not, gathers, and masks that select 3 of 8 elements.
const VECTORS: &str = r#"
.globl _start
.bss
.balign 4096
array:  .skip 2 * 4096
.text
_start: mov $array, %edi
        vxorps %ymm0, %ymm0, %ymm0
        mov $100, %ecx
1:      vmovups %ymm0, 4096(%rdi)       # 4 words of page 1
        vmovups 40(%rdi), %ymm1         # 4 words of page 0, across lines
        movdqu 8(%rdi), %xmm2           # 2 words of page 0
        movss (%rdi), %xmm3             # 1 word of page 0
        dec %ecx
        jnz 1b
        vpcmpeqd %ymm4, %ymm4, %ymm4    # all elements
        vpxor %ymm5, %ymm5, %ymm5
        vgatherdps %ymm4, (%rdi,%ymm5,4), %ymm1   # 8 elements of page 0
        vmovd %edi, %xmm6
        mov $0x80000000, %eax
        vmovd %eax, %xmm7               # the first of 4 elements
        vmaskmovps (%rdi), %xmm7, %xmm1 # 1 word of page 0
        vmaskmovps %xmm1, %xmm7, 4096(%rdi)       # 1 word of page 1
        mov $60, %eax
        xor %edi, %edi
        syscall
"#;

#[test]
fn vectors_count_once_for_each_word_and_gathers_once_for_each_element() {
    if !std::arch::is_x86_feature_detected!("avx2") {
        return support::skip("no AVX2");
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compile(
        dir.path(),
        "vectors.s",
        VECTORS,
        &["-static", "-no-pie", "-nostdlib"],
    );
    let folder = dir.path().join("p.numaloc");
    ok(recording("native", &folder, 1).arg(&program));
    let profile = read(&folder);
    assert_eq!(sums(&profile), (100 * (4 + 2 + 1) + 8 + 1, 100 * 4 + 1));
}

/// Loops whose turns are recorded together: upward, downward, over columns, with several accesses to a line, and with a
/// step that is in a register; of few and of many turns.
const TURNS: &str = r#"
.globl _start
.bss
.balign 4096
array:  .skip 4 * 4096
.text
_start: mov $array, %edi
        mov $100, %r15d
8:      mov %rdi, %rsi                  # page 0: 512 loads
        lea 4096(%rdi), %rdx
1:      mov (%rsi), %rax
        add $8, %rsi
        cmp %rdx, %rsi
        jne 1b
        mov $255, %ecx                  # page 1: 256 updates of 8 bytes, and as many stores of 16
2:      shl $4, %rcx
        addq $1, 4096(%rdi,%rcx)
        movups %xmm0, 4096(%rdi,%rcx)
        shr $4, %rcx
        dec %ecx
        jns 2b
        mov %rdi, %rsi
        mov $64, %ecx
        mov $24, %r8d
3:      mov 8192(%rsi), %rax            # page 2: 64 times 2 loads of one word, across lines or not, and a store
        mov 8196(%rsi), %eax
        mov %eax, 8200(%rsi)
        add %r8, %rsi
        dec %ecx
        jnz 3b
        mov $3, %ecx                    # all pages: 3 times a load and a store of each
4:      mov %rdi, %rsi
        lea 4 * 4096(%rdi), %rdx
5:      mov (%rsi), %rax
        movb %al, 17(%rsi)
        add $4096, %rsi
        cmp %rdx, %rsi
        jb 5b
        dec %ecx
        jnz 4b
        lea 3 * 4096(%rdi), %rsi
        mov $20, %ecx                   # page 3: 20 stores to the same word
6:      mov %rcx, (%rsi)
        sub $1, %rcx
        jg 6b
        dec %r15d
        jnz 8b
        mov $60, %eax
        xor %edi, %edi
        syscall
"#;

#[test]
fn turns_of_loops_are_counted_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["-static", "-no-pie", "-nostdlib"];
    let program = compile(dir.path(), "turns.s", TURNS, &flags);
    let folder = dir.path().join("p.numaloc");
    ok(recording("native", &folder, 1).arg(&program));
    let profile = read(&folder);
    let found = page_counts(&profile);
    let once = [
        (512 + 3, 3),
        (256 + 3, 3 * 256 + 3),
        (2 * 64 + 3, 64 + 3),
        (3, 3 + 20),
    ];
    assert_eq!(found[..4], once.map(|(r, w)| (100 * r, 100 * w)));
}

/// Loops that a timer interrupts, and one that ends with a fault: 16 pages, each loaded 512 * ROUNDS and stored 512
/// times, and one with 512 loads before a page that is not mapped.
const INTERRUPTED: &str = r#"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
static long array[16 * 512] __attribute__((aligned(4096)));
static volatile int ticks;
static sigjmp_buf out;
static void tick(int n) { ticks++; }
static void fault(int n) { siglongjmp(out, 1); }
__attribute__((noipa)) static long sum(const long *from, const long *to)
{
    long all = 0;
    for (; from != to; from++) all += *from;
    return all;
}
int main(void)
{
    struct itimerval often = {{0, 1000}, {0, 1000}};
    for (long n = 0; n < 16 * 512; n++) array[n] = n & 1;
    signal(SIGALRM, tick);
    setitimer(ITIMER_REAL, &often, 0);
    long all = 0, rounds = 0;
    while (rounds < ROUNDS) {
        all += sum(array, array + 16 * 512);
        rounds++;
    }
    while (ticks < 5) ;
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, 0);
    long *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(page + 512, 4096, PROT_NONE);
    signal(SIGSEGV, fault);
    if (sigsetjmp(out, 1) == 0) return 1 + (sum(page, page + 1024) != 0);
    return all != 8 * 512 * rounds;
}
"#;

#[test]
fn loops_that_are_interrupted_lose_no_turn_and_repeat_none() {
    const ROUNDS: u64 = 2000;
    let dir = tempfile::tempdir().unwrap();
    let rounds = format!("-DROUNDS={ROUNDS}");
    let program = compile(dir.path(), "interrupted.c", INTERRUPTED, &["-O1", &rounds]);
    let folder = dir.path().join("p.numaloc");
    ok(recording("native", &folder, 1).arg(&program));
    let profile = read(&folder);
    let found = page_counts(&profile);
    let number = |which: (u64, u64)| found.iter().filter(|&&counts| counts == which).count();
    assert_eq!(number((512 * ROUNDS, 512)), 16, "{found:?}");
    assert!(number((512, 0)) >= 1, "{found:?}");
}

/// Short loops, calls, branches and locks, alternately: time stands still in the code of locks.
const MIXED: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long array[4096], found;
__attribute__((noipa)) static long step(long n)
{
    if (n % 7 == 0) return array[n % 4096]++;
    if (n % 5 == 0) found += n;
    return n;
}
__attribute__((noipa)) static int compare(const void *a, const void *b)
{
    return *(const long *)a < *(const long *)b ? -1 : 1;
}
int main(void)
{
    long all = 0;
    for (long n = 0; n < 400000; n++) {
        all += step(n);
        if (n % 3 == 0) {
            pthread_mutex_lock(&lock);
            array[n % 64] += all;
            pthread_mutex_unlock(&lock);
        }
        for (long i = 0; i < n % 4; i++) array[i] ^= n;
        if (n % 50000 == 0) qsort(array, 1024, sizeof *array, compare);
        if (n % 100 == 0) memset(array + n % 1000, 1, n % 1000);
    }
    return all == 0 && found == 0;
}
"#;

#[test]
fn between_bursts_all_accesses_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    // Not by the dynamic loader, which sorts objects by their addresses: that takes an access more or less.
    let program = compile(dir.path(), "mixed.c", MIXED, &["-O2", "-static"]);
    let folder = dir.path().join("p.numaloc");
    let totals = [&[][..], &["--sample", "5%", "--sample-by", "bursts"]].map(|options| {
        let mut command = numaloc(&["record", "--quiet", "--force", "--frontend", "native"]);
        command.args(options).arg("-o").arg(&folder);
        ok(command.arg("--").arg(&program));
        let profile = read(&folder);
        let share = profile.meta().sampled;
        let expected = if options.is_empty() { 1.0 } else { 0.05 };
        assert!((share - expected).abs() < 0.005, "{share}");
        let threads = profile.threads().iter();
        threads
            .map(|one| (one.accesses, one.end))
            .collect::<Vec<_>>()
    });
    assert_eq!(totals[0], totals[1]);
}

#[test]
fn matrices_equal_those_of_the_emulator() {
    let dir = tempfile::tempdir().unwrap();
    for (name, arguments) in [
        ("two_phase", &["512", "20"][..]),
        ("distant_pairs", &["512", "20"]),
        ("stencil2d", &["256", "10"]),
        ("pthread_ring", &[]),
    ] {
        for threads in chosen([2, 4], &[1]) {
            let matrix_of = |frontend: &str| {
                let folder = dir.path().join(format!("{frontend}.numaloc"));
                ok(recording(frontend, &folder, threads)
                    .arg(workload(name))
                    .args(arguments));
                matrix(&folder)
            };
            let (native, emulated) = (matrix_of("native"), matrix_of("qemu"));
            assert_similar(&native, &emulated, 0.999, 0.01, name);
        }
    }
}

#[test]
fn processes_communicate_through_shared_memory_as_under_the_emulator() {
    let dir = tempfile::tempdir().unwrap();
    // Two processes that communicate evenly: a correlation would say nothing.
    let [native, emulated] = ["native", "qemu"].map(|frontend| {
        let folder = dir.path().join(format!("{frontend}.numaloc"));
        ok(recording(frontend, &folder, 2).arg(workload("shared_pair")));
        matrix(&folder)
    });
    assert_eq!(native, emulated);
    assert!(
        native.iter().flatten().any(|&events| events > 0.0),
        "{native:?}"
    );
}

/// A process with one thread reads what another writes, in a file that it has mapped without permission to write.
const READER: &str = r#"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
enum { WORDS = 4096, TIMES = 50 };
int main(int argc, char **argv)
{
    int file = memfd_create("shared", 0), written[2], read_again[2];
    if (argc < 1 || ftruncate(file, WORDS * 8) || pipe(written) || pipe(read_again)) return 1;
    int child = fork() == 0;
    volatile long *words = mmap(0, WORDS * 8, child ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char token = 0;
    long wrong = 0;
    for (long n = 1; n <= TIMES; n++) {
        if (!child) {
            for (long i = 0; i < WORDS; i++) words[i] = n * i;
            if (write(written[1], &token, 1) != 1 || read(read_again[0], &token, 1) != 1) return 1;
        } else {
            if (read(written[0], &token, 1) != 1) return 1;
            for (long i = 0; i < WORDS; i++) wrong += words[i] != n * i;
            if (write(read_again[1], &token, 1) != 1) return 1;
        }
    }
    int status = 0;
    if (!child) wait(&status);
    return wrong != 0 || status != 0;
}
"#;

#[test]
fn a_process_that_may_only_read_shared_memory_is_recorded_as_under_the_emulator() {
    const READS: u64 = 4096 * 50;
    let dir = tempfile::tempdir().unwrap();
    let flags = ["-O1", "-D_GNU_SOURCE"];
    let program = compile(dir.path(), "reader.c", READER, &flags);
    let [native, emulated] = ["native", "qemu"].map(|frontend| {
        let folder = dir.path().join(format!("{frontend}.numaloc"));
        ok(recording(frontend, &folder, 1).arg(&program));
        // Of the pages of the file.
        let counts = page_counts(&read(&folder));
        let pages = counts.iter().filter(|count| count.0 == READS / 8);
        (matrix(&folder), pages.count())
    });
    assert_eq!(native, emulated);
    assert!(native.0.iter().flatten().any(|&events| events > 0.0));
    assert_eq!(native.1, 8, "every load of the reader is counted");
}

/// A process that creates threads, forks, executes another program, and ends while threads run.
const PROCESSES: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile long sum[1024];
static pthread_barrier_t barrier;
static void *work(void *number)
{
    for (int i = 0; i < 10000; i++) sum[64 * (long)number]++;
    pthread_barrier_wait(&barrier);
    if ((long)number == 2) pause();
    return 0;
}
int main(void)
{
    pthread_t threads[3];
    pthread_barrier_init(&barrier, 0, 4);
    for (long n = 0; n < 3; n++) pthread_create(&threads[n], 0, work, (void *)n);
    pthread_barrier_wait(&barrier);
    for (int n = 0; n < 2; n++) pthread_join(threads[n], 0);
    int status;
    if (fork() == 0) {
        sum[512] = 1;
        execl("/bin/echo", "echo", "executed", (char *)0);
    }
    wait(&status);
    status |= system("exit 3") >> 8;
    return status == 3 ? 0 : 1;
}
"#;

#[test]
fn threads_and_processes_have_the_same_names_as_under_the_emulator() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "processes.c", PROCESSES, &["-O1"]);
    let threads_of = |frontend: &str| {
        let folder = dir.path().join(format!("{frontend}.numaloc"));
        let output = ok(recording(frontend, &folder, 1).arg(&program));
        assert_eq!(output, "executed\n");
        let profile = read(&folder);
        assert!(profile.meta().complete, "{:?}", profile.meta().notes);
        let mut paths: Vec<String> = profile.threads().iter().map(|t| t.path.clone()).collect();
        paths.sort();
        let work = |path: &str| {
            let thread = profile.threads().iter().find(|thread| thread.path == path);
            thread.map_or(0, |thread| thread.accesses)
        };
        let workers = ["0.1", "0.2", "0.3"].map(work);
        assert!(workers.iter().all(|&work| work > 20_000), "{workers:?}");
        paths
    };
    assert_eq!(threads_of("native"), threads_of("qemu"));
}

#[test]
fn a_program_killed_by_its_own_fault_leaves_a_profile_that_is_cut_short() {
    let dir = tempfile::tempdir().unwrap();
    let text = "int table[5000]; int main(int n, char **v)\
        { for (int i = 0; i < 5000; i++) table[i] = i; return *(volatile int *)0; }";
    let program = compile(dir.path(), "fault.c", text, &["-O1"]);
    let folder = dir.path().join("p.numaloc");
    let output = recording("native", &folder, 1)
        .arg(&program)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(128 + 11));
    let profile = read(&folder);
    assert!(!profile.meta().complete);
    assert!(sums(&profile).1 >= 2500);
}

/// A program linked to addresses where the recorder has its table of lines.
pub fn linked_high(folder: &Path) -> PathBuf {
    let high = "-Wl,-Ttext-segment=0x7f000000";
    let flags = ["-static", "-no-pie", "-nostdlib", high];
    compile(folder, "loops.s", LOOPS, &flags)
}

#[test]
fn auto_takes_native_unless_that_cannot_record_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("p.numaloc");
    let record = |program: &Path, frontend: &str| {
        let mut command = numaloc(&["record", "--force", "--frontend", frontend, "-o"]);
        let output = command.args([&folder, Path::new("--"), program]).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let flags = ["-static", "-no-pie", "-nostdlib"];
    let low = compile(dir.path(), "loops.s", LOOPS, &flags);
    let (status, said) = record(&low, "auto");
    assert_eq!(status, Some(0), "{said}");
    let why = "frontend native: the program was not built with numaloc cc";
    assert!(said.contains(why), "{said}");
    assert_eq!(read(&folder).meta().frontend, "native");
    assert_eq!(page_counts(&read(&folder))[..4], EXPECTED);

    let high = linked_high(dir.path());
    let (status, said) = record(&high, "auto");
    assert_eq!(status, Some(0), "{said}");
    let why = "it is linked to addresses that the recorder needs";
    let all = format!("frontend qemu: native cannot record it: {why}");
    assert!(said.contains(&all), "{said}");
    assert_eq!(read(&folder).meta().frontend, "qemu");
    assert_eq!(page_counts(&read(&folder))[..4], EXPECTED);

    let (status, said) = record(&high, "native");
    assert_eq!(status, Some(126), "{said}");
    assert!(said.contains(why), "{said}");
}

#[test]
fn programs_built_with_sanitizers_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("p.numaloc");
    for sanitizer in ["address", "leak", "thread"] {
        let flag = format!("-fsanitize={sanitizer}");
        let program = compile(
            dir.path(),
            "main.c",
            "int main(void) { return 0; }",
            &[&flag],
        );
        let mut command = numaloc(&["record", "-o"]);
        let said = support::fails(command.args([&folder, &program]), 126);
        assert!(said.contains(&flag), "{said}");
    }
    assert!(!folder.exists());
}

#[test]
fn a_program_linked_to_addresses_of_the_recorder_is_emulated_when_it_is_executed() {
    let dir = tempfile::tempdir().unwrap();
    linked_high(dir.path());
    let folder = dir.path().join("p.numaloc");
    let mut command = recording("native", &folder, 1);
    ok(command
        .args(["sh", "-c", "./program && true"])
        .current_dir(dir.path()));
    let profile = read(&folder);
    let note = "./program: recorded under QEMU, because it is linked to addresses";
    let notes = &profile.meta().notes;
    assert!(notes.iter().any(|n| n.starts_with(note)), "{notes:?}");
    for expected in EXPECTED {
        assert!(page_counts(&profile).contains(&expected), "{expected:?}");
    }
}

/// Writes a function 1,200 times and calls it, then executes another program.
const GENERATOR: &str = r#"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    unsigned char *code = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char function[] = {0xb8, 0, 0, 0, 0, 0xc3};
    int sum = 0;
    for (int n = 0; n < 1200; n++) {
        memcpy(function + 1, &n, sizeof n);
        memcpy(code, function, sizeof function);
        sum += ((int (*)(void))code)();
    }
    return sum != 1199 * 600 || execl("/bin/echo", "echo", "executed", (char *)0);
}
"#;

#[test]
fn what_a_generator_of_code_executes_is_recorded_under_the_emulator() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "generator.c", GENERATOR, &["-O1"]);
    let folder = dir.path().join("p.numaloc");
    let output = recording("native", &folder, 1)
        .arg(&program)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "executed\n");
    let why = "/bin/echo: recorded under QEMU, because the program that executes it writes code all the time";
    let profile = read(&folder);
    let meta = profile.meta();
    assert!(meta.complete, "{:?}", meta.notes);
    assert!(
        meta.notes.iter().any(|note| note == why),
        "{:?}",
        meta.notes
    );
}
