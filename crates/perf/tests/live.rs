//! Live sampling. Page faults take the same path through the kernel as hardware samples and occur on every machine.

use std::process::Command;

use numaloc_perf::events::MemoryEvent;
use numaloc_perf::{Options, Origin, PerfError, Session};

fn start(command: Command) -> Result<Session, PerfError> {
    Session::start(
        command,
        &[MemoryEvent::page_faults()],
        1,
        &Options::default(),
    )
}

fn origin() -> Origin {
    Origin {
        command: vec!["python3".to_owned()],
        complete: true,
        ..Origin::default()
    }
}

#[test]
fn threads_and_processes_are_followed_from_the_first_instruction() {
    // Two threads and a child process touch a megabyte each.
    let program = "import threading, os\n\
        def work(): b = bytearray(1 << 20); b[::4096] = bytes(256)\n\
        t = [threading.Thread(target=work) for _ in range(2)]\n\
        [x.start() for x in t]; [x.join() for x in t]\n\
        child = os.fork()\n\
        if child == 0: work(); os._exit(0)\n\
        os.waitpid(child, 0)\n\
        os._exit(7)\n";
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", program]).env("PYTHONMALLOC", "malloc");
    let begun = std::time::Instant::now();
    let (status, profile) = start(command).unwrap().finish(origin()).unwrap();
    assert_eq!(status.code(), Some(7));
    let profile = profile.unwrap();
    let paths: Vec<&str> = profile.threads().iter().map(|t| t.path.as_str()).collect();
    assert_eq!(
        paths,
        ["0", "0.1", "0.2", "0/1"],
        "{:?}",
        profile.meta().notes
    );
    for thread in &profile.threads()[1..] {
        assert!(thread.accesses >= 256, "{thread:?}");
    }
    assert_eq!(profile.meta().sampled, 1.0);
    assert!(profile.slices()[0].end > 0);
    // Times count from the program's start, not from boot.
    let passed = begun.elapsed().as_nanos();
    assert!(u128::from(profile.threads()[0].end) <= passed);
}

#[test]
fn more_records_than_the_ring_holds_arrive_in_order() {
    // 64 MiB: 16,384 faults of 64 bytes are eight times the buffer.
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", "b = bytearray(64 << 20); b[::4096] = bytes(16384)"]);
    let (status, profile) = start(command).unwrap().finish(origin()).unwrap();
    assert!(status.success());
    let profile = profile.unwrap();
    let lost: u64 = profile
        .meta()
        .notes
        .iter()
        .filter_map(|note| note.split_once(" records were lost")?.0.parse::<u64>().ok())
        .sum();
    // On a busy machine the kernel may drop some records, which is then reported.
    let huge_pages = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|text| text.contains("[always]"));
    assert!(huge_pages || profile.threads()[0].accesses + lost >= 16_384);
    assert!(
        profile
            .pages()
            .pages()
            .iter()
            .all(|page| page.first_touch.is_some())
    );
}

#[test]
fn a_missing_program_is_reported_as_missing() {
    let error = start(Command::new("/no/such/program")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot run /no/such/program: No such file or directory (os error 2)"
    );
}

#[test]
fn an_event_the_machine_lacks_is_refused_before_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let touched = folder.path().join("ran");
    let mut command = Command::new("touch");
    command.arg(&touched);
    let event = MemoryEvent {
        name: "nothing//".to_owned(),
        kind: 4_000_000,
        ..MemoryEvent::default()
    };
    let error = Session::start(command, &[event], 1, &Options::default()).unwrap_err();
    assert!(matches!(error, PerfError::Refused { .. }), "{error}");
    assert!(!touched.exists());
}
