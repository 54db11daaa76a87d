//! `numaloc import` of a file that perf writes here, as a user does it, and of files that are refused.

use assert_cmd::Command;

fn numaloc() -> Command {
    Command::cargo_bin("numaloc").unwrap()
}

#[test]
fn page_faults_recorded_by_perf_become_a_profile_that_can_be_shown() {
    let folder = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("perf")
        .args([
            "record",
            "-q",
            "-c",
            "1",
            "-d",
            "-e",
            "page-faults:u",
            "-o",
            "perf.data",
            "--",
            "ls",
            "/",
        ])
        .current_dir(folder.path())
        .stdout(std::process::Stdio::null())
        .status()
        .expect("perf is installed (make packages)");
    assert!(status.success());
    let output = numaloc()
        .args(["import", "perf.data", "-o", "ls.numaloc", "--json"])
        .current_dir(folder.path())
        .assert()
        .success();
    let json: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert_eq!(json["threads"], 1);
    assert_eq!(json["frontend"], "perf");
    assert!(json["pages"].as_u64().unwrap() > 10, "{json}");
    numaloc()
        .args(["show", "ls.numaloc"])
        .current_dir(folder.path())
        .assert()
        .success();
    // A second import does not replace it unasked.
    numaloc()
        .args(["import", "perf.data", "-o", "ls.numaloc"])
        .current_dir(folder.path())
        .assert()
        .code(1);
}

#[test]
fn a_wrong_file_gets_one_line_and_no_profile() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x"), "hello, world").unwrap();
    let output = numaloc()
        .args(["import", "x", "-o", "x.numaloc"])
        .current_dir(folder.path())
        .assert()
        .code(1);
    let message = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(
        message.starts_with("error: cannot import x: no format known here begins with hello, w\n"),
        "{message}"
    );
    assert!(!folder.path().join("x.numaloc").exists());
    let usage = numaloc()
        .args(["import", "x", "-o", "x.numaloc", "--page-size", "5000"])
        .current_dir(folder.path())
        .assert()
        .code(2);
    assert!(String::from_utf8_lossy(&usage.get_output().stderr).contains("power of two"));
}

#[test]
fn amounts_beyond_what_a_profile_holds_are_refused_with_their_cell() {
    let dir = tempfile::tempdir().unwrap();
    // More than any count, more than a profile's sums, and a sum that only all cells together exceed.
    let refused = [
        ("0,1e20\n1,0\n", "cell (0, 1) is 1e20"),
        (
            "0,1\n2305843009213693952,0\n",
            "cell (1, 0) is 2.305843009213694e18",
        ),
        ("0,9e17\n9e17,0\n", "the sum of its cells is 1.8e18"),
    ];
    for (matrix, why) in refused {
        std::fs::write(dir.path().join("m.csv"), matrix).unwrap();
        let mut import = numaloc();
        let import = import.args(["import", "m.csv", "-o", "m.numaloc"]);
        let output = import.current_dir(dir.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains(why) && said.contains("at most 2^60"),
            "{said}"
        );
        assert!(!dir.path().join("m.numaloc").exists());
    }
}
