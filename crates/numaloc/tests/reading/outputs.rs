//! How commands treat their outputs: nothing foreign is replaced, refusals come early, and unwritable streams are
//! detected.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::is_full;

const MACHINE: &str = "numa:2 core:2 pu:1";

fn numaloc(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("numaloc"));
    let command = command.args(arguments).current_dir(folder);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Runs a shell script in which `numaloc` is the program under test.
fn shell(folder: &Path, script: &str) -> Output {
    let program = assert_cmd::cargo::cargo_bin("numaloc");
    let script = format!("numaloc() {{ '{}' \"$@\"; }}\n{script}", program.display());
    let mut command = Command::new("bash");
    command
        .args(["-c", &script])
        .current_dir(folder)
        .output()
        .unwrap()
}

fn ok(output: Output) -> String {
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {words}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn refused(output: Output, status: i32, says: &str) {
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{words}");
    assert!(
        words.starts_with("error: ") && words.contains(says),
        "{words}"
    );
}

/// A folder with a profile `p.numaloc`, a plan `plan.json`, the same for MPI ranks in `ranks.json`, and a host file.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("m.csv"), "0,5,1,0\n5,0,2,1\n1,2,0,9\n0,1,9,0\n").unwrap();
    std::fs::write(at.join("hosts"), "a\nb\n").unwrap();
    ok(numaloc(at, &["import", "m.csv", "-o", "p.numaloc"]));
    ok(numaloc(
        at,
        &["plan", "p.numaloc", "--machine", MACHINE, "-o", "plan.json"],
    ));
    let plan = std::fs::read_to_string(at.join("plan.json")).unwrap();
    let mut parts = plan.split("\"path\": \"");
    let head = parts.next().unwrap().to_owned();
    let ranks = parts.enumerate().fold(head, |plan, (rank, rest)| {
        let (_, rest) = rest.split_once('"').unwrap();
        format!("{plan}\"path\": \"r{rank}\"{rest}")
    });
    std::fs::write(at.join("ranks.json"), ranks).unwrap();
    folder
}

/// Every command that writes one file, up to the file's name.
const WRITERS: [&[&str]; 5] = [
    &["plan", "p.numaloc", "--machine", MACHINE, "-o"],
    &["export", "p.numaloc", "--format", "csv", "-o"],
    &["report", "p.numaloc", "--machine", MACHINE, "-o"],
    &["topology", "--hostfile", "hosts", "--host", MACHINE, "-o"],
    &["ranks", "ranks.json", "--machine", MACHINE, "-o"],
];

#[test]
fn no_command_replaces_a_file_without_force_or_anything_else_at_all() {
    let folder = folder();
    let at = folder.path();
    std::fs::create_dir(at.join("folder")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at.join("socket")).unwrap();
    for writer in WRITERS {
        let to = |name| [writer, &[name]].concat();
        let forced = |name| [writer, &[name, "--force"]].concat();
        std::fs::write(at.join("mine"), "precious").unwrap();
        std::fs::set_permissions(at.join("mine"), PermissionsExt::from_mode(0o600)).unwrap();
        refused(numaloc(at, &to("mine")), 1, "it exists");
        assert_eq!(std::fs::read(at.join("mine")).unwrap(), b"precious");
        let _ = std::fs::remove_file(at.join("link"));
        symlink("mine", at.join("link")).unwrap();
        refused(numaloc(at, &to("link")), 1, "it exists");
        ok(numaloc(at, &forced("link")));
        let about = std::fs::symlink_metadata(at.join("mine")).unwrap();
        assert!(about.is_file() && about.len() > 8 && about.mode() & 0o777 == 0o600);
        assert!(at.join("link").is_symlink());
        refused(numaloc(at, &forced("folder")), 1, "it is a folder");
        refused(numaloc(at, &forced("socket")), 1, "it is a socket");
        refused(numaloc(at, &forced("no/such")), 1, "No such file");
    }
    assert!(at.join("folder").is_dir());
    let socket = std::fs::metadata(at.join("socket")).unwrap();
    assert!(socket.file_type().is_socket());
}

/// Each would destroy what the user gave it: under the same name, another one, or as a part of a profile.
#[test]
fn no_command_replaces_a_file_that_it_reads() {
    let folder = folder();
    let at = folder.path();
    symlink("plan.json", at.join("alias.json")).unwrap();
    std::fs::hard_link(at.join("m.csv"), at.join("twin.csv")).unwrap();
    std::fs::write(
        at.join("here.toml"),
        "name = \"x\"\ndescription = \"x\"\nsynthetic = \"numa:2 core:2 pu:1\"\n",
    )
    .unwrap();
    let whole = |name: &str| std::fs::read(at.join(name)).unwrap();
    let before = [
        "plan.json",
        "ranks.json",
        "m.csv",
        "hosts",
        "p.numaloc/meta.json",
    ]
    .map(whole);
    for command in [
        "report p.numaloc plan.json --force -o plan.json",
        "report p.numaloc plan.json --force -o ./alias.json",
        "report p.numaloc alias.json --force -o plan.json",
        "report p.numaloc --machine numa4x4 --force -o p.numaloc/meta.json",
        "export p.numaloc --force --format csv -o p.numaloc/threads.parquet",
        "plan p.numaloc --machine here.toml --force -o here.toml",
        "ranks ranks.json --machine numa4x4 --force -o ranks.json",
        "import m.csv --force -o p.numaloc/../twin.csv",
        "topology --hostfile hosts --host numa4x4 --force -o hosts",
        "--json=plan.json report p.numaloc plan.json --force -o r.html",
        "--json=twin.csv map m.csv --topology numa4x4",
        "--json=p.numaloc/meta.json show p.numaloc",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let output = numaloc(at, &words);
        assert!(!output.status.success(), "{command}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with("error: "), "{command}: {said}");
    }
    let after = [
        "plan.json",
        "ranks.json",
        "m.csv",
        "hosts",
        "p.numaloc/meta.json",
    ]
    .map(whole);
    assert!(before == after);
    // A file that the command itself continues is no input.
    ok(numaloc(
        at,
        &[
            "report",
            "p.numaloc",
            "plan.json",
            "--force",
            "-o",
            "r.html",
        ],
    ));
    ok(numaloc(at, &["--json=s.json", "show", "p.numaloc"]));
    ok(numaloc(at, &["--json=s.json", "show", "p.numaloc"]));
}

/// Parquet's reader panics on some files. The panic is caught, and must not be printed either.
#[test]
fn a_forged_table_is_refused_in_one_line() {
    let folder = folder();
    let at = folder.path();
    // Checksums are no signature: who forges a table can compute them, or leave them out.
    let meta = at.join("p.numaloc/meta.json");
    let mut value: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&meta).unwrap()).unwrap();
    let fields = value.as_object_mut().unwrap();
    assert!(fields.remove("files").is_some() && fields.remove("checksum").is_some());
    std::fs::write(&meta, value.to_string()).unwrap();
    let table = at.join("p.numaloc/threads.parquet");
    let good = std::fs::read(&table).unwrap();
    let mut refused = 0;
    let steps = if is_full() { 120 } else { 40 };
    for step in 1..=steps {
        // The footer, whose fields are numbers of variable length.
        let byte = good.len() - 9 - step * 5 % (good.len() / 2);
        for flip in [0x55, 0x80] {
            let mut bad = good.clone();
            bad[byte] ^= flip;
            std::fs::write(&table, bad).unwrap();
            let output = numaloc(at, &["show", "p.numaloc"]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                !said.contains("panicked") && !said.contains("defect"),
                "byte {byte}: {said}"
            );
            if !output.status.success() {
                assert_eq!(output.status.code(), Some(1), "{said}");
                assert_eq!(
                    said.lines().filter(|line| !line.starts_with("  ")).count(),
                    1,
                    "{said}"
                );
                refused += 1;
            }
        }
    }
    assert!(refused > steps / 6, "{refused}");
}

/// Links, folders and forged files of another user, who can write to the folder of the output.
#[test]
fn what_another_user_has_left_harms_nothing_of_root() {
    use std::os::unix::process::CommandExt as _;
    const OTHER: u32 = 65534;
    let folder = folder();
    let at = folder.path();
    let theirs = at.join("theirs");
    std::fs::create_dir(&theirs).unwrap();
    if std::os::unix::fs::chown(&theirs, Some(OTHER), Some(OTHER)).is_err() {
        return crate::support::skip("only root can be attacked by another user here");
    }
    std::fs::set_permissions(at, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::create_dir(at.join("ours")).unwrap();
    std::fs::write(at.join("ours/table"), "secret").unwrap();
    let attack = "cp -r ../p.numaloc old.numaloc && cp -r old.numaloc forged.numaloc && ln -s ../../ours old.numaloc/traces && \
        ln -s ../ours/table link.html && ln -s ../ours linked.numaloc && sed -i '$ s/./~/g' forged.numaloc/threads.parquet";
    let mut other = Command::new("sh");
    let attacked = other
        .args(["-ec", attack])
        .current_dir(&theirs)
        .uid(OTHER)
        .gid(OTHER)
        .status();
    assert!(attacked.unwrap().success());
    let run = |command: &str| numaloc(at, &command.split(' ').collect::<Vec<_>>());
    refused(
        run("report p.numaloc plan.json --force -o theirs/link.html"),
        1,
        "link",
    );
    refused(
        run("import m.csv --force -o theirs/linked.numaloc"),
        1,
        "link",
    );
    let replaced = run("import m.csv --force -o theirs/old.numaloc");
    let said = String::from_utf8_lossy(&replaced.stderr);
    assert!(!said.contains("panicked"), "{said}");
    refused(run("show theirs/forged.numaloc"), 1, "threads.parquet");
    let left: Vec<_> = std::fs::read_dir(at.join("ours")).unwrap().collect();
    assert_eq!(left.len(), 1);
    assert_eq!(std::fs::read(at.join("ours/table")).unwrap(), b"secret");
}

/// `lab topology` boots a machine to write one file: what it may not write it refuses before.
#[test]
fn a_virtual_machine_is_not_booted_for_an_output_that_is_refused() {
    let folder = folder();
    let at = folder.path();
    std::fs::create_dir(at.join("folder")).unwrap();
    // A kernel that is not there: were it looked for first, that would be the error.
    let lab = ["lab", "topology", "--kernel", "no/kernel", "--output"];
    let to = |more: &[&'static str]| numaloc(at, &[&lab[..], more].concat());
    refused(to(&["m.csv"]), 1, "it exists");
    refused(to(&["folder", "--force"]), 1, "it is a folder");
    refused(to(&["no/such"]), 1, "No such file");
    assert!(at.join("folder").is_dir());
}

#[test]
fn devices_and_fifos_are_written_into_and_a_dash_is_standard_output() {
    let folder = folder();
    let at = folder.path();
    // A device like /dev/null, but not the system's own. Only root may make one, and not everywhere open it.
    let device = shell(at, "mknod null c 1 3 && : >null").status.success();
    for writer in WRITERS {
        let to = |name| [writer, &[name]].concat();
        let direct = ok(numaloc(at, &to("-")));
        assert!(direct.len() > 30 && !direct.contains("-> -"), "{direct}");
        assert_eq!(ok(numaloc(at, &to("/dev/stdout"))), direct);
        refused(
            numaloc(at, &[&to("-")[..], &["--json"]].concat()),
            2,
            "--json",
        );
        let words: Vec<String> = to("fifo").iter().map(|word| format!("'{word}'")).collect();
        let script = format!(
            "rm -f fifo; mkfifo fifo; cat fifo >got & numaloc {} --force >/dev/null; wait; test -p fifo && cat got",
            words.join(" ")
        );
        assert_eq!(ok(shell(at, &script)), direct, "{writer:?}");
        if device {
            ok(numaloc(at, &[&to("null")[..], &["--force"]].concat()));
            let about = std::fs::metadata(at.join("null")).unwrap();
            assert!(about.file_type().is_char_device());
        }
    }
}

#[test]
fn help_says_where_a_dash_is_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    for command in [
        &["plan"][..],
        &["export"],
        &["report"],
        &["topology"],
        &["lab", "topology"],
        &["ranks"],
    ] {
        let help = ok(numaloc(folder.path(), &[command, &["--help"]].concat()));
        let words: Vec<&str> = help.split_whitespace().collect();
        let help = words.join(" ");
        let said = [
            "`-` is standard output",
            "`-` being standard output",
            "`-`: standard output",
        ];
        assert!(said.iter().any(|words| help.contains(words)), "{command:?}");
    }
}

#[test]
fn a_profile_is_refused_before_the_program_runs() {
    let folder = folder();
    let at = folder.path();
    std::fs::create_dir(at.join("thesis")).unwrap();
    std::fs::write(at.join("thesis/chapter"), "1").unwrap();
    symlink("nowhere", at.join("dangling")).unwrap();
    for (output, says) in [
        ("thesis", "not a numaloc profile"),
        ("m.csv", "not a folder"),
        ("dangling", "a symbolic link to nothing"),
        ("no/such", "No such file"),
    ] {
        let run = [
            "record", "-q", "--force", "-o", output, "--", "touch", "ran",
        ];
        refused(numaloc(at, &run), 125, says);
        assert!(!at.join("ran").exists(), "{output}: the program ran");
    }
    let unforced = ["record", "-q", "-o", "p.numaloc", "--", "touch", "ran"];
    refused(numaloc(at, &unforced), 125, "it exists");
    assert!(!at.join("ran").exists() && at.join("thesis/chapter").exists());
}

#[test]
fn force_on_a_profile_keeps_the_users_own_files_in_it() {
    let folder = folder();
    let at = folder.path();
    std::fs::write(at.join("p.numaloc/notes.txt"), "mine").unwrap();
    ok(numaloc(
        at,
        &["import", "m.csv", "-o", "p.numaloc", "--force"],
    ));
    assert_eq!(
        std::fs::read(at.join("p.numaloc/notes.txt")).unwrap(),
        b"mine"
    );
    ok(numaloc(at, &["show", "p.numaloc"]));
    ok(numaloc(at, &["report", "p.numaloc", "--svg", "figures"]));
    let figures = ["report", "p.numaloc", "--svg", "figures"];
    refused(numaloc(at, &figures), 1, "it exists");
    ok(numaloc(at, &[&figures[..], &["--force"]].concat()));
    let left: Vec<_> = std::fs::read_dir(at)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn standard_output_that_cannot_be_written_is_a_failure_and_a_closed_pipe_is_not() {
    let folder = folder();
    let at = folder.path();
    let full = "cannot write standard output: No space left";
    for command in [
        "show p.numaloc",
        "--json show p.numaloc",
        "machines",
        "--help",
        "show --help",
    ] {
        refused(shell(at, &format!("numaloc {command} >/dev/full")), 1, full);
    }
    refused(
        shell(at, "numaloc export p.numaloc --format csv -o - >/dev/full"),
        1,
        "No space left",
    );
    refused(
        shell(at, "numaloc show p.numaloc >&-"),
        1,
        "cannot write standard output: Bad file",
    );
    let status = ok(shell(
        at,
        "numaloc show p.numaloc | true; echo ${PIPESTATUS[0]}",
    ));
    assert_eq!(status, "0\n");
}

#[test]
fn a_disk_that_fills_up_keeps_no_half_of_a_result_and_none_of_what_stood_there() {
    let folder = folder();
    let at = folder.path();
    // A limit on the size of files acts like a full disk, for every file system and every user.
    let limited = |script: &str| shell(at, &format!("trap '' XFSZ; ulimit -f 1; {script}"));
    let failed = limited("numaloc report p.numaloc -o report.html");
    refused(failed, 1, "cannot write report.html");
    assert!(!at.join("report.html").exists());
    std::fs::write(at.join("log"), "before\n").unwrap();
    let failed = limited("numaloc report p.numaloc -o - >>log");
    refused(failed, 1, "cannot write standard output");
    assert_eq!(std::fs::read(at.join("log")).unwrap(), b"before\n");
}

#[test]
fn a_standard_error_that_takes_nothing_changes_nothing_for_the_program() {
    let folder = folder();
    let at = folder.path();
    let script = "numaloc record -o r.numaloc -- sh -c 'echo out; exit 7' 2>/dev/full; echo $?";
    assert_eq!(ok(shell(at, script)), "out\n7\n");
    ok(numaloc(at, &["show", "r.numaloc"]));
    // An error that cannot be printed still sets the exit status.
    let silent = shell(at, "numaloc show no-such 2>/dev/full");
    assert_eq!(silent.status.code(), Some(1));
}
