//! `numaloc record` on real programs: what it counts, what passes through, what it refuses.
//!
//! Needs qemu-x86_64, a C compiler and the plugin (`cargo build --workspace` first).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use numaloc_model::profile::{Amount, ObjectKind};
use numaloc_model::{Layer, Profile, ThreadRole};

/// A folder of our own for this test run, with compiled programs.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles `source` (a workload's name or C text); the name must be unique to the caller.
fn compile(name: &str, text: Option<&str>, flags: &[&str]) -> PathBuf {
    let program = folder().join(name);
    let source = match text {
        Some(text) => {
            let source = folder().join(format!("{name}.c"));
            std::fs::write(&source, text).unwrap();
            source
        }
        None => root().join(format!("workloads/{}.c", name.split('-').next().unwrap())),
    };
    let status = Command::new("cc")
        .args(["-O2", "-g", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .args(flags)
        .arg("-lm")
        .status()
        .expect("a C compiler");
    assert!(status.success());
    program
}

fn numaloc(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_numaloc"));
    command
        .args(arguments)
        .current_dir(folder())
        .env_remove("OMP_WAIT_POLICY");
    command
}

fn record(output: &str, options: &[&str], command: &[&str]) -> Output {
    let mut words = vec!["record", "-o", output];
    words.extend(options);
    words.push("--");
    words.extend(command);
    numaloc(&words)
        .env("OMP_NUM_THREADS", "16")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn read(output: &str) -> Profile {
    numaloc_formats::profile::read(&folder().join(output)).unwrap()
}

/// Records a workload with 16 threads.
fn profile_of(program: &Path, output: &str, arguments: &[&str]) -> Profile {
    let mut command = vec![program.to_str().unwrap()];
    command.extend(arguments);
    let done = record(output, &["--quiet"], &command);
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert_eq!(String::from_utf8_lossy(&done.stderr), "");
    read(output)
}

fn matrix(profile: &Profile) -> Vec<Vec<f64>> {
    let matrix = profile.matrix(Layer::WriteRead, Amount::Events).unwrap();
    let n = matrix.threads();
    (0..n)
        .map(|i| (0..n).map(|j| matrix.get(i, j)).collect())
        .collect()
}

/// Share of the events on the pairs that `expected` names.
fn share(matrix: &[Vec<f64>], expected: impl Fn(usize, usize) -> bool) -> f64 {
    let mut sums = [0.0; 2];
    for (i, row) in matrix.iter().enumerate() {
        for (j, &events) in row.iter().enumerate() {
            sums[usize::from(expected(i, j))] += events;
        }
    }
    sums[1] / (sums[0] + sums[1])
}

fn correlation(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let (a, b): (Vec<f64>, Vec<f64>) = (a.concat(), b.concat());
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(&a), mean(&b));
    let covariance = |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 {
        x.iter().zip(y).map(|(p, q)| (p - mx) * (q - my)).sum()
    };
    covariance(&a, ma, &b, mb) / (covariance(&a, ma, &a, ma) * covariance(&b, mb, &b, mb)).sqrt()
}

#[test]
fn ring_communicates_with_neighbours_the_same_in_every_run() {
    let program = compile("ring", None, &["-fopenmp"]);
    let first = profile_of(&program, "ring-1.numaloc", &["512", "40"]);
    let second = profile_of(&program, "ring-2.numaloc", &["512", "40"]);
    assert_eq!(first.threads().len(), 16);
    let paths = |profile: &Profile| -> Vec<String> {
        profile.threads().iter().map(|t| t.path.clone()).collect()
    };
    assert_eq!(paths(&first), paths(&second));
    assert_eq!(paths(&first)[..3], ["0", "0.1", "0.2"]);
    let (a, b) = (matrix(&first), matrix(&second));
    let neighbours = share(&a, |i, j| (i + 16 - j) % 16 == 1 || (j + 16 - i) % 16 == 1);
    assert!(neighbours >= 0.95, "{neighbours}");
    let alike = correlation(&a, &b);
    assert!(alike >= 0.99, "{alike}");
    // 512 cells of 8 bytes are 64 lines; each is read by two neighbours in each of 40 iterations.
    let pair = a[3][4];
    assert!((pair - 64.0 * 40.0).abs() <= 40.0, "{pair}");
    // Every page of the buffers was touched first by its owner, and belongs to an object.
    let owned = first.pages().pages().iter().filter(|p| p.object.is_some());
    assert!(owned.count() as f64 >= 0.98 * first.pages().pages().len() as f64);
    assert!(first.meta().complete);
}

#[test]
fn layers_for_comparison_are_symmetric_and_find_the_ring() {
    let program = compile("ring-layers", None, &["-fopenmp"]);
    let options = ["--quiet", "--layers", "shared_line,last_two"];
    let command = [program.to_str().unwrap(), "1024", "40"];
    assert!(
        record("layers.numaloc", &options, &command)
            .status
            .success()
    );
    let profile = read("layers.numaloc");
    for layer in [Layer::SharedLine, Layer::LastTwo] {
        let matrix = profile.matrix(layer, Amount::Events).unwrap();
        assert!(matrix.is_symmetric() && matrix.total() > 0.0);
    }
    // A buffer's lines are accessed by its owner and by both neighbours: pairs at distance 1 and 2.
    let shared = profile.matrix(Layer::SharedLine, Amount::Events).unwrap();
    let dense: Vec<Vec<f64>> = shared.to_dense().chunks(16).map(<[f64]>::to_vec).collect();
    let near = share(&dense, |i, j| matches!((i + 16 - j) % 16, 1 | 2 | 14 | 15));
    assert!(near >= 0.8, "{near}");
}

#[test]
fn distant_pairs_and_embarrassingly_parallel() {
    let program = compile("distant_pairs", None, &["-fopenmp"]);
    let profile = profile_of(&program, "distant.numaloc", &["512", "40"]);
    let distant = share(&matrix(&profile), |i, j| i.abs_diff(j) == 8);
    assert!(distant >= 0.95, "{distant}");

    let program = compile("ep", None, &["-fopenmp"]);
    let profile = profile_of(&program, "ep.numaloc", &[]);
    let bytes: u64 = profile.communication().iter().map(|row| row.bytes).sum();
    let memory: u64 = profile
        .threads()
        .iter()
        .map(|thread| thread.read_bytes + thread.write_bytes)
        .sum();
    assert!(bytes * 100 < memory, "{bytes} of {memory} bytes");
}

#[test]
fn phases_come_in_the_right_order() {
    let program = compile("two_phase", None, &["-fopenmp"]);
    let profile = profile_of(&program, "phases.numaloc", &["512", "80"]);
    // Events on the pairs of the first and of the second phase, slice by slice.
    let slices: Vec<(f64, f64)> = (0..profile.slices().len() as u32)
        .map(|slice| {
            let cells = profile
                .matrix_of_slices(Layer::WriteRead, Amount::Events, slice..slice + 1)
                .unwrap();
            let sum = |wanted: &dyn Fn(usize, usize) -> bool| {
                cells
                    .cells()
                    .filter(|&(i, j, _)| wanted(i, j))
                    .map(|(_, _, events)| events)
                    .sum()
            };
            (sum(&|i, j| i / 2 == j / 2), sum(&|i, j| i.abs_diff(j) == 8))
        })
        .collect();
    // The border is where a cut leaves the fewest events on the wrong side; a rule per slice
    // would let the handful of events of the start-up decide.
    let wrong_at = |border: usize| -> f64 {
        slices[..border].iter().map(|slice| slice.1).sum::<f64>()
            + slices[border..].iter().map(|slice| slice.0).sum::<f64>()
    };
    let border = (0..=slices.len())
        .min_by(|&a, &b| wrong_at(a).total_cmp(&wrong_at(b)))
        .unwrap();
    // A slice that both phases share belongs to neither.
    let shared = slices[border.saturating_sub(1)..(border + 1).min(slices.len())]
        .iter()
        .map(|slice| slice.0.min(slice.1))
        .fold(0.0, f64::max);
    let wrong = wrong_at(border) - shared;
    let all: f64 = slices.iter().map(|slice| slice.0 + slice.1).sum();
    assert!(
        slices.len() >= 6 && border > 1 && border + 2 < slices.len(),
        "{slices:?}"
    );
    assert!(wrong <= 0.05 * all, "{slices:?}");
}

#[test]
fn objects_have_the_identity_of_docs_identity() {
    let program = compile(
        "objects",
        Some(
            "#include <pthread.h>\n#include <stdlib.h>\n#include <sys/mman.h>\n
            static pthread_barrier_t both;
            char global[3 * 4096] __attribute__((aligned(4096)));
            static void *work(void *unused) { (void)unused;
              char *own = mmap(0, 5 * 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              for (int i = 0; i < 5; i++) own[i * 4096] = 1;
              pthread_barrier_wait(&both); /* so that each thread needs an arena of its own */
              if (!malloc(100)) abort();
              pthread_barrier_wait(&both); return own; }
            int main(void) { pthread_t t[2]; pthread_barrier_init(&both, 0, 2);
              char *heap = malloc(40000); for (int i = 0; i < 40000; i += 64) heap[i] = 1;
              for (unsigned i = 0; i < sizeof global; i += 64) global[i] = 1;
              char *shared = mmap(0, 2 * 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0); shared[4096] = 1;
              for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, work, 0);
              for (int i = 0; i < 2; i++) pthread_join(t[i], 0); }",
        ),
        &[],
    );
    let profile = profile_of(&program, "objects.numaloc", &[]);
    let found = |kind: ObjectKind, name: &str, creator: &str, size: u64| {
        let at = profile.objects().iter().position(|object| {
            object.kind == kind
                && object.name == name
                && object.size == size
                && object.thread.map(|t| &*profile.threads()[t.index()].path) == Some(creator)
        });
        let at = at.unwrap_or_else(|| panic!("no {name} of {creator}: {:?}", profile.objects()));
        let pages = profile.pages().pages().iter();
        pages
            .filter(|page| page.object.is_some_and(|object| object.index() == at))
            .map(|page| (page.object_page, page.first_touch.unwrap().0))
            .collect::<Vec<_>>()
    };
    let own = [(0, 2), (1, 2), (2, 2), (3, 2), (4, 2)];
    assert_eq!(found(ObjectKind::Mapping, "[anon]", "0.2", 5 * 4096), own);
    assert_eq!(found(ObjectKind::Shared, "[anon]", "0", 2 * 4096), [(1, 0)]);
    let bss = profile
        .objects()
        .iter()
        .find(|o| o.name == "objects:.bss")
        .unwrap();
    assert!(bss.size >= 3 * 4096);
    assert!(found(ObjectKind::Static, "objects:.bss", "0", bss.size).len() >= 3);
    assert!(found(ObjectKind::Heap, "[heap]", "0", 0).len() >= 10);
    assert!(!found(ObjectKind::Mapping, "[arena]", "0.1", 64 << 20).is_empty());
    for path in ["0.1", "0.2"] {
        let stack = profile.objects().iter().find(|object| {
            object.kind == ObjectKind::Stack
                && object.thread.map(|t| &*profile.threads()[t.index()].path) == Some(path)
        });
        assert_eq!(stack.unwrap().name, "[stack]");
    }
    assert_eq!(profile.threads()[1].role.label().as_deref(), Some("work"));
}

#[test]
fn the_heap_has_one_identity_where_the_break_cannot_grow() {
    let program = compile(
        "heap",
        Some(
            "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n
            int main(void) { uintptr_t base = (uintptr_t)sbrk(0); char *last = 0;
              for (int i = 0; i < 6000; i++) { last = malloc(8000); memset(last, 1, 8000); }
              printf(\"%ld\\n\", (long)(((uintptr_t)last - base) / 4096)); }",
        ),
        &[],
    );
    let native = Command::new(&program).output().unwrap();
    let native: u64 = String::from_utf8_lossy(&native.stdout)
        .trim()
        .parse()
        .unwrap();
    assert!(
        (11_000..13_000).contains(&native),
        "the heap is in one piece: {native}"
    );
    let profile = profile_of(&program, "heap.numaloc", &[]);
    let heap = profile.objects().iter().position(|o| o.name == "[heap]");
    let mut pages: Vec<u64> = profile
        .pages()
        .pages()
        .iter()
        .filter(|page| page.object.map(|o| o.index()) == heap)
        .map(|page| page.object_page)
        .collect();
    pages.sort_unstable();
    pages.dedup();
    // All of the 6,000 blocks, and where they are natively to one percent.
    assert!(pages.len() as u64 >= native, "{} of {native}", pages.len());
    let last = *pages.last().unwrap();
    assert!(
        last.abs_diff(native) <= native / 100,
        "{last}, natively {native}"
    );
}

#[test]
fn input_output_status_and_children_pass_through() {
    let done = numaloc(&[
        "record",
        "-o",
        "sh.numaloc",
        "--quiet",
        "--",
        "sh",
        "-c",
        "cat; echo err >&2; exit 7",
    ])
    .stdin(std::fs::File::open(root().join("Cargo.toml")).unwrap())
    .output()
    .unwrap();
    assert_eq!(done.status.code(), Some(7));
    let manifest = std::fs::read(root().join("Cargo.toml")).unwrap();
    assert_eq!(done.stdout, manifest);
    assert_eq!(done.stderr, b"err\n");
    // The shell is 0, cat ran as a process it made.
    let profile = read("sh.numaloc");
    let paths: Vec<&str> = profile.threads().iter().map(|t| &*t.path).collect();
    assert_eq!(paths, ["0", "0/1"]);
    assert!(
        profile
            .objects()
            .iter()
            .any(|object| object.name.starts_with("cat:"))
    );
    assert!(profile.meta().complete, "{:?}", profile.meta().notes);
}

#[test]
fn processes_made_in_every_way_are_recorded() {
    let program = compile(
        "processes",
        Some(
            "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <signal.h>\n#include <stdlib.h>\n#include <string.h>\n
            #include <sys/wait.h>\n#include <unistd.h>\nextern char **environ;
            static char *stack;
            static void on_signal(int number) { char block[4096]; memset(block, number, sizeof block); stack = block; }
            int main(void) { char *words[] = {\"true\", 0}; int status, bad = 0;
              if (fork() == 0) _exit(0);
              if (vfork() == 0) { execve(\"/bin/true\", words, environ); _exit(1); }
              if (fork() == 0) { int file = open(\"/bin/true\", O_PATH | O_CLOEXEC); fexecve(file, words, environ); _exit(1); }
              if (fork() == 0) { execveat(open(\"/bin\", O_PATH), \"true\", words, environ, 0); _exit(1); }
              if (system(\"exit 5\") != 5 << 8) bad = 1;
              while (wait(&status) > 0) bad |= status;
              stack_t other = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16}; sigaltstack(&other, 0);
              struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK}; sigaction(SIGUSR1, &action, 0);
              raise(SIGUSR1);
              bad |= stack < (char *)other.ss_sp || stack >= (char *)other.ss_sp + other.ss_size;
              return bad; }",
        ),
        &[],
    );
    let profile = profile_of(&program, "processes.numaloc", &[]);
    assert!(profile.meta().complete, "{:?}", profile.meta().notes);
    let paths: Vec<&str> = profile.threads().iter().map(|t| &*t.path).collect();
    assert_eq!(paths, ["0", "0/1", "0/2", "0/3", "0/4", "0/5"]);
    let of = |path: &str, name: &str| {
        profile.objects().iter().any(|object| {
            object.name.starts_with(name)
                && object.thread.map(|t| &*profile.threads()[t.index()].path) == Some(path)
        })
    };
    for path in ["0/2", "0/3", "0/4"] {
        assert!(of(path, "true:"), "{path} executed another program");
    }
    assert!(!of("0/1", "true:"));
}

/// Two threads that name themselves, one as a collector does; each reads what the other wrote.
const NAMED: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
static _Alignas(64) volatile long cells[2][512];
static pthread_barrier_t both;
static void *work(void *argument)
{
    int me = argument != 0;
    pthread_setname_np(pthread_self(), me ? "GC Thread#0" : "cruncher");
    for (int i = 0; i < 512; i++) cells[me][i] = i;
    pthread_barrier_wait(&both);
    long sum = 0;
    for (int i = 0; i < 512; i++) sum += cells[!me][i];
    return (void *)sum;
}
int main(void)
{
    pthread_t threads[2];
    pthread_barrier_init(&both, 0, 2);
    for (long t = 0; t < 2; t++) pthread_create(&threads[t], 0, work, (void *)t);
    for (int t = 0; t < 2; t++) pthread_join(threads[t], 0);
    return 0;
}
"#;

#[test]
fn helpers_of_a_run_time_system_are_labelled_and_can_be_left_out() {
    let program = compile("named", Some(NAMED), &[]);
    let source = folder().join("named.c");
    let instrumented = folder().join("named-instrumented");
    let built = numaloc(&["cc", "--", "gcc", "-O1", "-pthread", "-o"])
        .args([&instrumented, &source])
        .status();
    assert!(built.unwrap().success());
    for (program, output) in [
        (program, "named-q.numaloc"),
        (instrumented, "named-i.numaloc"),
    ] {
        let profile = profile_of(&program, output, &[]);
        let threads = profile.threads()[1..].iter();
        let roles: Vec<_> = threads.map(|thread| thread.role.clone()).collect();
        assert_eq!(
            roles,
            [
                ThreadRole::Application("work".to_owned()),
                ThreadRole::helper("GC Thread#0")
            ]
        );
        assert!(matrix(&profile)[1][2] >= 64.0);
        let shown = numaloc(&["show", "--exclude-helpers", "--matrix", "csv", output]).output();
        let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
        // What the helper read counts for the main thread, which created it.
        let rows: Vec<Vec<f64>> = shown
            .lines()
            .map(|line| line.split(',').map(|cell| cell.parse().unwrap()).collect())
            .collect();
        assert_eq!(rows.len(), 2);
        assert!(rows[1][0] >= 64.0, "{rows:?}");
        let mapped = |flags: &[&str]| {
            let mut words = vec![
                "plan",
                "--machine",
                "numa4x4",
                "--threads",
                "scatter",
                "--json",
            ];
            words.extend(flags);
            words.push(output);
            let planned = numaloc(&words).output().unwrap();
            let planned: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
            planned["policies"][0]["mapping"].as_array().unwrap().len()
        };
        assert_eq!((mapped(&[]), mapped(&["--exclude-helpers"])), (3, 2));
    }
}

#[test]
fn clone3_is_followed_where_the_emulator_has_it_and_refused_as_it_refuses_it() {
    let program = compile(
        "clone3",
        Some(
            "#define _GNU_SOURCE\n#include <errno.h>\n#include <signal.h>\n#include <stdint.h>\n#include <string.h>\n
            #include <sys/syscall.h>\n#include <sys/wait.h>\n#include <unistd.h>\n
            int main(void) { uint64_t arguments[8] = {0}; arguments[4] = SIGCHLD; volatile char block[8192];
              long child = syscall(435, arguments, sizeof arguments);
              if (child < 0 && errno == ENOSYS) child = fork();
              if (child == 0) { memset((char *)block, 1, sizeof block); _exit(block[77]); }
              int status; waitpid(child, &status, 0);
              return WEXITSTATUS(status) != 1; }",
        ),
        &[],
    );
    let profile = profile_of(&program, "clone3.numaloc", &[]);
    assert!(profile.meta().complete, "{:?}", profile.meta().notes);
    let paths: Vec<&str> = profile.threads().iter().map(|t| &*t.path).collect();
    assert_eq!(paths, ["0", "0/1"]);
    assert!(profile.threads()[1].write_bytes >= 8192);
}

#[test]
fn scripts_run_with_their_interpreter() {
    let script = folder().join("script.sh");
    std::fs::write(&script, "#!/bin/sh\necho \"$0 $1\"\n").unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let done = record("script.numaloc", &[], &["./script.sh", "a b"]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "./script.sh a b\n");
}

#[test]
fn a_crash_and_ctrl_c_leave_a_profile_that_says_so() {
    let program = compile(
        "crash",
        Some(
            "#include <stdlib.h>\nint main(void) { volatile char a[1000]; for (int i = 0; i < 1000000; i++) a[i % 1000]++; abort(); }",
        ),
        &[],
    );
    let done = record("crash.numaloc", &["--quiet"], &[program.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(128 + 6));
    let profile = read("crash.numaloc");
    assert!(!profile.meta().complete);
    assert!(
        profile.threads()[0].accesses > 2_000_000,
        "{:?}",
        profile.threads()
    );

    let program = compile(
        "endless",
        Some(
            "#include <stdio.h>\nint main(void) { volatile long a = 0; while (a < 2000000) a++; puts(\"far\"); fflush(stdout); for (;;) a++; }",
        ),
        &[],
    );
    // A shell in whose background the tests run has it ignored.
    let mut recorder = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_numaloc")])
        .current_dir(folder())
        .args(["record", "-o", "endless.numaloc", "--"])
        .arg(&program)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut far = [0; 4];
    let said = recorder.stdout.as_mut().unwrap();
    std::io::Read::read_exact(said, &mut far).unwrap();
    // As `kill -INT` of the recorder: it passes the signal on.
    let pid = recorder.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let status = recorder.wait_with_output().unwrap().status;
    assert_eq!(status.code(), Some(128 + 2));
    let profile = read("endless.numaloc");
    assert!(!profile.meta().complete);
    assert!(profile.threads()[0].accesses > 1_000_000);
}

#[test]
fn bad_programs_and_outputs_are_refused_with_one_clear_line() {
    let refused = |command: &[&str], status: i32, words: &str| {
        let done = record("refused.numaloc", &[], command);
        let error = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(status), "{error}");
        assert!(
            error.starts_with("error: ") && error.contains(words),
            "{error}"
        );
        assert!(!folder().join("refused.numaloc").exists());
    };
    refused(&["no-such-program"], 127, "no such program on PATH");
    refused(&["./no-such-file"], 127, "./no-such-file");
    let text = folder().join("text");
    std::fs::write(&text, "hello").unwrap();
    refused(&["./text"], 126, "not executable");
    std::fs::set_permissions(&text, PermissionsExt::from_mode(0o755)).unwrap();
    refused(&["./text"], 126, "neither an ELF program nor a script");
    let mut elf = std::fs::read("/bin/true").unwrap();
    (elf[4], elf[18]) = (1, 3);
    std::fs::write(&text, &elf).unwrap();
    refused(&["./text"], 126, "32-bit x86");

    // As Debian 13's qemu-user, it can load no plugin: the program must not be started.
    let done = numaloc(&["record", "--frontend", "qemu", "-o", "refused.numaloc"])
        .args(["--", "echo", "ran"])
        .env("NUMALOC_QEMU", "/bin/true")
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(125));
    assert_eq!(String::from_utf8_lossy(&done.stdout), "");
    assert!(String::from_utf8_lossy(&done.stderr).contains("without TCG plugins"));

    std::fs::create_dir(folder().join("taken.numaloc")).unwrap();
    let done = record("taken.numaloc", &[], &["true"]);
    assert_eq!(done.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&done.stderr).contains("it exists"));
}
