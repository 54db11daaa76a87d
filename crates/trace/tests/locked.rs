//! Locking all memory of the process leaves the tables out, also those that are reserved later.

use std::sync::atomic::Ordering::Relaxed;

use numaloc_trace::locked;
use numaloc_trace::shadow::Shadow;

/// A line of the process's status, in KiB.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let text = line.unwrap().trim().strip_suffix(" kB").unwrap();
    text.parse().unwrap()
}

#[test]
fn tables_are_not_locked() {
    const TABLE: u64 = 1 << 30; // KiB: far less than the words of a table, far more than the rest
    let before = Shadow::reserve(2).unwrap();
    before.word(0x1000).store(1, Relaxed);
    for invalid in [0, libc::MCL_ONFAULT, 64] {
        assert_eq!(locked::lock_all(invalid), Err(libc::EINVAL));
    }
    let all = libc::MCL_CURRENT | libc::MCL_FUTURE;
    if let Err(errno) = locked::lock_all(all) {
        // The limit of an ordinary user is less than any program has.
        assert!(locked::limit() < 64 << 20 && [libc::EPERM, libc::ENOMEM].contains(&errno));
        return;
    }
    assert!(status("VmLck:") > 0 && status("VmLck:") < TABLE);
    let after = Shadow::reserve(2).unwrap();
    for table in [&before, &after] {
        table.word(0x1000).store(7, Relaxed);
        table.forget(0, 1 << 40);
        assert_eq!(table.word(0x1000).load(Relaxed), 0);
    }
    assert!(status("VmLck:") < TABLE && status("VmRSS:") < 1 << 20);
    // Memory of others is.
    let locked_before = status("VmLck:");
    let memory = vec![1u8; 32 << 20];
    assert!(
        status("VmLck:") >= locked_before + (32 << 10),
        "{}",
        memory[5]
    );
    locked::unlock_all().unwrap();
    assert_eq!(status("VmLck:"), 0);
}
