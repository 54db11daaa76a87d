//! What is known about a machine and an installation: filled by `probe`, judged by `parts`. Plain data.

use std::path::PathBuf;

/// A file of the installation, or why it was not found.
pub type Found = Result<PathBuf, String>;

/// The operating system's name and version, as /etc/os-release has them.
#[derive(Clone, Debug, Default)]
pub struct System {
    /// `ID`: `debian`, `ubuntu`.
    pub id: String,
    /// `VERSION_ID`: `12`, `24.04`; empty on rolling releases.
    pub version: String,
    /// Whether apt-get is on PATH.
    pub apt: bool,
}

/// An emulator of x86-64 programs.
#[derive(Clone, Debug)]
pub struct Emulator {
    /// Its file.
    pub file: PathBuf,
    /// Its version, if it reports one.
    pub version: Option<String>,
    /// Whether it can load plugins; `None` if the file does not show it.
    pub plugins: Option<bool>,
}

/// A compiler of the gcc family.
#[derive(Clone, Debug)]
pub struct Gcc {
    /// Major version.
    pub version: u32,
    /// Whether its plugin headers are installed.
    pub headers: bool,
}

/// Numbers of CPUs or memory nodes.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Those that this process may use, as the kernel prints lists: `0-3,8`.
    pub allowed: String,
    /// Those of the machine.
    pub all: String,
}

/// Everything that `doctor` looks at.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The operating system.
    pub system: System,
    /// Why limits of this shell prevent a recording, if they do.
    pub limits: Result<(), String>,
    /// `qemu-x86_64`.
    pub emulator: Option<Emulator>,
    /// Our plugin for it.
    pub emulator_plugin: Found,
    /// What a recording of `true` with the emulator reported; `None` if there is no emulator or plugin.
    pub trial: Option<Result<(), String>>,
    /// The run-time library of `numaloc cc`.
    pub instrument: Found,
    /// Whether `cc` is on PATH.
    pub compiler: bool,
    /// gcc.
    pub gcc: Option<Gcc>,
    /// The translator of the native frontend.
    pub native: Found,
    /// What a recording of `true` with the translator reported.
    pub native_trial: Result<(), String>,
    /// Names of the PMU's events that sample memory accesses.
    pub memory_events: Result<Vec<String>, String>,
    /// Whether the kernel lets this user sample.
    pub sampling: Result<(), String>,
    /// `/proc/sys/kernel/perf_event_paranoid`.
    pub paranoid: String,
    /// This machine as hwloc reports it: a summary and its number of NUMA nodes.
    pub machine: Result<(String, usize), String>,
    /// CPUs.
    pub cpus: Numbers,
    /// NUMA nodes with memory.
    pub memory: Numbers,
    /// Whether a program can be followed with ptrace.
    pub tracing: Result<(), String>,
    /// `/proc/sys/kernel/yama/ptrace_scope`, if the kernel has it.
    pub ptrace_scope: Option<String>,
    /// Whether the kernel permits calls that place pages.
    pub placing: Result<(), String>,
    /// Automatic NUMA balancing: on or off; `None` if the kernel has none.
    pub balancing: Option<bool>,
    /// MPI launchers on PATH: name, and the MPI library they belong to.
    pub launchers: Vec<(String, String)>,
    /// `qemu-system-x86_64`.
    pub system_emulator: Option<PathBuf>,
    /// Our plugin for it.
    pub lab_plugin: Found,
    /// Release of the newest kernel in the lab's cache, or where one would be kept.
    pub lab_kernel: Result<String, String>,
    /// Whether a static busybox is installed.
    pub busybox: bool,
    /// The OCR header.
    pub ocr_header: Found,
    /// The OCR library.
    pub ocr_library: Found,
}
