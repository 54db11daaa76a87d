//! What to run in the virtual machine, and how.

use std::path::PathBuf;
use std::time::Duration;

/// A file to have in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFile {
    /// Where it is here; a folder brings everything in it.
    pub host: PathBuf,
    /// Absolute path there.
    pub guest: PathBuf,
}

/// The guest kernel's transparent huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// 4 KiB pages only, so that pages are those of a plan.
    #[default]
    Never,
    /// Where the program asks for them.
    Madvise,
    /// Debian's own setting.
    Always,
}

impl HugePages {
    /// The kernel's word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Madvise => "madvise",
            Self::Always => "always",
        }
    }
}

/// The private cache of every vCPU: what it answers is not counted as an access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateCache {
    /// Bytes; 0 counts every access.
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

/// A program run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program, here; it has the same absolute path there.
    pub program: PathBuf,
    /// Its arguments, without the program's name.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
    /// Its working folder in the guest; made if need be.
    pub folder: PathBuf,
    /// Its standard input; nothing when not given.
    pub stdin: Option<PathBuf>,
    /// More files for the guest.
    pub files: Vec<GuestFile>,
    /// A program (here) and arguments that start the program, such as numactl: its own accesses are not
    /// counted. The program's absolute path and arguments are appended.
    pub launcher: Option<(PathBuf, Vec<String>)>,
    /// Whether the launcher traces the program, so that we must not.
    pub launcher_traces: bool,
    /// Automatic NUMA balancing (AutoNUMA) of the guest's kernel.
    pub autonuma: bool,
    /// Transparent huge pages.
    pub huge_pages: HugePages,
    /// Private cache in front of the counters.
    pub cache: PrivateCache,
    /// Longest time for the program (not counting the boot).
    pub timeout: Duration,
}

impl Job {
    /// A program with arguments; nothing in its environment but a `PATH`, no launcher, AutoNUMA off.
    pub fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
            environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            folder: "/".into(),
            stdin: None,
            files: Vec::new(),
            launcher: None,
            launcher_traces: false,
            autonuma: false,
            huge_pages: HugePages::default(),
            cache: PrivateCache::default(),
            timeout: Duration::from_secs(1800),
        }
    }
}
