//! Policies as users name and read of them: those of `numaloc-mapping` and `numaloc-placement`, and those that need a
//! profile or a simulated machine.
//!
//! | where | thread policies | page policies |
//! |---|---|---|
//! | [`Place::Matrix`] | those that map by communication | none |
//! | [`Place::Profile`] | these, `shared-pages`, `os`, `in-order`, `launcher`, `numaloc-spread`, `joint` | those that place before the run, `joint` |
//! | [`Place::Simulation`] | these, `shared-pages`, `os`, `in-order`, `launcher`, `numaloc-spread` | those, and `autonuma` |

use numaloc_mapping::MappingPolicy;
use numaloc_placement::PlacementPolicy;

/// Decides threads and pages together, on the command line and in plans.
pub const JOINT: &str = "joint";
/// Page policy of the kernel's NUMA balancing, which exists only in simulations.
pub const AUTONUMA: &str = "autonuma";
/// Stands for all policies that map by communication, or for all page policies.
pub const ALL: &str = "all";
/// The page policy that every other is compared with.
pub(crate) const BASELINE: &dyn PlacementPolicy = numaloc_placement::BASELINE;

/// What policies work on: it decides which there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A communication matrix: `map`.
    Matrix,
    /// A profile, for a plan: `plan`, `compare`.
    Profile,
    /// A profile, for a simulated run: `simulate`.
    Simulation,
}

/// Kind of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Chooses PUs for threads.
    Threads,
    /// Chooses nodes for pages.
    Pages,
}

impl Kind {
    /// Name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Threads => "thread",
            Self::Pages => "page",
        }
    }
}

/// What a user reads of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name on the command line, in plans and in reports.
    pub name: &'static str,
    /// Other names that mean the same.
    pub aliases: Vec<&'static str>,
    /// What it does, one line.
    pub summary: &'static str,
    /// Paper or system it comes from.
    pub source: &'static str,
}

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {} policy {given:?}", .kind.name())]
pub struct UnknownPolicy {
    /// Kind of policy that was looked for.
    pub kind: Kind,
    /// The name given.
    pub given: String,
    /// All names there are, except [`ALL`].
    pub known: Vec<&'static str>,
}

/// A thread policy for a recorded program.
#[derive(Clone, Copy)]
pub enum ThreadPolicy {
    /// A policy that maps by communication.
    Listed(&'static dyn MappingPolicy),
    /// Groups threads that use the same pages.
    SharedPages,
    /// Leaves threads to the operating system; only pages are placed.
    Os,
    /// Binds threads in the order of their creation, in even blocks.
    InOrder,
    /// Binds ranks where their launcher starts them.
    Launcher,
    /// The policy `numaloc` on PUs that are spread evenly: one thread a core while there are cores.
    OnePerCore,
}

impl ThreadPolicy {
    /// The policies that map by communication, simplest first.
    pub fn listed() -> impl Iterator<Item = Self> {
        numaloc_mapping::registry()
            .iter()
            .copied()
            .map(Self::Listed)
    }

    /// Name on the command line and in plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Listed(policy) => policy.name(),
            Self::SharedPages => "shared-pages",
            Self::Os => "os",
            Self::InOrder => "in-order",
            Self::Launcher => "launcher",
            Self::OnePerCore => "numaloc-spread",
        }
    }

    fn entry(self) -> Entry {
        match self {
            Self::Listed(policy) => {
                let aliases = numaloc_mapping::policies::ALIASES.iter();
                Entry {
                    name: policy.name(),
                    aliases: aliases
                        .filter(|(_, name)| *name == policy.name())
                        .map(|(alias, _)| *alias)
                        .collect(),
                    summary: policy.summary(),
                    source: policy.source(),
                }
            }
            Self::SharedPages => Entry {
                name: self.name(),
                aliases: Vec::new(),
                summary: "threads that use the same pages, pair by pair",
                source: "Diener et al. 2015, section IV",
            },
            Self::Os => Entry {
                name: self.name(),
                aliases: Vec::new(),
                summary: "threads are left to the operating system",
                source: "Linux",
            },
            Self::InOrder => Entry {
                name: self.name(),
                aliases: Vec::new(),
                summary: "threads in order of creation, in even blocks",
                source: "OpenMP, OMP_PROC_BIND=spread",
            },
            Self::Launcher => Entry {
                name: self.name(),
                aliases: Vec::new(),
                summary: "ranks where mpirun or srun starts them, host by host",
                source: "Open MPI, MPICH, Slurm",
            },
            Self::OnePerCore => Entry {
                name: self.name(),
                aliases: Vec::new(),
                summary: "as numaloc, on evenly many PUs of every node and core",
                source: "ours",
            },
        }
    }

    /// Those that need a profile.
    fn of_profile() -> [Self; 5] {
        [
            Self::SharedPages,
            Self::Os,
            Self::InOrder,
            Self::Launcher,
            Self::OnePerCore,
        ]
    }

    /// The policy of that name or alias.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let own = Self::of_profile().into_iter();
        own.filter(|policy| policy.name() == name)
            .chain(numaloc_mapping::by_name(name).map(Self::Listed))
            .next()
    }
}

fn joint() -> Entry {
    Entry {
        name: JOINT,
        aliases: Vec::new(),
        summary: "threads and pages decided together, from the answers of all policies",
        source: "ours",
    }
}

fn autonuma() -> Entry {
    Entry {
        name: AUTONUMA,
        aliases: Vec::new(),
        summary: "pages follow their users during the run",
        source: "NUMA balancing of Linux 6.1",
    }
}

/// The policies of a kind that there are at a place, simplest first.
#[must_use]
pub fn entries(kind: Kind, place: Place) -> Vec<Entry> {
    let mut list: Vec<Entry> = match (kind, place) {
        (Kind::Threads, _) => ThreadPolicy::listed().map(ThreadPolicy::entry).collect(),
        (Kind::Pages, Place::Matrix) => Vec::new(),
        (Kind::Pages, _) => numaloc_placement::POLICIES
            .iter()
            .map(|policy| Entry {
                name: policy.name(),
                aliases: Vec::new(),
                summary: policy.summary(),
                source: policy.source(),
            })
            .collect(),
    };
    if kind == Kind::Threads && place != Place::Matrix {
        list.extend(ThreadPolicy::of_profile().map(ThreadPolicy::entry));
    }
    match (kind, place) {
        (_, Place::Profile) => list.push(joint()),
        (Kind::Pages, Place::Simulation) => list.push(autonuma()),
        _ => {}
    }
    list
}

fn unknown(kind: Kind, place: Place, given: &str) -> UnknownPolicy {
    let entries = entries(kind, place);
    let names = entries.iter().map(|entry| entry.name);
    let aliases = entries
        .iter()
        .flat_map(|entry| entry.aliases.iter().copied());
    UnknownPolicy {
        kind,
        given: given.to_owned(),
        known: names.chain(aliases).collect(),
    }
}

/// The thread policies for a matrix that `given` names: one, or all.
///
/// # Errors
/// [`UnknownPolicy`] if there is none of that name.
pub fn mapping(given: &str) -> Result<Vec<&'static dyn MappingPolicy>, UnknownPolicy> {
    listed(given).ok_or_else(|| unknown(Kind::Threads, Place::Matrix, given))
}

fn listed(given: &str) -> Option<Vec<&'static dyn MappingPolicy>> {
    if given == ALL {
        return Some(numaloc_mapping::registry().to_vec());
    }
    numaloc_mapping::by_name(given).map(|policy| vec![policy])
}

/// The thread policies for a profile that `given` names: one, or all that map by communication. `joint` is none of
/// them, see [`Choice`].
///
/// # Errors
/// [`UnknownPolicy`] if there is none of that name.
pub fn threads(given: &str, place: Place) -> Result<Vec<ThreadPolicy>, UnknownPolicy> {
    let mut others = ThreadPolicy::of_profile().into_iter();
    if let Some(policy) = others.find(|policy| policy.name() == given) {
        return Ok(vec![policy]);
    }
    let listed = listed(given).ok_or_else(|| unknown(Kind::Threads, place, given))?;
    Ok(listed.into_iter().map(ThreadPolicy::Listed).collect())
}

/// The page policies that `given` names: one, or all that place pages before the run. `joint` and `autonuma` are none
/// of them.
///
/// # Errors
/// [`UnknownPolicy`] if there is none of that name.
pub fn pages(
    given: &str,
    place: Place,
) -> Result<Vec<&'static dyn PlacementPolicy>, UnknownPolicy> {
    if given == ALL {
        return Ok(numaloc_placement::POLICIES.to_vec());
    }
    numaloc_placement::policy(given)
        .map(|policy| vec![policy])
        .ok_or_else(|| unknown(Kind::Pages, place, given))
}

/// Thread policy where the model of worth does not choose one.
pub(crate) const UNRATED_THREADS: &str = "numaloc";
/// Page policy where the model of worth does not choose one.
pub(crate) const UNRATED_PAGES: &str = "locality";

/// The policies of a plan.
#[derive(Clone)]
pub enum Choice {
    /// Thread policies, then page policies under the first one's mapping.
    Separate {
        /// At least one.
        threads: Vec<ThreadPolicy>,
        /// In addition to the baseline.
        pages: Vec<&'static dyn PlacementPolicy>,
    },
    /// Threads and pages decided together.
    Joint,
    /// What is open is chosen by the model of worth.
    Best(Open),
}

/// What a request leaves open is chosen by the model.
#[derive(Clone, Default)]
pub struct Open {
    /// The only thread policies to consider, if any were named.
    pub threads: Option<Vec<ThreadPolicy>>,
    /// The only page policies to consider, if any were named.
    pub pages: Option<Vec<&'static dyn PlacementPolicy>>,
}

impl Choice {
    /// The policies that the names choose; what is not named is left to the model of worth.
    ///
    /// # Errors
    /// [`UnknownPolicy`] if there is none of a name.
    pub fn open(threads: Option<&str>, pages: Option<&str>) -> Result<Self, UnknownPolicy> {
        match (threads, pages) {
            (Some(JOINT), _) | (_, Some(JOINT)) => Ok(Self::Joint),
            (Some(threads), Some(pages)) => Self::new(threads, pages),
            // A comparison of policies shows each of them.
            (Some(ALL), None) => Self::new(ALL, UNRATED_PAGES),
            (None, Some(ALL)) => Self::new(UNRATED_THREADS, ALL),
            (threads, pages) => Ok(Self::Best(Open {
                threads: threads
                    .map(|name| self::threads(name, Place::Profile))
                    .transpose()?,
                pages: pages
                    .map(|name| self::pages(name, Place::Profile))
                    .transpose()?,
            })),
        }
    }

    /// The policies that the names of a thread and of a page policy choose; [`JOINT`] decides both, whichever of the
    /// two it is.
    ///
    /// # Errors
    /// [`UnknownPolicy`] if there is none of a name.
    pub fn new(threads: &str, pages: &str) -> Result<Self, UnknownPolicy> {
        if [threads, pages].contains(&JOINT) {
            return Ok(Self::Joint);
        }
        Ok(Self::Separate {
            threads: self::threads(threads, Place::Profile)?,
            pages: self::pages(pages, Place::Profile)?,
        })
    }

    /// Whether it makes one plan, not a comparison of several policies.
    #[must_use]
    pub fn is_one_plan(&self) -> bool {
        match self {
            Self::Joint => true,
            Self::Best(open) => {
                open.threads
                    .as_ref()
                    .is_none_or(|policies| policies.len() == 1)
                    && open
                        .pages
                        .as_ref()
                        .is_none_or(|policies| policies.len() == 1)
            }
            Self::Separate { threads, pages } => threads.len() == 1 && pages.len() == 1,
        }
    }

    /// Whether a policy or the model of worth asks for page accesses by slice, the largest part of a profile.
    #[must_use]
    pub fn needs_page_slices(&self) -> bool {
        match self {
            Self::Joint => false,
            Self::Best(_) => true,
            Self::Separate { pages, .. } => pages.iter().any(|p| p.name() == "next-touch"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_one_name_a_summary_and_a_source() {
        for place in [Place::Matrix, Place::Profile, Place::Simulation] {
            for kind in [Kind::Threads, Kind::Pages] {
                let entries = entries(kind, place);
                let mut names: Vec<&str> = entries
                    .iter()
                    .flat_map(|entry| std::iter::once(entry.name).chain(entry.aliases.clone()))
                    .collect();
                names.sort_unstable();
                assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
                for entry in entries {
                    assert!(!entry.summary.is_empty() && !entry.source.is_empty());
                    let text = [entry.summary, entry.source].concat();
                    assert!(!text.contains(['\n', '(', ')', ';']), "{text}");
                }
            }
        }
    }

    #[test]
    fn every_name_that_is_listed_is_accepted() {
        for entry in entries(Kind::Threads, Place::Matrix) {
            assert_eq!(mapping(entry.name).unwrap()[0].name(), entry.name);
        }
        for entry in entries(Kind::Threads, Place::Profile) {
            for name in std::iter::once(entry.name).chain(entry.aliases) {
                assert!(Choice::new(name, "locality").unwrap().is_one_plan());
            }
        }
        for entry in entries(Kind::Pages, Place::Profile) {
            assert!(Choice::new("packed", entry.name).unwrap().is_one_plan());
        }
        for entry in entries(Kind::Pages, Place::Simulation) {
            let known = pages(entry.name, Place::Simulation).is_ok();
            assert_eq!(known, entry.name != AUTONUMA);
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_of_the_place() {
        let known = |error: Option<UnknownPolicy>| error.expect("it is unknown").known;
        let names = known(Choice::new("pakced", "locality").err());
        for name in ["packed", "treematch", "shared-pages", "os", JOINT] {
            assert!(names.contains(&name), "{names:?}");
        }
        let names = known(Choice::new("packed", "nearest").err());
        assert!(
            names.contains(&JOINT) && !names.contains(&AUTONUMA),
            "{names:?}"
        );
        let names = known(pages("nearest", Place::Simulation).err());
        assert!(
            names.contains(&AUTONUMA) && !names.contains(&JOINT),
            "{names:?}"
        );
        let names = known(mapping("os").err());
        assert!(
            !names.contains(&"os") && names.contains(&"locality"),
            "{names:?}"
        );
    }

    #[test]
    fn only_one_policy_of_each_kind_makes_a_plan() {
        assert!(!Choice::new("all", "locality").unwrap().is_one_plan());
        assert!(!Choice::new("os", "all").unwrap().is_one_plan());
        assert!(Choice::new("all", JOINT).unwrap().is_one_plan());
        assert!(Choice::new("os", "next-touch").unwrap().needs_page_slices());
        assert!(
            !Choice::new(JOINT, "next-touch")
                .unwrap()
                .needs_page_slices()
        );
    }
}
