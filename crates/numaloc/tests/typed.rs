//! Every command line that the documentation and the help texts show, run as a user types it, in a folder that
//! contains the files that it reads.

#[path = "typed/lines.rs"]
mod lines;
#[path = "typed/recipes.rs"]
mod recipes;
#[path = "typed/staged.rs"]
mod staged;
mod support;

use std::path::Path;

use lines::Line;

/// Lines that do not run here, by a part of them, and the reason.
const NOT_RUN: [(&str, &str); 13] = [
    (
        "numaloc plan db.numaloc --machine numa4x4 --export",
        "the tests of exports start what they are for; the best plan of the program here is none",
    ),
    (
        "numaloc validate",
        "takes minutes; the tests of `running` run it on small kernels",
    ),
    ("make demo", "the test of the repository as a whole runs it"),
    ("make test", "this is part of it"),
    ("make deb", "make test-package runs it"),
    ("make tarball", "make test-downloads runs it"),
    ("make install", "make test-package runs it"),
    (
        "perf mem record",
        "needs a processor that samples memory accesses",
    ),
    (
        "numaloc record --frontend perf -- ./app",
        "needs a processor that samples memory accesses",
    ),
    (
        "--period 1000",
        "needs a processor that samples memory accesses",
    ),
    (
        "--layer sampled_line",
        "needs a processor that samples memory accesses",
    ),
    (
        "numaloc store",
        "the tests of the Python package, which it starts, run it",
    ),
    ("--from-slurm", "needs a Slurm allocation"),
];

/// Parts of lines that are left out or made smaller here, and the reason.
const CHANGED: [(&str, &str, &str); 12] = [
    (
        "numaloc record --attach 4711 --for 60s",
        "timeout 3 sh -c 'while :; do :; done' >&- 2>&- & numaloc record --force --attach $! --for 300ms",
        "4711 stands for a service that runs",
    ),
    (
        "numaloc record --unit redis-server --for 60s",
        "timeout 3 sh -c 'while :; do :; done' >&- 2>&- & numaloc record --force --attach $! --for 300ms",
        "needs systemd and a service",
    ),
    (
        "numaloc record --cgroup system.slice/redis-server.service --for 60s",
        "timeout 3 sh -c 'while :; do :; done' >&- 2>&- & numaloc record --force --attach $! --for 300ms",
        "needs systemd and a service",
    ),
    (
        "numaloc top 4711",
        "numaloc top $$ --interval 50ms",
        "4711 stands for a service that runs",
    ),
    (
        "numaloc top --unit redis-server",
        "numaloc top $$ --interval 50ms",
        "needs systemd and a service",
    ),
    (
        "numaloc attach 4711",
        "sleep 2 & numaloc attach $! --source page-faults",
        "4711 stands for a program that runs; other sources need a PMU, NUMA balancing or soft-dirty bits",
    ),
    (
        "--frontend qemu -o app.numaloc -- mpirun -n 4",
        "--frontend qemu -o app.numaloc -- mpirun -n 1",
        "each rank takes seconds",
    ),
    (
        "--budget 10s",
        "--budget 1s",
        "a tenth of the time shows the same",
    ),
    (
        "10240 8 10 1000",
        "1024 8 10 20",
        "takes hours on two cores",
    ),
    (
        "2048 8 10 1000",
        "1024 8 10 20",
        "takes an hour on two cores",
    ),
    (
        " && eagermap matrix.csv 1,4,16",
        "",
        "EagerMap's own program is in no package",
    ),
    (
        " && srun -n 16 sh bind.sh ./app",
        "",
        "needs a Slurm allocation",
    ),
];

/// Inputs that lines with a part expect under a name that others use for something else.
const INPUTS: [(&str, &str, &str); 11] = [
    ("mpirun", "app", "ranks"),
    ("mpirun", "plan.json", "ranks.json"),
    ("numaloc ranks", "app", "ranks"),
    ("numaloc ranks", "plan.json", "ranks.json"),
    ("--machine cluster.toml", "plan.json", "cluster.json"),
    ("--machine epyc-7501 --plan", "plan.json", "locality.json"),
    ("numaloc compare --plan", "deloc.json", "plan.json"),
    ("numaloc lab", "plan.json", "lab.json"),
    ("numaloc lab compare", "joint.json", "lab.json"),
    ("numaloc lab compare", "locality.json", "lab.json"),
    ("--nodes 2 --cpus 4 --json --plan", "plan.json", "two.json"),
];

#[test]
fn commands_of_the_documentation_run() {
    run(|line| !is_of_help(line) && !boots_a_guest(line));
}

#[test]
fn commands_of_the_help_texts_run() {
    run(|line| is_of_help(line) && !boots_a_guest(line));
}

#[test]
#[ignore = "boots a virtual machine for each line: make test-lab"]
fn commands_that_boot_the_virtual_machine_run() {
    run(boots_a_guest);
}

#[test]
fn exceptions_are_for_lines_that_exist() {
    let lines = lines::all(&support::root());
    let exists = |part: &str| lines.iter().any(|line| line.command.contains(part));
    for part in NOT_RUN.map(|(part, _)| part) {
        assert!(exists(part), "no page shows `{part}`");
    }
    for part in CHANGED.map(|(part, _, _)| part) {
        assert!(exists(part), "no page shows `{part}`");
    }
}

fn is_of_help(line: &Line) -> bool {
    line.page.starts_with("numaloc ")
}

fn boots_a_guest(line: &Line) -> bool {
    line.command.starts_with("numaloc lab")
}

/// Runs the chosen lines, page by page, and reports all that fail.
fn run(chosen: impl Fn(&Line) -> bool) {
    let mut failures = String::new();
    let mut ran = 0;
    let mut stage: Option<(String, tempfile::TempDir)> = None;
    let is_run = |line: &Line| !NOT_RUN.iter().any(|(part, _)| line.command.contains(part));
    let all = lines::all(&support::root());
    for line in all.iter().filter(|line| chosen(line) && is_run(line)) {
        if stage.as_ref().is_none_or(|(page, _)| *page != line.page) {
            stage = Some((line.page.clone(), staged::folder()));
        }
        let (_, folder) = stage.as_ref().expect("it was made");
        ran += 1;
        let begin = std::time::Instant::now();
        if let Err(why) = run_line(folder.path(), line) {
            failures += &format!("{}: {}\n{why}\n", line.page, line.command);
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!("{seconds:6.2} s  {}: {}", line.page, line.command);
    }
    assert!(ran >= 5, "{ran} lines found");
    assert!(failures.is_empty(), "of {ran} lines:\n{failures}");
}

/// Runs a line: it must succeed, write its outputs, and print what the page shows.
fn run_line(folder: &Path, line: &Line) -> Result<(), String> {
    let mut command = line.command.clone();
    for (part, instead, _) in CHANGED {
        command = command.replace(part, instead);
    }
    staged::point(folder, "app", "app");
    for (part, name, input) in INPUTS {
        if command.contains(part) {
            staged::point(folder, name, input);
        }
    }
    let outputs = outputs(&command);
    for name in &outputs {
        staged::remove(&folder.join(name));
    }
    let run = staged::shell(folder, &command).output().expect("bash runs");
    let printed = String::from_utf8_lossy(&run.stdout);
    if !run.status.success() {
        return Err(format!("{}\n{printed}", run.status));
    }
    for name in outputs {
        if !folder.join(&name).exists() {
            return Err(format!("{name} was not written\n{printed}"));
        }
    }
    contains(&printed, &line.shown)
}

/// Whether `printed` has the lines that a page shows, in whose place `...` leaves out any number.
fn contains(printed: &str, shown: &[String]) -> Result<(), String> {
    let printed_words = words(printed);
    for part in shown.split(|shown| shown == "...") {
        let part = words(&part.join("\n"));
        if !printed_words.contains(&part) {
            return Err(format!("not printed: {part}\nbut: {printed_words}"));
        }
    }
    Ok(())
}

/// The files and folders that a line writes.
fn outputs(command: &str) -> Vec<String> {
    let tokens: Vec<&str> = command.split_whitespace().collect();
    let mut names: Vec<String> = tokens
        .windows(2)
        .filter(|pair| ["-o", "--output", ">"].contains(&pair[0]))
        .map(|pair| pair[1].to_owned())
        .collect();
    names.extend(
        tokens
            .iter()
            .filter_map(|token| token.strip_prefix("--json="))
            .map(str::to_owned),
    );
    let records = command.contains("numaloc record ") || command.contains("numaloc ./");
    if names.is_empty() && records {
        let program = tokens.iter().find_map(|token| token.strip_prefix("./"));
        names.extend(program.map(|name| format!("{name}.numaloc")));
        if tokens.contains(&"--open") {
            names.push("app.html".to_owned());
        }
    }
    if names.is_empty() && command == "numaloc report app.numaloc" {
        names.push("app.html".to_owned());
    }
    names.retain(|name| name != "-");
    names
}

/// Printed text without its numbers and their units of time, those of threads (`T5`) and drawings: lines may be wrapped
/// otherwise, and recordings differ a little.
fn words(text: &str) -> String {
    let is_number = |word: &str| {
        let word = word.trim_start_matches(['(', 'T']);
        word.starts_with(|first: char| first.is_ascii_digit())
    };
    let is_time = |word: &str| {
        let unit = word.trim_end_matches([',', ';', ')']);
        ["ns", "us", "ms", "s"].contains(&unit)
    };
    let is_drawn = |word: &str| !word.contains(|c: char| c.is_ascii_alphanumeric());
    let words = text
        .split_whitespace()
        .filter(|word| !is_number(word) && !is_time(word) && !is_drawn(word));
    words.collect::<Vec<_>>().join(" ")
}
