//! Every command that writes a file, on a real file system that fills up: status 1, one line of error, nothing
//! half-written.
//!
//! The file system is a tmpfs in a mount namespace of its own, which needs root or user namespaces.

use crate::support;
use std::path::Path;
use std::process::Command;

use crate::support::{numaloc, ok, record, workload};

/// Mounts a tmpfs of 1 MiB at `$0`, fills all of it but `$1` bytes, runs the rest, and lists what is there in `$2`.
const ON_A_FULL_DISK: &str = r#"
mount -t tmpfs -o size=1m tmpfs "$0" || exit 77
head -c $((1048576 - $1)) /dev/zero > "$0/filling" || exit 77
listing="$2"
shift 2
"$@"
status=$?
ls -A "$0" > "$listing"
exit $status
"#;

fn mounting() -> Option<Vec<&'static str>> {
    [&["unshare", "-m"][..], &["unshare", "-rm"]]
        .into_iter()
        .find(|words| {
            let mut command = Command::new(words[0]);
            let mount = "mount -t tmpfs tmpfs /mnt";
            command.args(&words[1..]).args(["sh", "-c", mount]);
            command.output().is_ok_and(|output| output.status.success())
        })
        .map(<[&str]>::to_vec)
}

#[test]
fn a_full_disk_is_one_line_of_error_and_leaves_nothing() {
    let Some(unshare) = mounting() else {
        support::skip("neither root nor user namespaces: no file system can be mounted");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let pairs = workload("pairs");
    let pairs = pairs.to_str().unwrap();
    let (profile, matrix) = (at("p.numaloc"), at("matrix.csv"));
    record(&profile, 2, &[pairs, "64", "2"]);
    ok(numaloc(&["export", "--quiet", "-o"])
        .arg(&matrix)
        .arg(&profile));
    std::fs::create_dir(at("disk")).unwrap();
    let (profile, matrix) = (profile.to_str().unwrap(), matrix.to_str().unwrap());
    let output = |name: &str| at("disk").join(name).to_str().unwrap().to_owned();
    let cases = [
        (
            "plan.json",
            vec!["plan", "--machine", "numa4x4", profile],
            1,
        ),
        ("r.html", vec!["report", profile], 1),
        ("m.npy", vec!["export", "--format", "npy", profile], 1),
        ("pages.csv", vec!["export", "--pages", profile], 1),
        ("i.numaloc", vec!["import", matrix], 1),
        (
            "rec.numaloc",
            vec!["record", "--quiet", "--", pairs, "64", "2"],
            125,
        ),
    ];
    let mut refused = 0;
    for (name, words, status) in &cases {
        // All of it taken, and a page left: the first write fails, or one in the middle.
        for left in ["0", "4096"] {
            let listing = at("listing");
            let _ = std::fs::remove_file(&listing);
            let mut command = Command::new(unshare[0]);
            command
                .args(&unshare[1..])
                .args(["sh", "-c", ON_A_FULL_DISK]);
            command.arg(at("disk")).arg(left).arg(&listing);
            command.arg(env!("CARGO_BIN_EXE_numaloc")).arg(words[0]);
            command.args(["-o", &output(name)]).args(&words[1..]);
            let done = command.output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            let there = std::fs::read_to_string(&listing).expect("the file system was mounted");
            if done.status.success() && left != "0" {
                // It fitted into the page that was left.
                assert!(
                    there.lines().any(|file| file == *name),
                    "{words:?}: {there}"
                );
                continue;
            }
            assert_eq!(done.status.code(), Some(*status), "{words:?}: {said}");
            assert!(said.contains("error: "), "{words:?}: {said}");
            assert!(said.contains("No space left"), "{words:?}: {said}");
            assert!(!said.contains(support::DEFECT), "{words:?}: {said}");
            // The recording is kept for --salvage, next to the output, if any of it could be written.
            let kept = |file: &str| words[0] == "record" && left != "0" && file != *name;
            let whole = there.lines().all(|file| file == "filling" || kept(file));
            assert!(whole, "{words:?}: {there}");
            refused += 1;
        }
    }
    assert!(refused >= cases.len(), "{refused}");
    assert!(Path::new(profile).is_dir());
}
