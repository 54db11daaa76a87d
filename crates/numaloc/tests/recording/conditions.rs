//! Conditions that shape a recording apart from the program: environment, distribution of work, limits, streams,
//! signals.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{chosen, compile, fails, numaloc, ok, workload};
use numaloc_model::Profile;
use numaloc_model::conditions::{Repeatability, WorkSharing};
use serde_json::Value;

/// A loop with the schedule that its second argument to the compiler says, in which threads write and read each other's
/// lines.
const LOOP: &str = "
#include <stdio.h>
static double a[1 << 12];
int main(void)
{
    for (int round = 0; round < 4; round++) {
#pragma omp parallel for schedule(SCHEDULE)
        for (int i = 1; i < (1 << 12) - 1; i++)
            a[i] += a[i + 1] + 1;
    }
    printf(\"done\\n\");
    return 0;
}
";

fn openmp(folder: &Path, name: &str, schedule: &str, instrumented: bool) -> PathBuf {
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, LOOP).unwrap();
    let mut command = if instrumented {
        numaloc(&["cc", "--", "gcc"])
    } else {
        Command::new("gcc")
    };
    ok(command
        .args(["-O1", "-fopenmp"])
        .arg(format!("-DSCHEDULE={schedule}"))
        .arg("-o")
        .arg(&program)
        .arg(&source));
    program
}

/// Records with these variables set; returns the profile.
fn recorded(output: &Path, program: &Path, variables: &[(&str, &str)], more: &[&str]) -> Profile {
    ok(numaloc(&["record", "--quiet", "--force", "-o"])
        .arg(output)
        .args(more)
        .arg("--")
        .arg(program)
        .envs(variables.iter().copied()));
    numaloc_formats::profile::read(output).unwrap()
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&ok(command)).unwrap()
}

#[test]
fn loops_whose_parts_go_to_whoever_is_free_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("p.numaloc");
    let threads = ("OMP_NUM_THREADS", "3");
    for instrumented in [false, true] {
        let known = |schedule: &str, variables: &[(&str, &str)]| {
            let name = format!("{schedule}-{instrumented}").replace(',', "-");
            let program = openmp(folder.path(), &name, schedule, instrumented);
            let profile = recorded(&output, &program, variables, &[]);
            let conditions = profile.meta().conditions.clone();
            (
                conditions.repeatability(profile.threads().len()),
                conditions,
            )
        };
        let (found, conditions) = known("dynamic,16", &[threads]);
        assert_eq!(found, Repeatability::Dynamic, "{conditions:?}");
        assert_eq!(conditions.sharing[0].0, WorkSharing::DynamicLoop);
        let shown = json(numaloc(&["--json", "show"]).arg(&output));
        assert_eq!(shown["repeatability"]["thread_plan_holds"], false);
        let plan =
            json(numaloc(&["--json", "plan", "--machine", "numa:2 core:2 pu:1"]).arg(&output));
        let advice = plan["repeatability"]["advice"].as_str().unwrap();
        assert!(advice.contains("schedule(static)"), "{advice}");
        let page = ok(numaloc(&["show", "--why"]).arg(&output));
        assert!(page.contains("a thread plan will not hold"), "{page}");

        let (found, conditions) = known("static", &[threads]);
        assert_eq!(found, Repeatability::Assumed, "{conditions:?}");
        let (found, conditions) = known("runtime", &[threads, ("OMP_SCHEDULE", "guided")]);
        assert_eq!(found, Repeatability::Dynamic, "{conditions:?}");
        let (found, conditions) = known("runtime", &[threads, ("OMP_SCHEDULE", "static,8")]);
        assert_eq!(found, Repeatability::Assumed, "{conditions:?}");
    }
}

/// Two threads, built with the given compiler options.
const MARKED: &str = r#"
#include <pthread.h>
MARK
static void *work(void *sum) { ++*(long *)sum; return 0; }
int main(void)
{
    pthread_t thread;
    long sum = 0;
    CALL;
    pthread_create(&thread, 0, work, &sum);
    pthread_join(thread, 0);
    return sum != 1;
}
"#;

#[test]
fn run_time_systems_without_symbols_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("p.numaloc");
    let virtual_machine = folder.path().join("libjvm.so");
    let source = folder.path().join("jvm.c");
    std::fs::write(&source, "int JNI_CreateJavaVM(void) { return 0; }").unwrap();
    ok(Command::new("gcc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&virtual_machine, &source]));
    let section = r#"__attribute__((used, section(".go.buildinfo"))) static int info[8] = {1};"#;
    let constant = r#"__attribute__((used)) static const char *const at = "/rayon-core-1.12.1/src/registry.rs";"#;
    for (name, mark, call, by) in [
        ("go", section, "", Some("Go's scheduler")),
        ("rayon", constant, "", Some("Rayon's pool")),
        (
            "java",
            "int JNI_CreateJavaVM(void);",
            "JNI_CreateJavaVM()",
            Some("JNI_CreateJavaVM"),
        ),
        ("plain", "", "", None),
    ] {
        let (source, program) = (
            folder.path().join(format!("{name}.c")),
            folder.path().join(name),
        );
        let text = MARKED.replace("MARK", mark).replace("CALL", call);
        std::fs::write(&source, text).unwrap();
        let mut compiler = Command::new("gcc");
        compiler
            .args(["-s", "-pthread", "-o"])
            .args([&program, &source]);
        if name == "java" {
            compiler.arg(&virtual_machine);
        }
        ok(&mut compiler);
        let conditions = recorded(&output, &program, &[], &[])
            .meta()
            .conditions
            .clone();
        let found: Vec<_> = conditions
            .sharing
            .iter()
            .map(|(_, by)| by.as_str())
            .collect();
        assert_eq!(found, Vec::from_iter(by), "{name}");
        let shown = json(numaloc(&["--json", "show"]).arg(&output));
        assert_eq!(shown["repeatability"]["thread_plan_holds"], by.is_none());
    }
}

/// Four threads; in run n, thread i reads what thread i + n wrote. Runs are counted in a file.
const SHIFTS: &str = "
#include <pthread.h>
#include <stdio.h>
static long lines[4][8];
static pthread_barrier_t barrier;
static long shift, sums[4][8];
static void *work(void *argument)
{
    long i = (long)argument;
    for (int round = 0; round < 200; round++) {
        lines[i][0] = round;
        pthread_barrier_wait(&barrier);
        sums[i][0] += lines[(i + shift) % 4][0];
        pthread_barrier_wait(&barrier);
    }
    return 0;
}
int main(int argc, char **argv)
{
    FILE *file = fopen(argv[1], \"a+\");
    rewind(file);
    while (fgetc(file) != EOF)
        shift++;
    shift = shift % 2 + 1;
    fputc('x', file);
    fclose(file);
    pthread_barrier_init(&barrier, 0, 4);
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, work, (void *)i);
    for (long i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    return 0;
}
";

#[test]
fn several_recordings_say_whether_they_agree() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("p.numaloc");
    let ring = workload("ring");
    let profile = recorded(
        &output,
        &ring,
        &[("OMP_NUM_THREADS", "4")],
        &["--repeat", "2"],
    );
    let repeats = profile.meta().conditions.repeats.unwrap();
    assert_eq!((repeats.runs, repeats.same_threads), (2, true));
    assert!(repeats.correlation.unwrap() > 0.9, "{repeats:?}");
    let found = profile
        .meta()
        .conditions
        .repeatability(profile.threads().len());
    assert_eq!(found, Repeatability::Measured);

    let shifts = compile(folder.path(), "shifts", SHIFTS, false);
    let done = numaloc(&["record", "--force", "--repeat", "2", "-o"])
        .arg(&output)
        .arg("--")
        .arg(&shifts)
        .arg(folder.path().join("runs"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("not repeatable"), "{said}");
    let profile = numaloc_formats::profile::read(&output).unwrap();
    let found = profile
        .meta()
        .conditions
        .repeatability(profile.threads().len());
    assert_eq!(found, Repeatability::Differs);
}

/// Runs a line in a shell that finds `numaloc`, with these variables; none of those that a test's own surroundings may
/// have.
fn shell(folder: &Path, line: &str, variables: &[(&str, &str)]) -> Output {
    let own = Path::new(env!("CARGO_BIN_EXE_numaloc")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", own.display()));
    for name in numaloc_model::conditions::VARIABLES {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).output().unwrap()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_environment_comes_back_in_the_lines_to_paste() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    openmp(here, "app", "static", false);
    let set = [("OMP_NUM_THREADS", "3"), ("OMP_PLACES", "{0}")];
    let done = shell(here, "numaloc record -o app.numaloc -- ./app", &set);
    assert!(done.status.success(), "{}", words(&done));
    let profile = numaloc_formats::profile::read(&here.join("app.numaloc")).unwrap();
    let kept = &profile.meta().conditions.environment;
    let expected = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(kept, &expected);

    let made = shell(
        here,
        "numaloc plan app.numaloc --machine this --threads numaloc --pages locality --anyway -o app.json",
        &[],
    );
    assert!(made.status.success(), "{}", words(&made));
    let report = "numaloc report app.numaloc app.json -o report.html >/dev/null; numaloc --json show app.numaloc";
    let shown: Value = serde_json::from_slice(&shell(here, report, &[]).stdout).unwrap();
    let next = shown["next"].as_array().unwrap();
    let compare = next.last().unwrap().as_str().unwrap();
    let prefix = "OMP_NUM_THREADS=3 OMP_PLACES='{0}' numaloc ";
    assert!(compare.starts_with(prefix), "{compare}");

    // As the last lines of "Run next" begin once there is a plan. The run-time system would bind threads: overruled.
    let run = format!("{prefix}run --plan app.json --enforce --require 100 -- ./app");
    let done = shell(here, &run, &[]);
    assert_eq!(done.status.code(), Some(0), "{}", words(&done));
    assert!(
        !words(&done).contains("was recorded with"),
        "{}",
        words(&done)
    );
    let run = "numaloc run --plan app.json --enforce --require 100 -- ./app";
    let fewer = shell(
        here,
        run,
        &[("OMP_NUM_THREADS", "2"), ("OMP_PLACES", "{0}")],
    );
    let said = words(&fewer);
    assert_eq!(fewer.status.code(), Some(3), "{said}");
    let differs = "the plan was recorded with OMP_NUM_THREADS=3, now OMP_NUM_THREADS=2";
    assert!(said.contains(differs), "{said}");
    assert!(said.contains("2 of 3 where planned, 1 not found"), "{said}");
    let more = shell(
        here,
        run,
        &[("OMP_NUM_THREADS", "5"), ("OMP_PLACES", "{0}")],
    );
    let said = words(&more);
    assert_eq!(more.status.code(), Some(3), "{said}");
    assert!(
        said.contains("3 of 3 where planned, 2 more that are not in the plan"),
        "{said}"
    );
    assert!(said.contains("only 3 of 5 threads"), "{said}");
}

#[test]
fn limits_that_a_recording_cannot_live_with_are_refused_before_the_program_starts() {
    let folder = tempfile::tempdir().unwrap();
    let own = env!("CARGO_BIN_EXE_numaloc");
    let instrumented = compile(folder.path(), "app", "int main(void) { return 0; }", true);
    let touch = format!("touch {}", folder.path().join("ran").display());
    for (limit, says) in [("-v 20000000", "(ulimit -v)"), ("-f 8", "(ulimit -f)")] {
        let script = format!("ulimit {limit}; exec {own} record -o p.numaloc -- sh -c '{touch}'");
        let said = fails(
            Command::new("sh")
                .args(["-c", &script])
                .current_dir(folder.path()),
            125,
        );
        assert!(said.contains(says), "{said}");
        let app = instrumented.display();
        let script = format!("ulimit {limit}; exec {own} record -o p.numaloc -- '{app}'");
        let said = fails(
            Command::new("sh")
                .args(["-c", &script])
                .current_dir(folder.path()),
            125,
        );
        assert!(said.contains(says), "{said}");
    }
    assert!(!folder.path().join("ran").exists());
    // A limit that is not reached.
    let script =
        format!("ulimit -f 4000000; exec {own} --quiet record -o p.numaloc -- sh -c 'exit 4'");
    let done = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(4), "{}", words(&done));
}

#[test]
fn closed_standard_streams_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let own = env!("CARGO_BIN_EXE_numaloc");
    let text = "#include <stdio.h>\nint main(void) { getchar(); puts(\"out\"); fputs(\"err\", stderr); return 3; }";
    for instrumented in [false, true] {
        let app = compile(folder.path(), "app", text, instrumented);
        for closed in chosen(0..8, &[1, 6, 7]) {
            let close = |bit: i32, how: &'static str| if closed & bit != 0 { how } else { "" };
            let streams = [close(1, "<&-"), close(2, ">&-"), close(4, "2>&-")].join(" ");
            let app = app.display();
            let script = format!("exec {own} record --force -o p.numaloc -- '{app}' {streams}");
            let done = Command::new("sh")
                .args(["-c", &script])
                .current_dir(folder.path())
                .stdin(Stdio::null())
                .output()
                .unwrap();
            assert_eq!(done.status.code(), Some(3), "{streams}: {}", words(&done));
            let profile = numaloc_formats::profile::read(&folder.path().join("p.numaloc")).unwrap();
            assert!(profile.meta().complete, "{streams}");
            let out = if closed & 2 == 0 { "out\n" } else { "" };
            assert_eq!(String::from_utf8_lossy(&done.stdout), out, "{streams}");
        }
    }
}

/// Waits until `done` is true.
fn until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn alarms_and_terminations_reach_the_program_and_the_profile_is_written() {
    let folder = tempfile::tempdir().unwrap();
    for signal in ["ALRM", "VTALRM", "PROF", "TERM", "IO", "WINCH"] {
        let (output, ready) = (format!("{signal}.numaloc"), folder.path().join(signal));
        let script = format!(
            "trap 'exit 9' {signal}; : > {}; while :; do :; done",
            ready.display()
        );
        let mut child = numaloc(&[
            "--quiet", "record", "-o", &output, "--", "sh", "-c", &script,
        ])
        .current_dir(folder.path())
        .spawn()
        .unwrap();
        until("the program begins", || ready.exists());
        ok(Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]));
        assert_eq!(child.wait().unwrap().code(), Some(9), "{signal}");
        let profile = numaloc_formats::profile::read(&folder.path().join(&output)).unwrap();
        assert!(profile.meta().complete, "{signal}");
    }
}

#[test]
fn daemons_that_stay_behind_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = "
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int ready[2];
    pipe(ready);
    if (fork() == 0) {
        setsid();
        FILE *file = fopen(argv[1], \"w\");
        fprintf(file, \"%d\", (int)getpid());
        fclose(file);
        for (int stream = 0; stream < 3; stream++)
            close(stream);
        close(ready[0]);
        close(ready[1]);
        sleep(600);
        return 0;
    }
    char byte;
    close(ready[1]);
    read(ready[0], &byte, 1);
    return 5;
}
";
    for instrumented in [false, true] {
        let app = compile(folder.path(), "hidden", text, instrumented);
        let pid_file = folder.path().join("pid");
        let done = numaloc(&["record", "--force", "-o", "p.numaloc", "--"])
            .arg(&app)
            .arg(&pid_file)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = words(&done);
        let pid = std::fs::read_to_string(&pid_file).unwrap();
        ok(Command::new("kill").arg(&pid));
        assert_eq!(done.status.code(), Some(5), "{said}");
        let named = said.lines().find(|line| line.contains("still runs"));
        let named = named.unwrap_or_else(|| panic!("{said}"));
        assert!(
            named.contains(&format!("process {pid} (")) && named.contains("hidden"),
            "{named}"
        );
    }
}

/// Leaves a process behind that waits for SIGTERM or, without an argument, works for a second; either writes `done`.
const DAEMON: &str = "
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static volatile long cells[1 << 16];
static volatile sig_atomic_t asked;
static void note(int signal) { asked = signal; }
int main(int argc, char **argv)
{
    signal(SIGTERM, note);
    if (fork() != 0)
        return 5;
    setsid();
    if (argc > 1) {
        fclose(fopen(\"ready\", \"w\"));
        while (!asked)
            usleep(1000);
    }
    for (int i = 0; i < 1 << 16; i++)
        cells[i] += i;
    sleep(1);
    fclose(fopen(\"done\", \"w\"));
    return 0;
}
";

#[test]
fn daemons_are_recorded_to_their_end_if_the_recorder_waits() {
    let folder = tempfile::tempdir().unwrap();
    for (instrumented, frontend) in [(false, "qemu"), (false, "native"), (true, "auto")] {
        let app = compile(folder.path(), "daemon", DAEMON, instrumented);
        let done = folder.path().join("done");
        let output = numaloc(&["record", "--force", "--wait", "--frontend", frontend])
            .args(["-o", "p.numaloc", "--"])
            .arg(&app)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = words(&output);
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert!(said.contains("--wait waits for"), "{said}");
        std::fs::remove_file(&done).expect("the daemon has ended");
        let profile = numaloc_formats::profile::read(&folder.path().join("p.numaloc")).unwrap();
        assert!(profile.meta().complete, "{frontend}");
        assert!(!said.contains("still runs"), "{said}");
        let daemon = &profile.threads()[1];
        assert!(daemon.write_bytes >= 8 << 16, "{frontend}: {daemon:?}");
    }
}

#[test]
fn daemons_that_are_waited_for_are_asked_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let app = compile(folder.path(), "daemon", DAEMON, false);
    let mut recorder = numaloc(&["record", "--wait", "-o", "p.numaloc", "--"])
        .arg(&app)
        .arg("until asked")
        .current_dir(folder.path())
        .stderr(std::fs::File::create(folder.path().join("said")).unwrap())
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(folder.path().join("said")).unwrap();
    until("the daemon begins", || folder.path().join("ready").exists());
    until("the recorder waits", || said().contains("--wait waits for"));
    ok(Command::new("kill").arg(recorder.id().to_string()));
    assert_eq!(recorder.wait().unwrap().code(), Some(5), "{}", said());
    assert!(folder.path().join("done").exists(), "{}", said());
    let profile = numaloc_formats::profile::read(&folder.path().join("p.numaloc")).unwrap();
    assert!(profile.meta().complete && profile.threads().len() == 2);
}

#[test]
fn a_program_that_deletes_the_recording_is_recorded_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let text = "
#include <stdlib.h>
static volatile int cells[4096];
int main(void)
{
    system(\"rm -rf .[!.]*\");
    for (int i = 0; i < 100000; i++)
        cells[i & 4095]++;
    system(\"exit 0\");
    return 6;
}
";
    for instrumented in [false, true] {
        let app = compile(folder.path(), "cleans", text, instrumented);
        let done = numaloc(&["record", "--force", "-o", "p.numaloc", "--"])
            .arg(&app)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = words(&done);
        assert_eq!(done.status.code(), Some(6), "{said}");
        assert!(
            said.contains("files of the recording, which were restored"),
            "{said}"
        );
        let profile = numaloc_formats::profile::read(&folder.path().join("p.numaloc")).unwrap();
        assert!(
            profile.threads().iter().any(|thread| thread.path == "0"),
            "{said}"
        );
        assert!(
            profile.threads().iter().map(|t| t.accesses).sum::<u64>() > 100_000,
            "{said}"
        );
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .filter(|name| name.to_string_lossy().starts_with('.'))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
