//! A recording of a program that ran already: what its accesses were seen by, and where its memory was.

/// What shows the accesses of a program that runs already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowSource {
    /// Samples of the PMU.
    Pmu,
    /// Hint faults of the kernel's NUMA balancing.
    HintFaults,
    /// Write faults of pages whose right to write was taken.
    SoftDirty,
    /// Page scanning: the kernel's marks of pages that were used.
    Scan,
    /// Page faults that happen anyway.
    PageFaults,
}

impl WindowSource {
    /// Every source: the best one that works is the first.
    pub const ALL: [Self; 5] = [
        Self::Pmu,
        Self::HintFaults,
        Self::SoftDirty,
        Self::Scan,
        Self::PageFaults,
    ];

    /// The name in profiles and options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pmu => "pmu",
            Self::HintFaults => "hint-faults",
            Self::SoftDirty => "soft-dirty",
            Self::Scan => "scan",
            Self::PageFaults => "page-faults",
        }
    }

    /// The source of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }

    /// Whether it shows which thread accessed a page, not only which process.
    #[must_use]
    pub fn shows_threads(self) -> bool {
        self != Self::Scan
    }

    /// Whether it shows how often a page is accessed, not only that it is.
    #[must_use]
    pub fn shows_amounts(self) -> bool {
        self == Self::Pmu
    }

    /// Whether it shows reads.
    #[must_use]
    pub fn shows_reads(self) -> bool {
        self != Self::SoftDirty
    }

    /// What it is, and which questions it answers.
    #[must_use]
    pub fn answers(self) -> &'static str {
        match self {
            Self::Pmu => {
                "samples of the PMU: which thread accesses which page, how often, and which threads share lines"
            }
            Self::HintFaults => {
                "hint faults of the kernel's NUMA balancing: which thread uses which page; not how often"
            }
            Self::SoftDirty => {
                "write faults of tracked pages: which thread writes which page; not how often, and no reads"
            }
            Self::Scan => {
                "page scanning: which mappings each process uses, how much of them, and on which nodes they are; not \
                 which thread, not which of a mapping's pages, and not how often"
            }
            Self::PageFaults => {
                "page faults: which thread touches a page first; pages that were there before are not seen"
            }
        }
    }
}

/// Memory by node, in bytes: the kernel's numbers of the nodes, ascending.
pub type Resident = Vec<(u32, u64)>;

/// A piece of memory that a service has, and where it was at the end of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The mapping's file, or a name such as `[heap]`.
    pub name: String,
    /// Whether processes share it.
    pub is_shared: bool,
    /// Number of processes that have it.
    pub processes: u32,
    /// Its memory by node.
    pub resident: Resident,
}

impl Segment {
    /// Bytes on all nodes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bytes = self.resident.iter().map(|&(_, bytes)| bytes);
        // Files may say anything.
        bytes.fold(0, u64::saturating_add)
    }
}

/// The window of a recording of a program that ran already.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// What was observed: a process, a control group or a unit.
    pub of: String,
    /// What accesses were seen by.
    pub source: WindowSource,
    /// Its length in seconds.
    pub seconds: f64,
    /// Number of processes that were there, also for a part of the window.
    pub processes: u32,
    /// Memory by node at the end; empty if the kernel does not show it.
    pub resident: Resident,
    /// The largest pieces of memory, the largest first.
    pub segments: Vec<Segment>,
}
