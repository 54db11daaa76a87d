//! Guests that are kept and continued.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::Command;

#[test]
#[ignore = "boots virtual machines: make test-lab"]
fn a_guest_that_does_not_continue_is_removed_and_booted() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path();
    let users = numaloc_lab::cache_folder().expect("a cache folder");
    for entry in fs::read_dir(users).expect("the kernels") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_owned();
        if name.to_string_lossy().starts_with("kernel-") {
            symlink(path, cache.join(name)).expect("a link");
        }
    }
    // By a relative path, as a user may give one.
    let run = || {
        let mut lab = Command::new(env!("CARGO_BIN_EXE_numaloc"));
        lab.args(["lab", "--nodes", "1", "--cpus", "1", "--memory", "256M"])
            .args(["--", "/bin/echo", "from the guest"])
            .current_dir(cache)
            .env("NUMALOC_LAB_CACHE", ".")
            .env("NUMALOC_LAB_KEEP", "1");
        let output = lab.output().expect("numaloc runs");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains("from the guest"), "{output:?}");
    };
    let states = || {
        let found = fs::read_dir(cache.join("guests")).expect("a folder");
        let found = found.map(|entry| entry.expect("an entry").path().join("state"));
        found.collect::<Vec<_>>()
    };
    run();
    let [state] = &states()[..] else {
        panic!("one guest is kept: {:?}", states());
    };
    let used = || fs::metadata(state).expect("a state").modified();
    let kept = used().expect("a time");
    run();
    assert!(used().expect("a time") > kept, "it was continued");

    let half = fs::metadata(state).expect("a state").len() / 2;
    let file = File::options().write(true).open(state).expect("our file");
    file.set_len(half).expect("half of it");
    run();
    assert_eq!(states().len(), 0, "it was removed");
}
