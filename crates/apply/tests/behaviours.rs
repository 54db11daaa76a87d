//! Program behaviours that the launcher must cope with, each with a real program.

mod support;

use numaloc_apply::{Options, PageMode, run};
use numaloc_model::outcome::Outcome;
use numaloc_model::plan::{PagePlan, Plan};
use numaloc_model::profile::ObjectKind;
use numaloc_model::{LogicalNode, OsNode};
use numaloc_topology::{Identity, Topology, from_this_machine};
use support::{command, compile, key, plan, shell};

const BYTES: u64 = 64 * 4096;

/// Runs with pages placed and read back.
fn verified(plan: &Plan, machine: &Topology, words: &[&str]) -> Outcome {
    let options = Options {
        pages: PageMode::Always,
        verify: true,
        ..Options::default()
    };
    run(plan, &Identity::from(machine), &command(words), &options).expect("it runs")
}

fn all_placed(outcome: &Outcome, pages: u64) {
    assert_eq!(outcome.status, 0, "{:?}", outcome.notes);
    let found = &outcome.pages;
    assert_eq!(
        (found.placed, found.planned),
        (pages, pages),
        "{:?}",
        outcome.notes
    );
    assert!(found.refused.is_empty(), "{:?}", found.refused);
}

#[test]
fn shared_memory_of_every_kind_is_placed() {
    let machine = from_this_machine().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "shares.c", &[]);
    let name = format!("numaloc-test-{}", std::process::id());
    let objects = [
        (key(ObjectKind::Shared, "[shm]", "0", BYTES), 64),
        (key(ObjectKind::Shared, "memfd:grid", "0", BYTES), 64),
        (key(ObjectKind::Shared, &name, "0", BYTES), 64),
    ];
    let plan = plan(&machine, &[("0", 0), ("0/1", 1)], &objects);
    let outcome = verified(&plan, &machine, &[program.to_str().unwrap(), &name]);
    all_placed(&outcome, 3 * 64);
    assert_eq!(outcome.threads.placed, 2);
}

#[test]
fn statics_of_a_library_loaded_later_are_placed() {
    let machine = from_this_machine().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let library = compile(
        folder.path(),
        "grid.c",
        &["-shared", "-fPIC", "-nostartfiles"],
    );
    let program = compile(folder.path(), "opens.c", &["-ldl"]);
    let objects = [
        (key(ObjectKind::Static, "grid:.grid", "0", BYTES), 64),
        (key(ObjectKind::Static, "grid:.bss", "0", BYTES), 64),
    ];
    let plan = plan(&machine, &[("0", 1)], &objects);
    let words = [program.to_str().unwrap(), library.to_str().unwrap()];
    all_placed(&verified(&plan, &machine, &words), 128);
}

#[test]
fn memory_that_a_library_uses_before_the_program_starts_is_placed() {
    let machine = from_this_machine().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let compiled = compile(folder.path(), "early.c", &["-shared", "-fPIC", "-DLIBRARY"]);
    let library = folder.path().join("libearly.so");
    std::fs::rename(compiled, &library).unwrap();
    let library = library.to_str().unwrap();
    let run_path = format!("-Wl,-rpath,{}", folder.path().display());
    let program = compile(folder.path(), "early.c", &[library, &run_path]);
    // The size of the section depends on the compiler's own statics.
    let readelf = std::process::Command::new("readelf")
        .args(["-SW", library])
        .output()
        .expect("readelf runs");
    let sections = String::from_utf8(readelf.stdout).unwrap();
    let bss = sections
        .lines()
        .find(|line| line.contains(" .bss "))
        .unwrap();
    let size = bss.split_whitespace().rev().nth(5).unwrap();
    let size = u64::from_str_radix(size, 16).unwrap();
    let objects = [
        (key(ObjectKind::Static, "libearly.so:.bss", "0", size), 65),
        (key(ObjectKind::Heap, "[heap]", "0", 0), 16),
    ];
    let plan = plan(&machine, &[("0", 1)], &objects);
    let outcome = verified(&plan, &machine, &[program.to_str().unwrap()]);
    assert_eq!(outcome.status, 0, "{:?}", outcome.notes);
    let pages = &outcome.pages;
    assert_eq!(pages.placed, pages.planned, "{:?}", outcome.notes);
    assert!(pages.planned > 64 + 8, "{:?}", outcome.notes);
}

#[test]
fn threads_at_a_breakpoint_that_is_removed_go_on() {
    let machine = from_this_machine().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "maps_together.c", &[]);
    let object = (key(ObjectKind::Mapping, "[anon]", "0", BYTES), 64);
    let plan = plan(&machine, &[("0", 0)], &[object]);
    for _ in 0..10 {
        all_placed(&verified(&plan, &machine, &[program.to_str().unwrap()]), 64);
    }
}

#[test]
fn processes_created_by_vfork_and_spawn_have_paths_and_are_placed() {
    let machine = from_this_machine().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "spawns.c", &[]);
    let plan = plan(&machine, &[("0", 0), ("0/1", 1), ("0/2", 0)], &[]);
    for pages in [PageMode::Never, PageMode::Always] {
        let options = Options {
            pages,
            ..Options::default()
        };
        let words = command(&[program.to_str().unwrap(), "/bin/true"]);
        let outcome = run(&plan, &Identity::from(&machine), &words, &options).unwrap();
        assert_eq!((outcome.status, outcome.threads.placed), (0, 3));
    }
}

#[test]
fn a_chain_of_exec_ends_under_the_same_name() {
    let machine = from_this_machine().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "objects.c", &[]);
    let objects = [
        (key(ObjectKind::Static, "objects:.grid", "0", BYTES), 64),
        (key(ObjectKind::Mapping, "[anon]", "0", BYTES), 64),
    ];
    let plan = plan(
        &machine,
        &[("0", 0), ("0.1", 1), ("0/1", 0), ("0/2", 1)],
        &objects,
    );
    let os = |at: usize| plan.threads[at].os_pu.0;
    // Two shells, each replaced by the next. The first one forks a process, so the child that
    // the program forks is number 2.
    let script = format!(
        "/bin/true; exec sh -c 'exec {} {} {}'",
        program.display(),
        os(0),
        os(1)
    );
    let outcome = verified(&plan, &machine, &["sh", "-c", &script]);
    all_placed(&outcome, 128);
    assert_eq!(outcome.threads.placed, 4, "{:?}", outcome.notes);
}

#[test]
fn the_program_sees_the_break_it_requested() {
    let machine = from_this_machine().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let heap = key(ObjectKind::Heap, "[heap]", "0", 0);
    for flags in [&[][..], &["-static"], &["-static-pie"], &["-no-pie"]] {
        let program = compile(folder.path(), "heap.c", flags);
        // Planned: nothing, less than the program uses, about as much, and more.
        for pages in [0, 3, 1000, 2500, 1 << 20] {
            let objects = [(heap.clone(), pages)];
            let plan = plan(&machine, &[("0", 0), ("0/1", 1)], &objects);
            let outcome = verified(&plan, &machine, &[program.to_str().unwrap()]);
            assert_eq!(outcome.status, 0, "{flags:?} {pages}: {:?}", outcome.notes);
            let found = &outcome.pages;
            assert_eq!(found.placed, found.planned, "{flags:?} {pages}");
            assert!(found.planned >= pages.min(2000), "{flags:?} {pages}");
        }
    }
}

#[test]
fn a_program_that_filters_its_own_memory_calls_is_not_killed() {
    let machine = from_this_machine().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "filters_itself.c", &[]);
    let object = (key(ObjectKind::Mapping, "[anon]", "0", BYTES), 64);
    let plan = plan(&machine, &[("0", 0)], &[object]);
    let outcome = verified(&plan, &machine, &[program.to_str().unwrap()]);
    assert_eq!(outcome.status, 0, "{:?}", outcome.notes);
    assert_eq!(outcome.pages.refused, [("EPERM".to_owned(), 64)]);
    assert!(outcome.notes.iter().any(|note| note.contains("seccomp")));
}

#[test]
fn more_ranges_than_the_kernel_allows_mappings_are_placed_in_blocks() {
    let machine = from_this_machine().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "objects.c", &[]);
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let limit: u64 = limit.trim().parse().unwrap();
    let heap = key(ObjectKind::Heap, "[heap]", "0", 0);
    let mut plan = plan(&machine, &[("0", 0), ("0.1", 1)], &[(heap, 1)]);
    let node = machine.nodes()[0].os;
    // Every other page is planned, so that no two ranges merge.
    plan.pages = (0..limit)
        .map(|page| PagePlan {
            object: 0,
            first_page: 2 * page,
            pages: 1,
            node: LogicalNode(page as u32 % 2),
            os_node: if page % 2 == 0 { node } else { OsNode(1000) },
        })
        .collect();
    let os = |at: usize| plan.threads[at].os_pu.0.to_string();
    let words = [program.to_str().unwrap(), &os(0), &os(1)];
    let outcome = verified(&plan, &machine, &words);
    assert_eq!(outcome.status, 0, "{:?}", outcome.notes);
    let coarse = outcome.notes.iter().find(|n| n.contains("max_map_count"));
    assert!(
        coarse.is_some_and(|note| note.contains("blocks of 4 pages")),
        "{:?}",
        outcome.notes
    );
    // A node this machine does not have is refused, not fatal.
    assert_eq!(outcome.pages.refused.len(), 1, "{:?}", outcome.pages);
}

#[test]
fn a_plan_for_nodes_without_pus_or_with_gaps_is_applied_by_kernel_numbers() {
    // One node of the plan exists, the other does not; only the pages of the missing one are refused.
    let machine = from_this_machine().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "objects.c", &[]);
    let object = (key(ObjectKind::Mapping, "[anon]", "0", BYTES), 64);
    let mut plan = plan(&machine, &[("0", 0), ("0.1", 1)], &[object]);
    let own = machine.nodes()[0].os;
    let part = |first_page, os_node, node| PagePlan {
        object: 0,
        first_page,
        pages: 32,
        node: LogicalNode(node),
        os_node,
    };
    plan.pages = vec![part(0, own, 0), part(32, OsNode(777), 1)];
    let os = |at: usize| plan.threads[at].os_pu.0.to_string();
    let words = [program.to_str().unwrap(), &os(0), &os(1)];
    let outcome = verified(&plan, &machine, &words);
    assert_eq!(outcome.status, 0, "{:?}", outcome.notes);
    assert_eq!(outcome.pages.refused, [("EINVAL".to_owned(), 32)]);
    assert_eq!((outcome.pages.placed, outcome.pages.planned), (32, 64));
}

#[test]
fn a_program_may_trace_its_children() {
    let machine = from_this_machine().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "traces.c", &[]);
    let heap = (key(ObjectKind::Heap, "[heap]", "0", 0), 10);
    let plan = plan(&machine, &[("0", 0), ("0/1", 1)], &[heap]);
    for pages in [PageMode::Never, PageMode::Always] {
        for way in ["me", "vfork", "seize", "often"] {
            let options = Options {
                pages,
                ..Options::default()
            };
            let words = command(&[program.to_str().unwrap(), way, "/bin/true"]);
            let outcome = run(&plan, &Identity::from(&machine), &words, &options).unwrap();
            assert_eq!(outcome.status, 0, "{way}: {:?}", outcome.notes);
            let count = match way {
                "vfork" => 2,
                "often" => 100,
                _ => 1,
            };
            let note_start = format!("{count} processes are traced by the program itself");
            assert!(
                outcome
                    .notes
                    .iter()
                    .any(|note| note.starts_with(&note_start)),
                "{way}: {:?}",
                outcome.notes
            );
        }
    }
}

#[test]
fn a_node_number_beyond_the_kernels_is_refused_before_the_program_runs() {
    let machine = from_this_machine().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "objects.c", &[]);
    let object = (key(ObjectKind::Mapping, "[anon]", "0", BYTES), 64);
    let mut plan = plan(&machine, &[("0", 0), ("0.1", 1)], &[object]);
    let os = |plan: &Plan, at: usize| plan.threads[at].os_pu.0.to_string();
    let words = [program.to_str().unwrap(), &os(&plan, 0), &os(&plan, 1)];
    // The largest number that a node mask of the kernel's size holds, and one more.
    plan.pages[0].os_node = OsNode(numaloc_model::plan::OS_NODES - 1);
    let outcome = verified(&plan, &machine, &words);
    assert_eq!(outcome.pages.refused, [("EINVAL".to_owned(), 64)]);
    plan.pages[0].os_node = OsNode(numaloc_model::plan::OS_NODES);
    let options = Options {
        pages: PageMode::Always,
        ..Options::default()
    };
    let error = run(&plan, &Identity::from(&machine), &command(&words), &options).unwrap_err();
    assert_eq!(error.status(), 125);
    assert!(error.to_string().contains("pages[0].os_node"), "{error}");
}

#[test]
fn a_running_shell_without_a_plan_for_it_is_left_alone() {
    let machine = from_this_machine().unwrap();
    let plan = plan(&machine, &[("0.9", 0)], &[]);
    let outcome = shell(
        &plan,
        &machine,
        "taskset -p $$ >/dev/null; (exit 3); exit $?",
    );
    assert_eq!((outcome.status, outcome.threads.not_found), (3, 1));
}

#[test]
fn a_program_that_blocks_or_ignores_the_signal_of_breakpoints_keeps_mask_and_handler() {
    let machine = from_this_machine().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let objects = [
        (key(ObjectKind::Mapping, "[anon]", "0", 1 << 20), 256),
        (key(ObjectKind::Heap, "[heap]", "0", 0), 16),
    ];
    let with_pages = plan(&machine, &[("0", 0)], &objects);
    let threads_only = plan(&machine, &[("0", 0)], &[]);
    let program = compile(folder.path(), "traps.c", &[]);
    for mode in ["blocks", "ignores", "x: executes itself"] {
        for plan in [&with_pages, &threads_only] {
            let options = Options {
                pages: PageMode::Always,
                ..Options::default()
            };
            let command = command(&[program.to_str().unwrap(), mode]);
            let outcome = run(plan, &Identity::from(&machine), &command, &options).unwrap();
            assert_eq!(outcome.status, 0, "{mode}: {:?}", outcome.notes);
        }
    }
}
