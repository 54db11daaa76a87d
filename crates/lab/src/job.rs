//! Describes what to run in the virtual machine, and how.

use std::path::PathBuf;
use std::time::Duration;

/// A file to copy into the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFile {
    /// Path on the host; a folder is copied with its contents.
    pub host: PathBuf,
    /// Absolute path in the guest.
    pub guest: PathBuf,
}

/// Setting of the guest kernel's transparent huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// 4 KiB pages only, so that the guest's pages are those of a plan.
    #[default]
    Never,
    /// If the program requests them (`madvise`).
    Madvise,
    /// Always, which is Debian's default.
    Always,
}

impl HugePages {
    /// The kernel's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Madvise => "madvise",
            Self::Always => "always",
        }
    }
}

/// The private cache of every vCPU: accesses it serves are not counted as accesses to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateCache {
    /// Size in bytes; 0 counts every access.
    pub bytes: u64,
    /// Ways per set.
    pub ways: usize,
}

impl Default for PrivateCache {
    /// 256 KiB, 8 ways: the L2 of the X7550 and E5 v4 generations, the machines of the papers.
    fn default() -> Self {
        Self {
            bytes: 256 << 10,
            ways: 8,
        }
    }
}

/// A program to run.
#[derive(Clone, Debug)]
pub struct Job {
    /// Path of the program on the host; the guest has it at the same absolute path.
    pub program: PathBuf,
    /// Its arguments, without the program's name.
    pub arguments: Vec<String>,
    /// Its complete environment.
    pub environment: Vec<(String, String)>,
    /// Its working folder in the guest; created if necessary.
    pub folder: PathBuf,
    /// Its standard input; empty if `None`.
    pub stdin: Option<PathBuf>,
    /// More files for the guest.
    pub files: Vec<GuestFile>,
    /// A program (host path) and arguments that start the program, such as numactl: its own accesses are not
    /// counted. The program's absolute path and arguments are appended.
    pub launcher: Option<(PathBuf, Vec<String>)>,
    /// Libraries that the launcher finds in its own folder and preloads into the program. What they access is not
    /// counted; what they need must be loadable by the program.
    pub preloaded: Vec<PathBuf>,
    /// Whether the launcher traces the program, so that the agent must not.
    pub launcher_traces: bool,
    /// Automatic NUMA balancing (AutoNUMA) of the guest's kernel.
    pub autonuma: bool,
    /// Weight of each node for the guest's weighted interleaving (Linux 6.9); empty: as the kernel starts.
    pub weights: Vec<u8>,
    /// Transparent huge pages.
    pub huge_pages: HugePages,
    /// The private cache in front of the counters.
    pub cache: PrivateCache,
    /// Accesses below the private cache of a CPU for each sample that the guest gets; `None`: no samples.
    pub sample_period: Option<u32>,
    /// Time limit of the program, without the boot.
    pub timeout: Duration,
}

impl Job {
    /// A program with arguments; its environment holds only a `PATH`; no launcher, AutoNUMA off.
    pub fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
            environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            folder: "/".into(),
            stdin: None,
            files: Vec::new(),
            launcher: None,
            preloaded: Vec::new(),
            launcher_traces: false,
            autonuma: false,
            weights: Vec::new(),
            huge_pages: HugePages::default(),
            cache: PrivateCache::default(),
            sample_period: None,
            timeout: Duration::from_secs(1800),
        }
    }
}
