//! What `record` says at its end, what a program in the place of a command does, and `--open`: nothing of it changes
//! the program's output or exit status.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{compile, fails, numaloc};

/// Two threads use what the first of them wrote; ends with status 3.
const PROGRAM: &str = "#include <pthread.h>\n#include <stdio.h>\nstatic char memory[1 << 20];\n\
    static void *work(void *unused) { (void)unused; for (int i = 0; i < 1 << 20; i++) memory[i]++; return 0; }\n\
    int main(void) { pthread_t thread; work(0); pthread_create(&thread, 0, work, 0); work(0);\n\
    pthread_join(thread, 0); puts(\"out\"); fputs(\"err\\n\", stderr); return 3; }";

/// A folder with the program `app`.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let built = compile(folder.path(), "app", PROGRAM, false);
    let app = folder.path().join("app");
    std::fs::rename(built, &app).unwrap();
    (folder, app)
}

/// `numaloc ARGS` in `folder`, without a terminal and without a display.
fn run(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = numaloc(args);
    command.current_dir(folder).stdin(Stdio::null());
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    said(&mut command)
}

fn said(command: &mut Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A program `name` in `folder`.
fn script(folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Whether `text` ends with an answer of at most five lines and a command.
fn ends_with_an_answer(text: &str, next: &str) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let Some(first) = lines
        .iter()
        .position(|line| line.starts_with("Problem  ") || line.starts_with("Answer   "))
    else {
        return false;
    };
    let answer = &lines[first..];
    let words = [
        "Problem ", "Answer ", "Where ", "Do ", "Gives ", "Sure ", "also: ",
    ];
    let (last, answer) = answer.split_last().unwrap();
    let is_word = |line: &&str| words.iter().any(|word| line.starts_with(word));
    *last == format!("Next     {next}")
        && answer.len() <= 6
        && answer.iter().all(is_word)
        && answer.iter().any(|line| line.starts_with("Sure "))
}

/// What follows from memory that the main thread initialises.
const ADVISE: &str = "numaloc record --advise -o app-traced.numaloc -- ./app";

#[test]
fn a_recording_ends_with_the_answer_on_standard_error() {
    let (folder, _) = folder();
    let (status, stdout, stderr) = run(folder.path(), &["record", "--", "./app"]);
    assert_eq!((status, &*stdout), (Some(3), "out\n"), "{stderr}");
    assert!(
        stderr.contains("numaloc: app.numaloc: 2 threads"),
        "{stderr}"
    );
    assert!(ends_with_an_answer(&stderr, ADVISE), "{stderr}");
    let args = ["record", "--quiet", "-o", "q.numaloc", "--", "./app"];
    let (status, stdout, stderr) = run(folder.path(), &args);
    assert_eq!((status, &*stdout, &*stderr), (Some(3), "out\n", "err\n"));
    // Standard output is the object alone.
    let args = ["record", "--json", "-o", "j.numaloc", "--", "true"];
    let (_, stdout, stderr) = run(folder.path(), &args);
    assert!(
        serde_json::from_str::<serde_json::Value>(&stdout).is_ok(),
        "{stdout}"
    );
    assert!(
        ends_with_an_answer(&stderr, "numaloc show j.numaloc --why"),
        "{stderr}"
    );
}

#[test]
fn a_recording_without_an_answer_succeeds() {
    let (folder, _) = folder();
    let mut command = numaloc(&["record", "--", "./app"]);
    command.current_dir(folder.path());
    // The answer needs a machine, the recording does not.
    command.env("HWLOC_COMPONENTS", "-linux,stop");
    let (status, stdout, stderr) = said(&mut command);
    assert_eq!((status, &*stdout), (Some(3), "out\n"), "{stderr}");
    let last = stderr.lines().last().unwrap();
    assert!(last.starts_with("numaloc: no answer here, "), "{stderr}");
    assert!(
        last.ends_with("the profile is complete: numaloc show app.numaloc"),
        "{stderr}"
    );
}

#[test]
fn a_program_in_the_place_of_a_command_is_recorded() {
    let (folder, _) = folder();
    let here = folder.path();
    let (status, stdout, stderr) = run(here, &["./app"]);
    assert_eq!((status, &*stdout), (Some(3), "out\n"), "{stderr}");
    assert!(stderr.starts_with("numaloc: recording ./app\n"), "{stderr}");
    assert!(ends_with_an_answer(&stderr, ADVISE), "{stderr}");
    // A program on PATH, with options before it, and arguments that are its own.
    let args = ["-q", "-o", "e.numaloc", "env", "printf", "%s", "x"];
    let (status, stdout, stderr) = run(here, &args);
    assert_eq!((status, &*stdout, &*stderr), (Some(0), "x", ""));
    let (_, _, stderr) = run(here, &["true"]);
    let remark = "numaloc: true is no command of numaloc: recording the program /";
    assert!(stderr.starts_with(remark), "{stderr}");
    assert!(here.join("true.numaloc").is_dir());
    // Whoever asks for an option of numaloc behind the program is asked which is meant.
    let refused = fails(numaloc(&["./app", "--open"]).current_dir(here), 2);
    assert!(
        refused.contains("numaloc record -- ./app --open"),
        "{refused}"
    );
    let (status, _, _) = run(here, &["-o", "d.numaloc", "--", "./app", "--open"]);
    assert_eq!(status, Some(3));
}

#[test]
fn lines_of_a_command_are_separated_by_blanks() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    run(here, &["-q", "sh", "-c", "true\n\ttrue"]);
    let (_, page, _) = run(here, &["show", "--all", "sh.numaloc"]);
    assert!(page.contains("sh -c true  true"), "{page}");
}

#[test]
fn commands_take_precedence_over_programs_and_mistyped_ones_are_explained() {
    let (folder, _) = folder();
    let here = folder.path();
    script(here, "show", "echo the program");
    let path = format!("{}:{}", here.display(), std::env::var("PATH").unwrap());
    let (status, stdout, _) = said(numaloc(&["show", "--help"]).env("PATH", &path));
    assert!(
        status == Some(0) && !stdout.contains("the program"),
        "{stdout}"
    );
    let (status, _, stderr) = run(here, &["shwo", "app.numaloc"]);
    assert!(
        status == Some(2) && stderr.ends_with("  try: show\n"),
        "{stderr}"
    );
    let stderr = fails(numaloc(&["app"]).current_dir(here), 2);
    assert!(stderr.contains("try: numaloc ./app records"), "{stderr}");
    let (status, _, stderr) = run(here, &["./no-such-app"]);
    assert!(
        status == Some(127) && stderr.contains("./no-such-app"),
        "{stderr}"
    );
    run(here, &["record", "-q", "./app"]);
    let stderr = fails(numaloc(&["app.numaloc"]).current_dir(here), 2);
    assert!(stderr.contains("try: numaloc show app.numaloc"), "{stderr}");
}

#[test]
fn the_report_is_opened_where_there_is_a_display() {
    let (folder, _) = folder();
    let here = folder.path();
    let (status, stdout, stderr) = run(here, &["--open", "./app"]);
    assert_eq!((status, &*stdout), (Some(3), "out\n"), "{stderr}");
    let page = here.canonicalize().unwrap().join("app.html");
    let line = format!("numaloc: no display: the report is {}", page.display());
    assert_eq!(stderr.lines().last(), Some(&*line), "{stderr}");
    assert!(std::fs::read_to_string(&page).unwrap().contains("</html>"));
    // The opener gets the page.
    let tools = here.join("tools");
    std::fs::create_dir(&tools).unwrap();
    script(&tools, "xdg-open", "echo \"$1\" > opened");
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let open = |args: &[&str]| {
        let mut command = numaloc(args);
        command
            .current_dir(here)
            .env("DISPLAY", ":99")
            .env("PATH", &path);
        said(&mut command)
    };
    let (status, _, stderr) = open(&["report", "--open", "-o", "r.html", "app.numaloc"]);
    assert!(
        status == Some(0) && stderr.contains("numaloc: opened /"),
        "{stderr}"
    );
    let opened = std::fs::read_to_string(here.join("opened")).unwrap();
    assert_eq!(
        opened.trim(),
        page.with_file_name("r.html").display().to_string()
    );
    script(&tools, "xdg-open", "exit 4");
    let (status, _, stderr) = open(&["report", "--open", "--force", "app.numaloc"]);
    assert!(status == Some(0), "{stderr}");
    assert!(
        stderr.contains("xdg-open ended with exit status: 4: the report is /"),
        "{stderr}"
    );
}

#[test]
fn programs_of_other_people_are_recorded_with_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let text: String = (0..20_000)
        .map(|i| format!("{}\n", i * 7919 % 20_011))
        .collect();
    std::fs::write(here.join("in"), text).unwrap();
    let lines: [&[&str]; 3] = [
        &["sort", "-n", "--parallel=2", "in"],
        &["/usr/bin/python3", "-c", "print(sum(range(1000)))"],
        &["xz", "-c", "-T2", "--block-size=30KiB", "in"],
    ];
    for line in lines
        .into_iter()
        .filter(|line| numaloc_launch::find(line[0].as_ref()).is_ok())
    {
        let native = Command::new(line[0])
            .args(&line[1..])
            .current_dir(here)
            .output()
            .unwrap();
        let mut command = numaloc(&["-o", "p.numaloc", "--force", "--"]);
        let recorded = command.args(line).current_dir(here).output().unwrap();
        assert_eq!(
            (recorded.status, recorded.stdout),
            (native.status, native.stdout),
            "{line:?}"
        );
        let stderr = String::from_utf8(recorded.stderr).unwrap();
        assert!(
            ends_with_an_answer(&stderr, "numaloc show p.numaloc --why"),
            "{stderr}"
        );
    }
}
