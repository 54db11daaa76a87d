//! Exported plans given to the tools they are for: each tool runs a program that prints its PUs.

mod support;

use numaloc_apply::export::{ExportError, Exported, TARGETS, export, target};
use numaloc_model::plan::{PagePlan, Plan, ThreadPlan};
use numaloc_model::profile::ObjectKind;
use numaloc_model::roles::{
    NodePlan, RoleKey, RoleMemory, RolePlan, RolesPlan, Seats, SegmentPages, SegmentPlan,
};
use numaloc_model::{LogicalNode, LogicalPu, OsNode, OsPu};
use std::path::Path;
use std::process::Command;
use support::key;

fn plan(pus: &[u32]) -> Plan {
    let path = |t: usize| {
        if t == 0 {
            "0".to_owned()
        } else {
            format!("0.{t}")
        }
    };
    Plan {
        threads: pus
            .iter()
            .enumerate()
            .map(|(t, &pu)| ThreadPlan {
                path: path(t),
                pu: LogicalPu(pu),
                os_pu: OsPu(pu),
            })
            .collect(),
        objects: vec![key(ObjectKind::Heap, "[heap]", "0", 0)],
        pages: vec![PagePlan {
            object: 0,
            first_page: 0,
            pages: 4,
            node: LogicalNode(0),
            os_node: OsNode(0),
        }],
        ..Plan::by_hand("this machine", "")
    }
}

/// The PUs allowed here; the plan under test alternates between the last and the first.
fn own_pus() -> Vec<u32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    let mut pus = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        pus.extend(first.parse::<u32>().unwrap()..=last.parse().unwrap());
    }
    pus
}

fn alternating() -> Vec<u32> {
    let pus = own_pus();
    let (first, last) = (pus[0], pus[pus.len() - 1]);
    vec![last, first, last, first]
}

fn compile(folder: &Path) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/where_am_i.c");
    let program = folder.join("where_am_i");
    let status = Command::new("cc")
        .args(["-O1", "-fopenmp", "-o"])
        .args([&program, &source])
        .status()
        .expect("a C compiler runs");
    assert!(status.success());
    program.to_str().unwrap().to_owned()
}

/// Runs the shell line and returns its lines.
fn lines(script: &str) -> Vec<String> {
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {error}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn openmp_run_times_put_every_thread_where_the_export_says() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path());
    let pus = alternating();
    let expected: Vec<String> = pus
        .iter()
        .enumerate()
        .map(|(t, pu)| format!("{t} {pu}"))
        .collect();
    for (name, preload) in [
        ("omp-places", ""),
        ("gomp", ""),
        // The LLVM run time replaces libgomp, whose entry points it provides.
        ("kmp", "LD_PRELOAD=/usr/lib/llvm-14/lib/libomp.so.5 "),
    ] {
        let exported = export(&plan(&pus), target(name).unwrap()).unwrap();
        let variables = exported.text.replace('\n', " ");
        assert_eq!(
            lines(&format!("env {variables}{preload}{program}")),
            expected,
            "{name}"
        );
        assert!(
            exported
                .warnings
                .iter()
                .any(|w| w.contains("1 page ranges are lost"))
        );
    }
}

#[test]
fn tools_that_bind_sets_bind_the_set() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path());
    let mut set = alternating();
    set.sort_unstable();
    set.dedup();
    let pus: Vec<String> = set.iter().map(u32::to_string).collect();
    for name in ["taskset", "numactl", "hwloc-bind"] {
        let exported = export(&plan(&alternating()), target(name).unwrap()).unwrap();
        let prefix = exported.text.trim();
        let got = lines(&format!("OMP_NUM_THREADS=1 {prefix} {program} set"));
        assert_eq!(got, [pus.join(",")], "{name}: {prefix}");
        let lost = exported
            .warnings
            .iter()
            .any(|w| w.contains("which of 4 threads"));
        assert_eq!(lost, set.len() > 1, "{name}");
    }
}

#[test]
fn likwid_pin_puts_every_thread_where_the_export_says() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path());
    let mut pus = own_pus();
    pus.reverse();
    let exported = export(&plan(&pus), target("likwid-pin").unwrap()).unwrap();
    let list: Vec<String> = pus.iter().map(u32::to_string).collect();
    assert_eq!(exported.text, format!("likwid-pin -c {}\n", list.join(",")));
    if Command::new("likwid-pin").arg("-v").output().is_err() {
        support::skip("likwid is not installed");
        return;
    }
    let quiet = exported.text.trim().replace("likwid-pin", "likwid-pin -q");
    let expected: Vec<String> = pus
        .iter()
        .enumerate()
        .map(|(t, pu)| format!("{t} {pu}"))
        .collect();
    assert_eq!(lines(&format!("{quiet} {program}")), expected);
    // It drops repeated PUs, which must be reported.
    let shared = export(&plan(&[0, 0]), target("likwid-pin").unwrap()).unwrap();
    assert!(shared.warnings.iter().any(|w| w.contains("each PU once")));
}

#[test]
fn what_a_target_cannot_express_is_reported_as_lost() {
    let mut plan = plan(&[0, 1]);
    plan.threads[1].path = "0.1.1".to_owned();
    for target in TARGETS.iter().filter(|target| target.has_threads()) {
        let exported = export(&plan, *target).unwrap();
        let is_lost = exported.warnings.iter().any(|w| w.contains("0.1.1"));
        assert_eq!(is_lost, !target.has_all_processes(), "{}", target.name());
    }
    plan.threads.clear();
    let error = export(&plan, TARGETS[0]).unwrap_err();
    assert_eq!(
        error,
        ExportError::NoThread {
            target: TARGETS[0].name()
        }
    );
}

/// Pages of the first object on nodes 0, 2 and 4 3, 1 and 1 at a time, by `weighted-interleave`.
fn weighted() -> Plan {
    let mut plan = plan(&[0, 1]);
    plan.provenance.page_policy = "weighted-interleave".to_owned();
    plan.pages = (0..40)
        .map(|at| PagePlan {
            object: 0,
            first_page: at * 5,
            pages: [1, 3, 1][at as usize % 3],
            node: LogicalNode(at as u32 % 3),
            os_node: OsNode([2, 0, 4][at as usize % 3]),
        })
        .collect();
    plan
}

#[test]
fn targets_for_memory_alone_have_the_planned_nodes_and_no_threads() {
    let mut plan = weighted();
    plan.pages.truncate(39);
    let exported = export(&plan, target("sysfs-weights").unwrap()).unwrap();
    let folder = "/sys/kernel/mm/mempolicy/weighted_interleave";
    let lines: Vec<&str> = exported.text.lines().collect();
    assert!(
        lines[0].starts_with('#') && lines[0].contains("--weighted-interleave=0,2,4"),
        "{lines:?}"
    );
    let set = [(0, 3), (2, 1), (4, 1)]
        .map(|(node, weight)| format!("echo {weight} > {folder}/node{node}"));
    assert_eq!(lines[1..], set);
    // A shell accepts it.
    let checked = Command::new("sh")
        .args(["-n", "-c", &exported.text])
        .status()
        .unwrap();
    assert!(checked.success());

    let memkind = target("memkind").unwrap();
    let exported = export(&plan, memkind).unwrap();
    let name = &plan.objects[0].name;
    assert!(
        exported.text.contains(&format!("# hbw_malloc: {name} (")),
        "{}",
        exported.text
    );
    assert!(
        exported.text.ends_with("\nMEMKIND_HBW_NODES=0,2,4\n"),
        "{}",
        exported.text
    );
    let warned = |exported: &Exported| {
        exported
            .warnings
            .iter()
            .any(|said| said.contains("--pages hbm"))
    };
    assert!(warned(&exported));
    plan.provenance.page_policy = "hbm".to_owned();
    plan.threads.clear();
    assert!(!warned(&export(&plan, memkind).unwrap()));
    plan.pages.clear();
    let error = export(&plan, memkind).unwrap_err();
    assert_eq!(error, ExportError::NoPage { target: "memkind" });
}

#[test]
fn numactl_gets_weights_of_the_planned_pages() {
    let exported = export(&weighted(), target("numactl").unwrap()).unwrap();
    let line = "numactl --physcpubind=0,1 --weighted-interleave=0,2,4 --\n";
    assert_eq!(exported.text, line);
    let folder = "/sys/kernel/mm/mempolicy/weighted_interleave";
    let set = format!("echo 3 > {folder}/node0; echo 1 > {folder}/node2; echo 1 > {folder}/node4");
    let mut even = weighted();
    even.pages.truncate(39);
    let exported = export(&even, target("numactl").unwrap()).unwrap();
    let said = exported
        .warnings
        .iter()
        .find(|said| said.contains("2.0.19"));
    assert!(said.unwrap().ends_with(&set), "{said:?}");
    // On one node there is nothing to weigh.
    even.pages.retain(|pages| pages.os_node == OsNode(0));
    let exported = export(&even, target("numactl").unwrap()).unwrap();
    assert!(exported.text.contains("--preferred=0"), "{}", exported.text);
}

/// A plan of two processes on four PUs, with pages on nodes 0 to 2 and 4.
fn of_a_server() -> Plan {
    let mut plan = plan(&[1, 0, 2, 5]);
    plan.threads[2].path = "0/1".to_owned();
    plan.threads[3].path = "0/1.1".to_owned();
    plan.pages = [0, 1, 2, 4]
        .map(|node| PagePlan {
            object: 0,
            first_page: u64::from(node) * 512,
            pages: 512,
            node: LogicalNode(node),
            os_node: OsNode(node),
        })
        .to_vec();
    plan
}

#[test]
fn a_service_gets_all_pus_and_nodes_of_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let exported = export(&of_a_server(), target("systemd").unwrap()).unwrap();
    let (comment, rest) = exported.text.split_once('\n').unwrap();
    assert_eq!(comment, format!("# {}", exported.warnings.join("; ")));
    let settings: Vec<&str> = rest.lines().skip(1).collect();
    let expected = [
        "[Service]",
        "CPUAffinity=0-2,5",
        "NUMAPolicy=interleave",
        "NUMAMask=0-2,4",
    ];
    assert_eq!(settings, expected);
    let mut one = of_a_server();
    one.pages.truncate(1);
    let exported = export(&one, target("systemd").unwrap()).unwrap();
    assert!(
        exported
            .text
            .ends_with("NUMAPolicy=preferred\nNUMAMask=0\n")
    );
    // The drop-in of a service, read by systemd itself.
    let drop_in = folder.path().join("numaloc-test.service.d");
    std::fs::create_dir(&drop_in).unwrap();
    std::fs::write(drop_in.join("numaloc.conf"), &exported.text).unwrap();
    let unit = folder.path().join("numaloc-test.service");
    std::fs::write(&unit, "[Service]\nExecStart=/bin/true\n").unwrap();
    let Ok(read) = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&unit)
        .output()
    else {
        support::skip("systemd is not installed");
        return;
    };
    let errors = String::from_utf8_lossy(&read.stderr);
    assert!(!errors.contains("numaloc"), "{errors}");
}

#[test]
fn a_cgroup_gets_the_lines_that_sh_writes() {
    let folder = tempfile::tempdir().unwrap();
    let exported = export(&of_a_server(), target("cgroup").unwrap()).unwrap();
    let cgroup = folder.path().to_str().unwrap();
    lines(&format!("CGROUP={cgroup}\n{}", exported.text));
    let written = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(written("cpuset.cpus"), "0-2,5\n");
    assert_eq!(written("cpuset.mems"), "0-2,4\n");
}

#[test]
fn containers_get_sets_and_whole_cpus() {
    let docker = export(&of_a_server(), target("docker").unwrap()).unwrap();
    assert_eq!(
        docker.text,
        "docker run --cpuset-cpus=0-2,5 --cpuset-mems=0-2,4\n"
    );
    // Without planned pages the container's nodes are not limited.
    let mut unplaced = of_a_server();
    unplaced.pages.clear();
    let docker = export(&unplaced, target("docker").unwrap()).unwrap();
    assert_eq!(docker.text, "docker run --cpuset-cpus=0-2,5\n");
    let pod = export(&of_a_server(), target("kubernetes").unwrap()).unwrap();
    let words = |name: &str| {
        let lines = pod
            .text
            .lines()
            .filter_map(|line| line.trim().strip_prefix(name));
        lines.collect::<Vec<_>>()
    };
    // Requests equal limits, and CPUs are whole: otherwise the static policy does not apply.
    assert_eq!(words("cpu: "), ["\"4\""; 2]);
    assert_eq!(words("memory: "), ["8Mi"; 2]);
    assert!(pod.text.contains("best-effort"));
    let mut one = of_a_server();
    one.pages.truncate(1);
    let pod = export(&one, target("kubernetes").unwrap()).unwrap();
    assert!(
        pod.text
            .contains("--topology-manager-policy=single-numa-node")
    );
}

#[test]
fn a_java_virtual_machine_accepts_its_options() {
    let mut plan = of_a_server();
    let flags = |plan: &Plan| export(plan, target("jvm").unwrap()).unwrap().text;
    assert_eq!(
        flags(&plan),
        "java -XX:+UseNUMA -XX:ActiveProcessorCount=4\n"
    );
    plan.provenance.page_policy = "interleave".to_owned();
    assert_eq!(
        flags(&plan),
        "java -XX:+UseNUMAInterleaving -XX:ActiveProcessorCount=4\n"
    );
    let interleaved = flags(&plan);
    plan.pages.clear();
    assert_eq!(flags(&plan), "java -XX:ActiveProcessorCount=4\n");
    if Command::new("java").arg("-version").output().is_err() {
        support::skip("java is not installed");
        return;
    }
    let shown = lines(&format!(
        "{} -XX:+PrintFlagsFinal -version",
        interleaved.trim()
    ));
    let value = |name: &str| {
        let line = shown
            .iter()
            .find(|line| line.split_whitespace().nth(1) == Some(name));
        line.unwrap().split_whitespace().nth(3).unwrap().to_owned()
    };
    assert_eq!(value("UseNUMAInterleaving"), "true");
    assert_eq!(value("ActiveProcessorCount"), "4");
}

/// A plan by role: two processes with titles on one node each, and an unnamed role that is left.
fn by_role(title: &str, pus: [u32; 2]) -> Plan {
    let both = || vec![LogicalNode(0), LogicalNode(1)];
    let role = |called: Option<&str>, seats| RolePlan {
        name: called.unwrap_or("main thread").to_owned(),
        key: RoleKey {
            called: called.map(str::to_owned),
            is_process: true,
            ..RoleKey::default()
        },
        creator: None,
        members: 2,
        seats,
        memory: RoleMemory::Left,
    };
    let mut roles = vec![
        role(None, Seats::Left),
        role(Some(title), Seats::Each(both())),
    ];
    roles[1].creator = Some(0);
    Plan {
        roles: RolesPlan {
            nodes: (0..)
                .zip(pus)
                .map(|(node, pu)| NodePlan {
                    node: LogicalNode(node),
                    os_node: OsNode(node),
                    os_pus: vec![pu],
                })
                .collect(),
            roles,
            segments: vec![SegmentPlan {
                name: "cache".to_owned(),
                kind: ObjectKind::Shared,
                memory: "[anon]".to_owned(),
                role: 0,
                bytes: (1, 2),
                pages: SegmentPages::Interleave(both()),
            }],
        },
        ..Plan::by_hand("this machine", "")
    }
}

#[test]
fn lines_by_role_find_the_members_by_their_titles_and_bind_them_in_turn() {
    let pus = own_pus();
    let pus = [pus[0], pus[pus.len() - 1]];
    let own = std::process::id();
    // A title with what the shell and expressions would understand.
    let called = format!("it's $({own}) N");
    let plan = by_role(&called, pus);
    let mut members: Vec<_> = (1..=2)
        .map(|number| {
            let title = called.replace('N', &number.to_string());
            let mut child = Command::new("bash");
            child.args(["-c", "exec -a \"$0\" sleep 300", &title]);
            child.spawn().unwrap()
        })
        .collect();
    let has_title = |id: u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.starts_with(b"it's")
    };
    while !members.iter().all(|member| has_title(member.id())) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let Exported { text, warnings } = export(&plan, target("taskset").unwrap()).unwrap();
    let output = Command::new("sh").args(["-c", &text]).output();
    let mut lists: Vec<String> = members
        .iter()
        .map(|member| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", member.id())).unwrap();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            line.unwrap().trim().to_owned()
        })
        .collect();
    for member in &mut members {
        member.kill().unwrap();
        member.wait().unwrap();
    }
    let output = output.unwrap();
    assert!(output.status.success(), "{text}: {output:?}");
    lists.sort();
    let mut expected = pus.map(|pu| pu.to_string());
    expected.sort();
    assert_eq!(lists, expected, "{text}");
    assert!(
        warnings
            .iter()
            .any(|words| words.contains("policy of cache")),
        "{warnings:?}"
    );
    assert!(
        text.starts_with("# taskset binds the members that run"),
        "{text}"
    );
}

#[test]
fn what_other_launchers_can_say_of_roles() {
    let plan = by_role("s: client N", [0, 1]);
    let text = |name| export(&plan, target(name).unwrap()).unwrap().text;
    assert_eq!(text("numactl"), "numactl --interleave=0,1 --\n");
    let systemd = text("systemd");
    assert!(
        systemd.contains("[Service]\nNUMAPolicy=interleave\nNUMAMask=0-1"),
        "{systemd}"
    );
    assert!(
        systemd.starts_with("# systemd holds for the whole program"),
        "{systemd}"
    );
    let cgroup = text("cgroup");
    for line in [
        "echo 0 > \"$CGROUP/role-1-nodes-0/cpuset.cpus\"",
        "set -- \"$CGROUP/role-1-nodes-0\" \"$CGROUP/role-1-nodes-1\"",
        "for id in $(pgrep -f -- '^s: client [0-9]+'); do",
    ] {
        assert!(cgroup.contains(line), "{line}: {cgroup}");
    }
    let syntax = Command::new("sh")
        .args(["-n", "-c", &cgroup])
        .status()
        .unwrap();
    assert!(syntax.success(), "{cgroup}");
    for name in ["docker", "omp-places", "jvm", "memkind"] {
        let error = export(&plan, target(name).unwrap()).unwrap_err();
        assert_eq!(error, ExportError::ByRole { target: name });
    }
    let mut left = plan.clone();
    left.roles.roles[1].seats = Seats::Left;
    left.roles.segments.clear();
    let mut some = left.clone();
    some.roles.roles[0].seats = Seats::Any(vec![LogicalNode(0)]);
    for name in ["numactl", "systemd"] {
        let error = export(&some, target(name).unwrap()).unwrap_err();
        let left = vec![some.roles.roles[1].name.clone()];
        assert_eq!(error, ExportError::RolesLeft { target: name, left });
    }
    for name in ["taskset", "numactl", "systemd", "cgroup"] {
        assert!(export(&left, target(name).unwrap()).is_err(), "{name}");
    }
}
