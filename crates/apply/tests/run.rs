//! Real programs under real plans on the test machine. One node is enough: pages are bound, moved and read
//! back there as on several.

mod support;

use numaloc_apply::{LaunchError, Options, PageMode, run};
use numaloc_model::profile::ObjectKind;
use numaloc_topology::{Identity, from_this_machine};
use support::{command, compile, key, plan, shell};

#[test]
fn every_kind_of_object_is_placed_in_every_kind_of_executable() {
    let machine = from_this_machine().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bytes = 64 * 4096;
    let objects = [
        (key(ObjectKind::Static, "objects:.grid", "0", bytes), 64),
        (key(ObjectKind::Mapping, "[anon]", "0", bytes), 64),
        (key(ObjectKind::Shared, "[anon]", "0", bytes), 64),
        (key(ObjectKind::Heap, "[heap]", "0", 0), 60),
    ];
    let plan = plan(&machine, &[("0", 1), ("0.1", 0), ("0/1", 1)], &objects);
    let os = |at: usize| plan.threads[at].os_pu.0.to_string();
    for flags in [&[][..], &["-no-pie"], &["-static"], &["-static-pie"]] {
        let program = compile(folder.path(), "objects.c", flags);
        let program = program.to_str().unwrap();
        let options = Options {
            pages: PageMode::Always,
            verify: true,
            ..Options::default()
        };
        let command = command(&[program, &os(0), &os(1)]);
        let outcome = run(&plan, &Identity::from(&machine), &command, &options).unwrap();
        assert_eq!(outcome.status, 0, "{flags:?}: {:?}", outcome.notes);
        assert_eq!(outcome.threads.placed, 3, "{flags:?}: {:?}", outcome.notes);
        let pages = &outcome.pages;
        assert_eq!(
            (pages.not_found, pages.placed),
            (0, pages.planned),
            "{flags:?}"
        );
        assert_eq!(pages.planned, 64 * 3 + 60, "{flags:?}: {:?}", outcome.notes);
        assert!(pages.refused.is_empty(), "{flags:?}: {:?}", pages.refused);
    }
}

#[test]
fn status_and_signals_are_the_programs_own() {
    let machine = from_this_machine().unwrap();
    let plan = plan(&machine, &[("0", 0)], &[]);
    assert_eq!(shell(&plan, &machine, "exit 7").status, 7);
    assert_eq!(
        shell(&plan, &machine, "kill -TERM $$").status,
        128 + libc::SIGTERM
    );
    // A handled signal, a background process and a stopped and continued one.
    assert_eq!(
        shell(&plan, &machine, "trap 'exit 5' USR1; kill -USR1 $$; exit 1").status,
        5
    );
    let job = "sleep 0.2 & p=$!; kill -STOP $p; kill -CONT $p; wait $p";
    assert_eq!(shell(&plan, &machine, job).status, 0);
}

#[test]
fn what_cannot_be_executed_has_the_status_of_env() {
    let machine = from_this_machine().unwrap();
    let plan = plan(&machine, &[("0", 0)], &[]);
    let failing = |program: &str| {
        let error = run(
            &plan,
            &Identity::from(&machine),
            &command(&[program]),
            &Options::default(),
        )
        .unwrap_err();
        assert!(error.to_string().contains(program), "{error}");
        error.status()
    };
    assert_eq!(failing("/nonexistent/program"), 127);
    assert_eq!(failing("no-such-program-anywhere"), 127);
    assert_eq!(failing("/etc/passwd"), 126);
    assert_eq!(failing("/etc"), 126);
}

#[test]
fn a_plan_for_another_machine_is_refused_unless_forced() {
    let machine = from_this_machine().unwrap();
    let mut plan = plan(&machine, &[("0", 0), ("0.1", 0)], &[]);
    plan.fingerprint = "0123456789abcdef".to_owned();
    let error = run(
        &plan,
        &Identity::from(&machine),
        &command(&["true"]),
        &Options::default(),
    )
    .unwrap_err();
    assert!(matches!(error, LaunchError::OtherMachine { .. }));
    assert_eq!(error.status(), 125);
    // Forced: the kernel refuses a PU that this machine does not have, which is reported.
    plan.threads[0].os_pu = numaloc_model::OsPu(4000);
    let forced = Options {
        force_machine: true,
        force_program: true,
        ..Options::default()
    };
    let outcome = run(
        &plan,
        &Identity::from(&machine),
        &command(&["true"]),
        &forced,
    )
    .unwrap();
    assert_eq!(outcome.threads.refused, [("EINVAL".to_owned(), 1)]);
    assert_eq!((outcome.threads.not_found, outcome.status), (1, 0));
    assert!(
        outcome.notes.iter().any(|n| n.contains("P#4000")),
        "{:?}",
        outcome.notes
    );
}

#[test]
fn processes_are_followed_through_fork_and_exec() {
    let machine = from_this_machine().unwrap();
    // dash executes `true` in a child each time: 0/1 and 0/2.
    let plan = plan(
        &machine,
        &[("0", 0), ("0/1", 1), ("0/2", 0), ("0/3", 0)],
        &[],
    );
    let outcome = shell(&plan, &machine, "/bin/true; /bin/true; exit 0");
    assert_eq!((outcome.threads.placed, outcome.threads.not_found), (3, 1));
    assert!(
        outcome.notes.iter().any(|n| n.contains("0/3")),
        "{:?}",
        outcome.notes
    );
}

#[test]
fn a_program_that_pins_itself_is_reported_or_overruled() {
    let machine = from_this_machine().unwrap();
    if machine.pus().len() < 2 {
        support::skip("needs two PUs to tell the difference");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "pins_itself.c", &[]);
    let plan = plan(&machine, &[("0", 1)], &[]);
    let command = command(&[program.to_str().unwrap()]);
    let outcome = run(
        &plan,
        &Identity::from(&machine),
        &command,
        &Options::default(),
    )
    .unwrap();
    assert_eq!(outcome.threads.placed, 0);
    assert!(
        outcome
            .notes
            .iter()
            .any(|n| n.contains("the program itself")),
        "{:?}",
        outcome.notes
    );
    let enforce = Options {
        enforce: true,
        ..Options::default()
    };
    let outcome = run(&plan, &Identity::from(&machine), &command, &enforce).unwrap();
    assert_eq!(
        (outcome.threads.placed, outcome.status),
        (1, 0),
        "{:?}",
        outcome.notes
    );
}
