//! Judges the parts of an installation on a machine: facts in, one entry per part out. Pure.

use super::facts::{Facts, Found, Numbers, System};

/// How well a part works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It works.
    Ok,
    /// It works in part.
    Limited,
    /// It does not work.
    Missing,
}

impl State {
    /// Name in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

/// One part: what was found, what it enables, and how to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name.
    pub name: &'static str,
    /// State.
    pub state: State,
    /// What was found, one line.
    pub found: String,
    /// What works with it.
    pub enables: &'static str,
    /// What the user can do if it does not fully work: a command where there is one.
    pub fix: Option<String>,
    /// Whether numaloc can do little without it.
    pub essential: bool,
}

/// A judgement without the part's name: state, finding, fix.
type Judged = (State, String, Option<String>);

fn ok(found: impl Into<String>) -> Judged {
    (State::Ok, found.into(), None)
}

fn limited(found: impl Into<String>, fix: impl Into<String>) -> Judged {
    (State::Limited, found.into(), Some(fix.into()))
}

fn missing(found: impl Into<String>, fix: impl Into<String>) -> Judged {
    (State::Missing, found.into(), Some(fix.into()))
}

fn part(
    name: &'static str,
    enables: &'static str,
    essential: bool,
    (state, found, fix): Judged,
) -> Part {
    Part {
        name,
        state,
        found,
        enables,
        fix,
        essential,
    }
}

/// All parts, in the order in which they are shown.
pub fn parts(facts: &Facts) -> Vec<Part> {
    let mut list = recorders(facts);
    list.extend(machine(facts));
    list.extend(optional(facts));
    list
}

/// The parts that record programs.
pub fn recorders(facts: &Facts) -> Vec<Part> {
    let (native, emulator) = (native(facts), emulator(facts));
    // Each of the two records nearly all programs.
    let (only_native, only_emulator) = (emulator.0 != State::Ok, native.0 != State::Ok);
    vec![
        part("limits", "record", true, limits(facts)),
        part(
            "native frontend",
            "record x86-64 programs on this processor, exactly, without an emulator",
            only_native,
            native,
        ),
        part(
            "qemu frontend",
            "record any x86-64 program, exactly",
            only_emulator,
            emulator,
        ),
        part(
            "instrument frontend",
            "numaloc cc; record programs built with it, without emulation",
            false,
            instrument(facts),
        ),
        part(
            "gcc loop plugin",
            "numaloc cc: one call per loop, nearly native speed",
            false,
            loops(facts),
        ),
        part(
            "perf frontend",
            "record --frontend perf, record --fast: samples by the PMU",
            false,
            memory_events(facts),
        ),
        part(
            "page-fault samples",
            "record --frontend perf --event page-faults: who touches a page first",
            false,
            sampling(facts),
        ),
    ]
}

/// What the machine and its kernel permit.
fn machine(facts: &Facts) -> Vec<Part> {
    vec![
        part(
            "topology",
            "plan and run for this machine (hwloc)",
            true,
            topology(facts),
        ),
        part("NUMA nodes", "run --plan places pages", false, nodes(facts)),
        part(
            "CPUs",
            "run --plan binds threads to all PUs of the machine",
            false,
            numbers(&facts.cpus, "CPU", "CPUs", WIDEN_CPUS),
        ),
        part(
            "memory nodes",
            "run --plan places pages on all nodes of the machine",
            false,
            numbers(&facts.memory, "memory node", "memory nodes", WIDEN_MEMORY),
        ),
        part(
            "ptrace",
            "run binds each thread to its own PU, and places pages",
            false,
            tracing(facts),
        ),
        part(
            "page placement calls",
            "run places pages (mbind, move_pages)",
            false,
            placing(facts),
        ),
        part(
            "NUMA balancing",
            "compare measures what the kernel achieves by itself (as root)",
            false,
            balancing(facts),
        ),
    ]
}

/// What single commands need.
fn optional(facts: &Facts) -> Vec<Part> {
    let part = |name, enables, judged| part(name, enables, false, judged);
    vec![
        part("MPI", "record --mpi; run with an MPI launcher", mpi(facts)),
        part(
            "lab emulator",
            "lab: runs programs on a virtual NUMA machine",
            lab_emulator(facts),
        ),
        part("lab kernel", "lab", lab_kernel(facts)),
        part("task runtime", "tasks cc, tasks run", ocr(facts)),
    ]
}

/// The command that installs Debian packages, or their names for other systems.
fn install(system: &System, packages: &str) -> String {
    if system.apt {
        format!("apt-get install {packages}")
    } else {
        format!("install {packages} (names of Debian's packages)")
    }
}

/// What to do if a file of ours is missing.
const REINSTALL: &str = "install numaloc as a whole: make install, or its package";

/// How to get an emulator that loads plugins.
fn emulator_fix(system: &System) -> String {
    match (system.id.as_str(), system.version.as_str()) {
        ("debian", "12") => "apt-get install qemu-user".to_owned(),
        _ => "build one in numaloc's source tree with `make newer-qemu`, then export \
              NUMALOC_QEMU=.../target/qemu/qemu-x86_64"
            .to_owned(),
    }
}

fn limits(facts: &Facts) -> Judged {
    match &facts.limits {
        Ok(()) => ok("address space and file sizes are not limited"),
        Err(why) => missing(why, "ulimit -S -v unlimited -f unlimited"),
    }
}

fn emulator(facts: &Facts) -> Judged {
    let Some(emulator) = &facts.emulator else {
        let fix = emulator_fix(&facts.system);
        return missing("qemu-x86_64 is not on PATH", fix);
    };
    let version = emulator.version.as_deref().unwrap_or("unknown version");
    let shown = format!("QEMU {version}, {}", emulator.file.display());
    if emulator.plugins == Some(false) {
        return missing(
            format!("{shown}, was built without plugins"),
            emulator_fix(&facts.system),
        );
    }
    match (&facts.emulator_plugin, &facts.trial) {
        (Err(why), _) => missing(why, REINSTALL),
        (Ok(_), Some(Err(why))) => missing(
            format!("{shown}: recording `true` failed: {why}"),
            "numaloc record -- true shows the whole message",
        ),
        (Ok(_), Some(Ok(()))) => ok(format!("{shown}; recorded `true`")),
        (Ok(_), None) => ok(shown),
    }
}

fn instrument(facts: &Facts) -> Judged {
    match (&facts.instrument, facts.compiler) {
        (Err(why), _) => missing(why, REINSTALL),
        (Ok(_), false) => missing(
            "no C compiler is on PATH",
            install(&facts.system, "gcc g++ gfortran"),
        ),
        (Ok(library), true) => ok(library.display().to_string()),
    }
}

fn loops(facts: &Facts) -> Judged {
    match &facts.gcc {
        None => missing("gcc is not on PATH", install(&facts.system, "gcc")),
        Some(gcc) if gcc.headers => ok(format!(
            "gcc {} and its plugin headers; built on first use",
            gcc.version
        )),
        Some(gcc) => limited(
            format!(
                "gcc {} without its plugin headers: one call per access",
                gcc.version
            ),
            install(&facts.system, &format!("gcc-{}-plugin-dev", gcc.version)),
        ),
    }
}

/// The command that lets a user sample.
const PERMIT_SAMPLING: &str = "sudo sysctl kernel.perf_event_paranoid=2";

fn memory_events(facts: &Facts) -> Judged {
    match (&facts.memory_events, &facts.sampling) {
        (Err(_), _) => missing(
            "no PMU of this machine samples data addresses (virtual machines often have none)",
            "needs PEBS (Intel) or IBS (AMD), in a virtual machine passed on by the hypervisor; \
             the native frontend needs no PMU",
        ),
        (Ok(_), Err(why)) => missing(
            format!("{why}; perf_event_paranoid is {}", facts.paranoid),
            PERMIT_SAMPLING,
        ),
        (Ok(events), Ok(())) => ok(events.join(", ")),
    }
}

fn sampling(facts: &Facts) -> Judged {
    let setting = format!("perf_event_paranoid is {}", facts.paranoid);
    match &facts.sampling {
        Ok(()) => ok(setting),
        Err(why) => missing(format!("{why}; {setting}"), PERMIT_SAMPLING),
    }
}

fn native(facts: &Facts) -> Judged {
    match (&facts.native, &facts.native_trial) {
        (Err(why), _) => missing(why, REINSTALL),
        (Ok(_), Err(why)) => missing(
            why,
            "Linux 5.9 or newer on a processor with FSGSBASE and XSAVEOPT, not booted with nofsgsbase",
        ),
        (Ok(file), Ok(())) => ok(format!("{}; recorded `true`", file.display())),
    }
}

fn topology(facts: &Facts) -> Judged {
    match &facts.machine {
        Ok((summary, _)) => ok(summary),
        Err(why) => missing(
            why,
            "mount /sys and /proc; or describe the machine: --machine FILE",
        ),
    }
}

fn nodes(facts: &Facts) -> Judged {
    match facts.machine {
        Ok((_, 1)) => limited(
            "1 node: there is nothing to place pages on",
            "plan for another machine (--machine NAME, see `numaloc machines`), or use numaloc lab",
        ),
        Ok((_, nodes)) => ok(format!("{nodes} nodes")),
        Err(_) => missing("unknown: there is no topology", "see topology"),
    }
}

/// Numbers in a list of the kernel: `0-3,8` has 5.
fn count(list: &str) -> usize {
    let ranges = list.trim().split(',').filter(|range| !range.is_empty());
    let length = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) if last >= first => last - first + 1,
            _ => 0,
        }
    };
    ranges.map(length).sum()
}

/// How a process gets all CPUs.
const WIDEN_CPUS: &str = "start numaloc without taskset, or widen the cpuset: systemctl set-property SLICE AllowedCPUs=, \
                          docker --cpuset-cpus (`taskset -pc $$` shows the shell's)";
/// How a process gets all memory nodes.
const WIDEN_MEMORY: &str = "start numaloc without numactl, or widen the cpuset: systemctl set-property SLICE \
                            AllowedMemoryNodes=, docker --cpuset-mems";

fn numbers(numbers: &Numbers, one: &str, many: &str, widen: &str) -> Judged {
    let (allowed, all) = (count(&numbers.allowed), count(&numbers.all));
    let name = if all == 1 { one } else { many };
    if allowed == 0 || all == 0 {
        return missing(format!("{many}: unknown"), "mount /proc and /sys");
    }
    if allowed >= all {
        return ok(format!("all: {all} {name} ({})", numbers.allowed));
    }
    limited(
        format!(
            "{allowed} of {all} {name} ({} of {})",
            numbers.allowed, numbers.all
        ),
        widen,
    )
}

fn tracing(facts: &Facts) -> Judged {
    match &facts.tracing {
        Ok(()) => ok("permitted"),
        Err(why) => limited(
            format!("{why}; run binds the program to the plan's PUs as a set"),
            match facts.ptrace_scope.as_deref() {
                Some("2") => "sudo sysctl kernel.yama.ptrace_scope=1",
                Some("3") => "set kernel.yama.ptrace_scope=1 in /etc/sysctl.d and boot again",
                _ => "a seccomp profile that permits ptrace (docker run --cap-add SYS_PTRACE)",
            },
        ),
    }
}

fn placing(facts: &Facts) -> Judged {
    match &facts.placing {
        Ok(()) => ok("permitted"),
        Err(why) => limited(
            format!("{why}; pages stay where first touch puts them"),
            "a seccomp profile that permits mbind and move_pages (docker run --cap-add SYS_NICE)",
        ),
    }
}

fn balancing(facts: &Facts) -> Judged {
    let one_node = matches!(facts.machine, Ok((_, 1)));
    match facts.balancing {
        Some(true) => ok("on"),
        Some(false) if one_node => ok("off; it has no effect on one node"),
        Some(false) => ok("off; as root, compare switches it on for its runs"),
        None if one_node => ok("not in this kernel; it would have no effect on one node"),
        None => limited(
            "not in this kernel (CONFIG_NUMA_BALANCING)",
            "boot a kernel of the distribution",
        ),
    }
}

fn mpi(facts: &Facts) -> Judged {
    if facts.launchers.is_empty() {
        return missing(
            "no launcher is on PATH (mpirun, mpiexec, srun)",
            install(&facts.system, "openmpi-bin"),
        );
    }
    let named: Vec<String> = facts
        .launchers
        .iter()
        .map(|(launcher, library)| format!("{launcher} ({library})"))
        .collect();
    ok(named.join(", "))
}

fn lab_emulator(facts: &Facts) -> Judged {
    match (&facts.system_emulator, &facts.lab_plugin) {
        (_, Err(why)) => missing(why, REINSTALL),
        (None, _) => missing(
            "qemu-system-x86_64 is not on PATH",
            install(&facts.system, "qemu-system-x86 busybox-static numactl"),
        ),
        (Some(_), _) if !facts.busybox => missing(
            "no static busybox for the guest",
            install(&facts.system, "busybox-static"),
        ),
        (Some(file), _) => ok(file.display().to_string()),
    }
}

fn lab_kernel(facts: &Facts) -> Judged {
    match &facts.lab_kernel {
        Ok(release) => ok(format!("Linux {release}")),
        Err(why) if facts.system.apt => limited(
            format!("{why}; the first `numaloc lab` downloads one with apt"),
            "apt-get update (as root), if apt has no package lists",
        ),
        Err(why) => missing(
            why,
            "unpack Debian's linux-image-*-cloud-amd64 there (docs/lab.md)",
        ),
    }
}

fn ocr(facts: &Facts) -> Judged {
    let both: [&Found; 2] = [&facts.ocr_header, &facts.ocr_library];
    match both {
        [Err(why), _] | [_, Err(why)] => missing(why, REINSTALL),
        [Ok(_), Ok(_)] if !facts.compiler => {
            missing("no C compiler is on PATH", install(&facts.system, "gcc"))
        }
        [Ok(_), Ok(library)] => ok(library.display().to_string()),
    }
}

#[cfg(test)]
mod tests;
