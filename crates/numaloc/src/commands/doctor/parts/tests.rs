use std::path::PathBuf;

use super::super::facts::{Emulator, Gcc};
use super::*;

/// A machine with two nodes on which everything works.
fn complete() -> Facts {
    let file = |name: &str| -> Found { Ok(PathBuf::from(name)) };
    let numbers = |list: &str| Numbers {
        allowed: list.to_owned(),
        all: list.to_owned(),
    };
    Facts {
        system: System {
            id: "debian".to_owned(),
            version: "12".to_owned(),
            apt: true,
        },
        limits: Ok(()),
        emulator: Some(Emulator {
            file: "/usr/bin/qemu-x86_64".into(),
            version: Some("7.2.22".to_owned()),
            plugins: Some(true),
        }),
        emulator_plugin: file("/usr/lib/numaloc/libnumaloc_qemu.so"),
        trial: Some(Ok(())),
        instrument: file("/usr/lib/numaloc/libnumaloc_instrument.a"),
        compiler: true,
        gcc: Some(Gcc {
            version: 12,
            headers: true,
        }),
        native: file("/usr/lib/numaloc/numaloc-native"),
        native_trial: Ok(()),
        memory_events: Ok(vec!["mem-loads".to_owned()]),
        sampling: Ok(()),
        paranoid: "2".to_owned(),
        machine: Ok(("2 nodes, 8 cores, 16 PUs".to_owned(), 2)),
        cpus: numbers("0-15"),
        memory: numbers("0-1"),
        tracing: Ok(()),
        ptrace_scope: Some("1".to_owned()),
        placing: Ok(()),
        balancing: Some(true),
        launchers: vec![("mpirun".to_owned(), "Open MPI".to_owned())],
        system_emulator: Some("/usr/bin/qemu-system-x86_64".into()),
        lab_plugin: file("/usr/lib/numaloc/libnumaloc_lab_plugin.so"),
        lab_kernel: Ok("6.1.0-56-cloud-amd64".to_owned()),
        busybox: true,
        ocr_header: file("/usr/include/numaloc/ocr.h"),
        ocr_library: file("/usr/lib/numaloc/libnumaloc_ocr.so"),
    }
}

/// The entry of a part after a change of the complete machine; no other entry but those in `also` may change.
fn changed(name: &str, also: &[&str], change: impl FnOnce(&mut Facts)) -> Part {
    let mut facts = complete();
    change(&mut facts);
    for (before, after) in parts(&complete()).iter().zip(&parts(&facts)) {
        if before.name != name && !also.contains(&before.name) {
            assert_eq!(before, after);
        }
    }
    let part = parts(&facts).into_iter().find(|part| part.name == name);
    part.expect("a part of that name")
}

#[test]
fn a_complete_installation_is_ok_and_has_nothing_to_fix() {
    for part in parts(&complete()) {
        assert_eq!(part.state, State::Ok, "{part:?}");
        assert_eq!(part.fix, None, "{part:?}");
    }
}

#[test]
fn names_are_unique_and_what_is_not_ok_has_a_fix() {
    let mut facts = complete();
    facts.emulator = None;
    facts.compiler = false;
    facts.gcc = None;
    facts.sampling = Err("EACCES".to_owned());
    facts.machine = Err("no /sys".to_owned());
    facts.tracing = Err("EPERM".to_owned());
    facts.placing = Err("EPERM".to_owned());
    facts.launchers.clear();
    facts.system_emulator = None;
    facts.lab_kernel = Err("no kernel in /x".to_owned());
    let list = parts(&facts);
    for part in &list {
        assert_eq!(part.state == State::Ok, part.fix.is_none(), "{part:?}");
        let same = list.iter().filter(|other| other.name == part.name);
        assert_eq!(same.count(), 1, "{part:?}");
    }
    assert!(list.iter().filter(|part| part.state != State::Ok).count() >= 10);
}

#[test]
fn an_emulator_without_plugins_is_replaced_by_one_that_is_built() {
    let part = changed("qemu frontend", &["native frontend"], |facts| {
        facts.system.version = "13".to_owned();
        facts.emulator.as_mut().unwrap().plugins = Some(false);
        facts.trial = None;
    });
    assert_eq!(part.state, State::Missing);
    assert!(part.found.contains("was built without plugins"), "{part:?}");
    assert!(part.fix.unwrap().contains("make newer-qemu"));
}

#[test]
fn a_missing_emulator_is_a_package_of_debian_12() {
    let part = changed("qemu frontend", &["native frontend"], |facts| {
        facts.emulator = None;
        facts.trial = None;
    });
    assert_eq!(part.fix.as_deref(), Some("apt-get install qemu-user"));
    assert!(!part.essential);
}

#[test]
fn one_of_the_two_frontends_for_unmodified_programs_is_essential() {
    let part = changed("qemu frontend", &["native frontend"], |facts| {
        facts.emulator = None;
        facts.native_trial = Err("no FSGSBASE".to_owned());
    });
    assert!(part.essential);
}

#[test]
fn a_recording_that_fails_counts_more_than_the_files_that_are_there() {
    let part = changed("qemu frontend", &["native frontend"], |facts| {
        facts.trial = Some(Err("no space left".to_owned()));
    });
    assert_eq!(part.state, State::Missing);
    assert!(part.found.contains("no space left"), "{part:?}");
}

#[test]
fn a_restricted_cpuset_limits_binding() {
    let part = changed("CPUs", &[], |facts| {
        facts.cpus.allowed = "0-2,8".to_owned();
    });
    assert_eq!(part.state, State::Limited);
    assert_eq!(part.found, "4 of 16 CPUs (0-2,8 of 0-15)");
    let part = changed("memory nodes", &[], |facts| {
        facts.memory.allowed = "1".to_owned();
    });
    assert_eq!(part.found, "1 of 2 memory nodes (1 of 0-1)");
}

#[test]
fn forbidden_ptrace_limits_run_but_is_not_essential() {
    let part = changed("ptrace", &[], |facts| {
        facts.tracing = Err("ptrace: EPERM".to_owned());
    });
    assert_eq!((part.state, part.essential), (State::Limited, false));
    assert!(part.fix.unwrap().contains("SYS_PTRACE"));
    let part = changed("ptrace", &[], |facts| {
        facts.tracing = Err("EPERM".to_owned());
        facts.ptrace_scope = Some("2".to_owned());
    });
    assert_eq!(
        part.fix.as_deref(),
        Some("sudo sysctl kernel.yama.ptrace_scope=1")
    );
}

#[test]
fn sampling_that_is_forbidden_names_the_setting() {
    let part = changed("perf frontend", &["page-fault samples"], |facts| {
        facts.sampling = Err("EACCES".to_owned());
        facts.paranoid = "3".to_owned();
    });
    assert_eq!(part.state, State::Missing);
    assert!(part.found.contains("perf_event_paranoid is 3"), "{part:?}");
}

#[test]
fn one_node_limits_page_placement_and_leaves_balancing_without_effect() {
    let part = changed("NUMA nodes", &["topology", "NUMA balancing"], |facts| {
        facts.machine = Ok(("1 node".to_owned(), 1));
        facts.balancing = None;
    });
    assert_eq!(part.state, State::Limited);
}

#[test]
fn other_systems_get_names_instead_of_commands_of_debian() {
    let part = changed("task runtime", &["instrument frontend"], |facts| {
        facts.system.apt = false;
        facts.compiler = false;
    });
    assert_eq!(
        part.fix.as_deref(),
        Some("install gcc (names of Debian's packages)")
    );
}

#[test]
fn lists_of_the_kernel_are_counted() {
    for (list, numbers) in [
        ("0-3,8", 5),
        ("0", 1),
        ("", 0),
        ("7-2", 0),
        ("x", 0),
        ("0-1\n", 2),
    ] {
        assert_eq!(count(list), numbers, "{list:?}");
    }
}
