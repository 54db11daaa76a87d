//! Real programs under real plans, on whatever machine this is: one node is enough, since pages are
//! bound, moved and read back there as anywhere.

use numaloc_apply::{LaunchError, Options, PageMode, run};
use numaloc_model::outcome::Outcome;
use numaloc_model::plan::{ObjectKey, PagePlan, Plan, Predicted, Provenance, ThreadPlan};
use numaloc_model::profile::ObjectKind;
use numaloc_model::{LogicalNode, LogicalPu};
use numaloc_topology::{Identity, Topology, from_this_machine};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program of `tests/programs` with these flags.
fn compile(folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let program = folder.join(source.trim_end_matches(".c"));
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(source);
    let status = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .args([&program, &from])
        .args(flags)
        .status()
        .expect("a C compiler runs");
    assert!(status.success(), "{source} compiles with {flags:?}");
    program
}

/// A plan for this machine: threads by path, `pus[i]` a logical PU (modulo what there is); objects whole
/// on node 0.
fn plan(machine: &Topology, threads: &[(&str, usize)], objects: &[(ObjectKey, u64)]) -> Plan {
    let pus = machine.pus();
    Plan {
        machine: machine.name().to_owned(),
        fingerprint: machine.fingerprint(),
        provenance: Provenance {
            thread_policy: "by hand".to_owned(),
            page_policy: "by hand".to_owned(),
            parameters: Vec::new(),
            command: Vec::new(),
            tool: "test".to_owned(),
        },
        predicted: Predicted {
            cost: 0.0,
            remote: 0.0,
            total: 0.0,
            node_imbalance: 1.0,
            remote_accesses: 0,
            accesses: 0,
        },
        page_size: 4096,
        threads: threads
            .iter()
            .map(|&(path, pu)| ThreadPlan {
                path: path.to_owned(),
                pu: LogicalPu::from_index(pu % pus.len()),
                os_pu: pus[pu % pus.len()].os,
            })
            .collect(),
        objects: objects.iter().map(|(key, _)| key.clone()).collect(),
        pages: objects
            .iter()
            .enumerate()
            .map(|(object, &(_, pages))| PagePlan {
                object: object as u32,
                first_page: 0,
                pages,
                node: LogicalNode(0),
                os_node: machine.nodes()[0].os,
            })
            .collect(),
        schedule: Vec::new(),
    }
}

fn key(kind: ObjectKind, name: &str, creator: &str, size: u64) -> ObjectKey {
    ObjectKey {
        kind,
        name: name.to_owned(),
        creator: Some(creator.to_owned()),
        size,
        order: 0,
    }
}

fn command(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn shell(plan: &Plan, machine: &Topology, script: &str) -> Outcome {
    run(
        plan,
        &Identity::from(machine),
        &command(&["sh", "-c", script]),
        &Options::default(),
    )
    .expect("sh runs")
}

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
    // Forced: a PU that this machine does not have is refused by the kernel and said so.
    plan.threads[0].os_pu = numaloc_model::OsPu(4000);
    let forced = Options {
        force_machine: true,
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
        println!("SKIPPED: needs two PUs to tell the difference");
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
