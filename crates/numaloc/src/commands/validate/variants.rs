//! The ways to run a kernel that are compared.

/// A way to run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Variant {
    /// Without anything: the baseline.
    None,
    /// Pages of the whole process on all nodes in turn.
    Interleave,
    /// The kernel moves pages and threads.
    AutoNuma,
    /// Threads bound in the order of their creation.
    Pinned,
    /// Threads as a verdict recommends.
    Mapped,
    /// Pages as a verdict recommends, threads bound in order.
    Placed,
    /// The plan that `numaloc plan` makes.
    Plan,
    /// The same, from a recording by the PMU's samples.
    PlanPmu,
    /// `run --online`, accesses seen without a PMU.
    Online,
    /// `run --online`, accesses seen by a PMU.
    OnlinePmu,
}

impl Variant {
    /// Every variant, the baseline first.
    pub const ALL: [Self; 10] = [
        Self::None,
        Self::Interleave,
        Self::AutoNuma,
        Self::Pinned,
        Self::Mapped,
        Self::Placed,
        Self::Plan,
        Self::PlanPmu,
        Self::Online,
        Self::OnlinePmu,
    ];

    /// Name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Interleave => "interleave",
            Self::AutoNuma => "autonuma",
            Self::Pinned => "pinned",
            Self::Mapped => "mapped",
            Self::Placed => "placed",
            Self::Plan => "plan",
            Self::PlanPmu => "plan-pmu",
            Self::Online => "online",
            Self::OnlinePmu => "online-pmu",
        }
    }

    /// The variant of that name.
    pub fn named(name: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|variant| variant.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            format!("expected one of: {}", names.join(", "))
        })
    }

    /// Whether it is run under a plan that is made from a recording.
    pub fn is_planned(self) -> bool {
        matches!(
            self,
            Self::Pinned | Self::Mapped | Self::Placed | Self::Plan | Self::PlanPmu
        )
    }

    /// What it is, for the reader of the page.
    pub fn about(self) -> &'static str {
        match self {
            Self::None => {
                "without anything: threads where the kernel puts them, pages by first touch"
            }
            Self::Interleave => "pages of the whole process on all nodes in turn",
            Self::AutoNuma => "the kernel moves pages to their users",
            Self::Pinned => "threads bound in the order of their creation, pages by first touch",
            Self::Mapped => "threads by the policy that a verdict recommends, pages by first touch",
            Self::Placed => "pages by the policy that a verdict recommends, threads bound in order",
            Self::Plan => "the plan that numaloc plan makes",
            Self::PlanPmu => "the same from a recording by hardware samples",
            Self::Online => "run --online, accesses seen without a PMU",
            Self::OnlinePmu => "run --online, accesses seen by a PMU",
        }
    }
}
