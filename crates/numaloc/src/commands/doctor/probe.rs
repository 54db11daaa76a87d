//! Collects the facts: looks at files, starts programs with `--version`, and tries what can only be tried.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use numaloc_launch::{Part, sibling};
use numaloc_mpi::Launcher;
use numaloc_perf::events;

use super::facts::{Emulator, Facts, Found, Gcc, Numbers, System};
use crate::commands::{cc, lab, record};

/// All facts about this machine and installation.
pub fn facts() -> Facts {
    let emulator = emulator();
    let emulator_plugin = record::plugin().map_err(|error| error.message);
    let usable = emulator
        .as_ref()
        .is_some_and(|emulator| emulator.plugins != Some(false));
    let trial = (usable && emulator_plugin.is_ok()).then(|| recording("qemu"));
    let native = record::translator().map_err(|error| error.message);
    Facts {
        system: system(),
        limits: record::limits(true).map_err(|error| error.message),
        emulator,
        emulator_plugin,
        trial,
        instrument: cc::library().map_err(|error| error.message),
        compiler: on_path("cc").is_some(),
        gcc: gcc(),
        native_trial: native.clone().and_then(|_| recording("native")),
        native,
        memory_events: events::discover(Path::new(events::SYSFS))
            .map(|events| events.into_iter().map(|event| event.name).collect())
            .map_err(|error| error.to_string()),
        sampling: numaloc_perf::live::permitted().map_err(|error| error.to_string()),
        paranoid: text("/proc/sys/kernel/perf_event_paranoid")
            .unwrap_or_else(|| "unreadable".to_owned()),
        machine: numaloc_topology::from_this_machine()
            .map(|machine| (machine.summary(), machine.nodes().len()))
            .map_err(|error| error.to_string()),
        cpus: numbers("Cpus_allowed_list:", "/sys/devices/system/cpu/online"),
        memory: numbers("Mems_allowed_list:", "/sys/devices/system/node/has_memory"),
        tracing: numaloc_apply::permitted::tracing().map_err(|error| error.to_string()),
        ptrace_scope: text("/proc/sys/kernel/yama/ptrace_scope"),
        placing: numaloc_apply::permitted::placing().map_err(|error| error.to_string()),
        balancing: numaloc_apply::permitted::balancing(),
        launchers: launchers(),
        system_emulator: on_path("qemu-system-x86_64"),
        lab_plugin: lab::plugin().map_err(|error| error.message),
        lab_kernel: lab_kernel(),
        busybox: Path::new("/bin/busybox").is_file(),
        ocr_header: file("ocr.h", Part::Header),
        ocr_library: file("libnumaloc_ocr.so", Part::Library),
    }
}

fn text(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

fn on_path(name: &str) -> Option<PathBuf> {
    numaloc_launch::find(name.as_ref()).ok()
}

fn file(name: &str, part: Part) -> Found {
    sibling(name, part, None).map_err(|why| why.to_string())
}

fn system() -> System {
    let release = text("/etc/os-release").unwrap_or_default();
    let field = |name: &str| {
        let mut lines = release.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default().trim_matches('"').to_owned()
    };
    System {
        id: field("ID"),
        version: field("VERSION_ID"),
        apt: on_path("apt-get").is_some(),
    }
}

/// First line of standard output of a program that ends by itself.
fn first_line(command: &mut Command) -> Option<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.lines().next()?.to_owned())
}

fn emulator() -> Option<Emulator> {
    let file = record::emulator_file()?;
    // "qemu-x86_64 version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)"
    let version = first_line(Command::new(&file).arg("--version")).and_then(|line| {
        let (_, version) = line.split_once(" version ")?;
        Some(version.split(' ').next()?.to_owned())
    });
    let plugins = record::takes_plugins(&file);
    Some(Emulator {
        file,
        version,
        plugins,
    })
}

/// The program that does nothing, if it is not on PATH.
const TRUE: &str = "/bin/true";

/// Records `true` with a frontend into a folder that is removed again.
fn recording(frontend: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let own = numaloc_launch::own_file().map_err(|error| error.to_string())?;
    let mut command = Command::new(own);
    command
        .args(["record", "--quiet", "--frontend", frontend, "-o"])
        .arg(folder.path().join("true.numaloc"))
        .arg("--")
        .arg(on_path("true").unwrap_or_else(|| TRUE.into()));
    succeeds(&mut command)
}

/// Runs a command; the first line of its standard error if it fails.
fn succeeds(command: &mut Command) -> Result<(), String> {
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let line = message.lines().next().unwrap_or_default();
    let line = line.trim_start_matches("error: ");
    Err(if line.is_empty() {
        output.status.to_string()
    } else {
        line.to_owned()
    })
}

fn gcc() -> Option<Gcc> {
    on_path("gcc")?;
    let version = first_line(Command::new("gcc").arg("-dumpversion"))?;
    let folder = first_line(Command::new("gcc").arg("-print-file-name=plugin"))?;
    Some(Gcc {
        version: version.split('.').next()?.parse().ok()?,
        headers: Path::new(&folder).join("include/gcc-plugin.h").is_file(),
    })
}

/// `field` of this process's status, and the machine's list in `all`.
fn numbers(field: &str, all: &str) -> Numbers {
    let status = text("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix(field));
    Numbers {
        allowed: allowed.unwrap_or_default().trim().to_owned(),
        all: text(all).unwrap_or_default(),
    }
}

fn launchers() -> Vec<(String, String)> {
    let names = ["mpirun", "mpiexec", "mpiexec.hydra", "prterun", "srun"];
    let found = names.iter().filter(|name| on_path(name).is_some());
    let known = found.filter_map(|name| {
        let library = match Launcher::of_command(&[name.into()]) {
            Launcher::OpenMpi => "Open MPI",
            Launcher::Prrte => "Open MPI 5",
            Launcher::Hydra => "MPICH",
            Launcher::Intel => "Intel MPI",
            Launcher::Slurm => "Slurm",
            Launcher::None => return None,
        };
        Some(((*name).to_owned(), library.to_owned()))
    });
    known.collect()
}

/// Release of the newest kernel that the lab has kept.
fn lab_kernel() -> Result<String, String> {
    let cache = numaloc_lab::cache_folder().map_err(|error| error.to_string())?;
    match numaloc_lab::Kernel::kept(&cache) {
        Some(Ok(kernel)) => Ok(kernel.release),
        Some(Err(error)) => Err(error.to_string()),
        None => Err(format!("no kernel in {}", cache.display())),
    }
}
