//! What influenced a recorded run apart from the program and its arguments: the environment, and how work was
//! distributed.

/// The variable by which `numaloc` asks its library to deal the loops of a program by node. Recordings and plans store
/// it where loops were dealt.
pub const DEAL: &str = "NUMALOC_DEAL";

/// Its value in profiles and plans: each thread begins with the block of its rank.
pub const BY_NODE: &str = "node";

/// Environment variables that decide how many threads a program starts, where they run, which work each gets, and
/// from which arena of the heap it allocates. A recording stores those that are set.
pub const VARIABLES: [&str; 42] = [
    "BLIS_NUM_THREADS",
    "CILK_NWORKERS",
    "GLIBC_TUNABLES",
    "GOGC",
    "GOMAXPROCS",
    "GOMP_CPU_AFFINITY",
    "GOMP_STACKSIZE",
    "JULIA_NUM_THREADS",
    "KMP_AFFINITY",
    "KMP_ALL_THREADS",
    "KMP_DEVICE_THREAD_LIMIT",
    "KMP_DYNAMIC_MODE",
    "KMP_HW_SUBSET",
    "KMP_PLACE_THREADS",
    "KMP_SCHEDULE",
    "KMP_STACKSIZE",
    "KMP_TEAMS_THREAD_LIMIT",
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MKL_DYNAMIC",
    "MKL_NUM_THREADS",
    DEAL,
    "NUMEXPR_MAX_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_DYNAMIC",
    "OMP_MAX_ACTIVE_LEVELS",
    "OMP_NESTED",
    "OMP_NUM_TEAMS",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "OMP_SCHEDULE",
    "OMP_STACKSIZE",
    "OMP_TEAMS_THREAD_LIMIT",
    "OMP_THREAD_LIMIT",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "TOKIO_WORKER_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "XZ_OPT",
];

/// Those of [`VARIABLES`] with which a run-time system binds threads itself, against any plan.
pub const BINDING: [&str; 5] = [
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "KMP_PLACE_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
];

/// How a program distributes work to its threads at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkSharing {
    /// A loop whose iterations are taken by free threads: `schedule(dynamic)` or `(guided)`.
    DynamicLoop,
    /// A loop whose schedule is set by `OMP_SCHEDULE`.
    RuntimeLoop,
    /// `sections`: each is executed by the first free thread.
    Sections,
    /// Tasks, which any thread of the team may execute.
    Tasks,
    /// A pool of threads that steal work from each other (oneTBB, Go, Rayon, Cilk).
    Stealing,
}

impl WorkSharing {
    /// For programs without symbols: a string (a section name, or part of a constant) that identifies a run-time
    /// system with work stealing, and the name that is recorded in place of a function's.
    pub const STRIPPED: [(&str, &str); 2] = [
        (".go.buildinfo", "Go's scheduler"),
        ("rayon-core-", "Rayon's pool"),
    ];

    /// The function that starts a Java virtual machine. The threads of its garbage collector and of its library's
    /// pools steal work; the pools are bytecode, which has no symbols.
    const VIRTUAL_MACHINE: &str = "JNI_CreateJavaVM";

    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::DynamicLoop,
        Self::RuntimeLoop,
        Self::Sections,
        Self::Tasks,
        Self::Stealing,
    ];

    /// The name in profiles.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DynamicLoop => "dynamic_loop",
            Self::RuntimeLoop => "runtime_loop",
            Self::Sections => "sections",
            Self::Tasks => "tasks",
            Self::Stealing => "stealing",
        }
    }

    /// The kind with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether `--deal node` may deal loops of the run-time system's function with that symbol. In libgomp, loops with
    /// and without `monotonic` have one function with several names; those that are `ordered` have others.
    #[must_use]
    pub fn can_be_dealt(symbol: &str) -> bool {
        let has_order = symbol.contains("ordered") || symbol.contains("doacross");
        let is_loop = matches!(
            Self::of_symbol(symbol),
            Some(Self::DynamicLoop | Self::RuntimeLoop)
        );
        is_loop && !has_order
    }

    /// A description for users.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::DynamicLoop => "loops with a dynamic or guided schedule",
            Self::RuntimeLoop => "loops whose schedule OMP_SCHEDULE sets",
            Self::Sections => "sections",
            Self::Tasks => "tasks",
            Self::Stealing => "threads that steal work from each other",
        }
    }

    /// How a function with that symbol distributes work, if it does. A program that calls it does so at run time.
    #[must_use]
    pub fn of_symbol(symbol: &str) -> Option<Self> {
        let starts = |names: &[&str]| names.iter().any(|name| symbol.starts_with(name));
        if starts(&["GOMP_loop_", "GOMP_parallel_loop_"]) {
            // A thread requests the first part of its work once, and further parts many times.
            return match symbol {
                _ if symbol.ends_with("_next") || symbol.contains("_end") => None,
                _ if symbol.contains("runtime") => Some(Self::RuntimeLoop),
                _ if symbol.contains("dynamic") || symbol.contains("guided") => {
                    Some(Self::DynamicLoop)
                }
                _ => None,
            };
        }
        if starts(&["__kmpc_dispatch_init_"]) {
            return Some(Self::DynamicLoop);
        }
        if starts(&["GOMP_sections", "GOMP_parallel_sections"]) && !symbol.contains("_end") {
            return Some(Self::Sections);
        }
        if matches!(symbol, "GOMP_task" | "GOMP_taskloop" | "GOMP_taskloop_ull")
            || matches!(
                symbol,
                "__kmpc_omp_task"
                    | "__kmpc_omp_task_with_deps"
                    | "__kmpc_taskloop"
                    | "__kmpc_taskloop_5"
            )
        {
            return Some(Self::Tasks);
        }
        let stealing = starts(&[
            "_ZN3tbb6detail2r15spawn",
            "_ZN3tbb6detail2r116execute_and_wait",
            "_ZN3tbb8internal",
            "__cilkrts_",
        ]) || matches!(symbol, "runtime.stealWork" | "runtime.runqsteal")
            || Self::STRIPPED.iter().any(|(_, name)| *name == symbol)
            || symbol == Self::VIRTUAL_MACHINE
            || (symbol.contains("rayon_core") && symbol.contains("WorkerThread"));
        stealing.then_some(Self::Stealing)
    }
}

/// Comparison of several recordings of one program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeats {
    /// Number of recordings, including this one.
    pub runs: u32,
    /// Smallest correlation of another recording's whole-run matrix with this one's (Pearson, threads matched by path);
    /// `None` if a matrix is empty or uniform.
    pub correlation: Option<f64>,
    /// Whether all recordings had the same thread paths.
    pub same_threads: bool,
}

/// The conditions of a recorded run; see the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// The [`VARIABLES`] that were set, by name.
    pub environment: Vec<(String, String)>,
    /// Observed ways of distributing work, each with its function; by kind, then name.
    pub sharing: Vec<(WorkSharing, String)>,
    /// The comparison with further recordings.
    pub repeats: Option<Repeats>,
}

/// Correlation from which two recordings count as the same pattern.
pub const SAME_PATTERN: f64 = 0.9;

/// Whether another run can be expected to give the same work to the same threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeatability {
    /// Several recordings agree.
    Measured,
    /// Several recordings differ.
    Differs,
    /// Work is distributed at run time; whether runs differ was not measured.
    Dynamic,
    /// There is no evidence against it.
    Assumed,
}

impl Repeatability {
    /// The name in machine-readable output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Differs => "differs",
            Self::Dynamic => "dynamic",
            Self::Assumed => "assumed",
        }
    }

    /// Whether a plan that identifies threads by their path can be expected to fit other runs.
    #[must_use]
    pub fn holds(self) -> bool {
        matches!(self, Self::Measured | Self::Assumed)
    }
}

impl Conditions {
    /// The value of a variable.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        let found = self.environment.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether the loops of the program were dealt by node.
    #[must_use]
    pub fn is_dealt(&self) -> bool {
        self.variable(DEAL).is_some()
    }

    /// Whether work is handed out by loops that could be dealt by node, and were not.
    #[must_use]
    pub fn could_be_dealt(&self) -> bool {
        !self.is_dealt() && self.open().any(|(_, by)| WorkSharing::can_be_dealt(by))
    }

    /// Whether the environment makes a run-time system bind threads.
    #[must_use]
    pub fn binds(&self) -> bool {
        self.environment
            .iter()
            .any(|(name, value)| BINDING.contains(&name.as_str()) && value != "false")
    }

    /// The observed ways of distributing work that do not determine which thread gets what. Loops whose schedule the
    /// environment makes static are not included.
    pub fn open(&self) -> impl Iterator<Item = &(WorkSharing, String)> {
        let fixed = self.variable("OMP_SCHEDULE").is_some_and(|schedule| {
            let kind = schedule.rsplit(':').next().unwrap_or_default();
            kind.trim().to_ascii_lowercase().starts_with("static")
        });
        self.sharing
            .iter()
            .filter(move |(kind, _)| !(fixed && *kind == WorkSharing::RuntimeLoop))
    }

    /// The repeatability for a run of `threads` threads. Measurements take precedence over observed work sharing, and
    /// that over the default.
    #[must_use]
    pub fn repeatability(&self, threads: usize) -> Repeatability {
        match self.repeats {
            Some(repeats) if !repeats.same_threads => Repeatability::Differs,
            Some(Repeats {
                correlation: Some(correlation),
                ..
            }) => match correlation >= SAME_PATTERN {
                true => Repeatability::Measured,
                false => Repeatability::Differs,
            },
            _ if threads > 1 && self.open().next().is_some() => Repeatability::Dynamic,
            _ => Repeatability::Assumed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_sorted_and_include_the_binding_ones() {
        assert!(VARIABLES.is_sorted());
        assert!(BINDING.iter().all(|name| VARIABLES.contains(name)));
    }

    #[test]
    fn functions_that_distribute_work_are_recognised() {
        for (symbol, kind) in [
            (
                "GOMP_parallel_loop_nonmonotonic_dynamic",
                Some(WorkSharing::DynamicLoop),
            ),
            ("GOMP_loop_ull_guided_start", Some(WorkSharing::DynamicLoop)),
            (
                "GOMP_loop_maybe_nonmonotonic_runtime_start",
                Some(WorkSharing::RuntimeLoop),
            ),
            ("GOMP_loop_static_start", None),
            ("GOMP_parallel_loop_static", None),
            ("GOMP_loop_end_nowait", None),
            ("GOMP_parallel", None),
            ("GOMP_taskwait", None),
            ("GOMP_task", Some(WorkSharing::Tasks)),
            ("__kmpc_for_static_init_4", None),
            ("__kmpc_dispatch_init_8u", Some(WorkSharing::DynamicLoop)),
            ("runtime.stealWork", Some(WorkSharing::Stealing)),
            ("Go's scheduler", Some(WorkSharing::Stealing)),
            ("JNI_CreateJavaVM", Some(WorkSharing::Stealing)),
            ("main", None),
        ] {
            assert_eq!(WorkSharing::of_symbol(symbol), kind, "{symbol}");
        }
    }

    #[test]
    fn loops_that_require_an_order_cannot_be_dealt() {
        for (symbol, can) in [
            ("GOMP_loop_nonmonotonic_dynamic_start", true),
            ("GOMP_parallel_loop_maybe_nonmonotonic_runtime", true),
            ("__kmpc_dispatch_init_8u", true),
            ("GOMP_loop_dynamic_start", true),
            ("GOMP_loop_static_start", false),
            ("GOMP_loop_ordered_dynamic_start", false),
            ("GOMP_task", false),
        ] {
            assert_eq!(WorkSharing::can_be_dealt(symbol), can, "{symbol}");
        }
        let mut conditions = Conditions {
            sharing: vec![(
                WorkSharing::DynamicLoop,
                "GOMP_loop_nonmonotonic_dynamic_start".into(),
            )],
            ..Conditions::default()
        };
        assert!(conditions.could_be_dealt());
        conditions.environment = vec![(DEAL.into(), BY_NODE.into())];
        assert!(!conditions.could_be_dealt() && conditions.is_dealt());
    }

    #[test]
    fn measurements_take_precedence_over_observed_work_sharing() {
        let mut conditions = Conditions::default();
        assert_eq!(conditions.repeatability(4), Repeatability::Assumed);
        conditions.sharing = vec![(WorkSharing::RuntimeLoop, "GOMP_loop_runtime_start".into())];
        assert_eq!(conditions.repeatability(4), Repeatability::Dynamic);
        assert_eq!(conditions.repeatability(1), Repeatability::Assumed);
        conditions.environment = vec![("OMP_SCHEDULE".into(), "monotonic:static,4".into())];
        assert_eq!(conditions.repeatability(4), Repeatability::Assumed);
        let repeats = |correlation, same_threads| {
            Some(Repeats {
                runs: 2,
                correlation,
                same_threads,
            })
        };
        conditions.repeats = repeats(Some(0.23), true);
        assert_eq!(conditions.repeatability(4), Repeatability::Differs);
        conditions.environment.clear();
        conditions.repeats = repeats(Some(0.97), true);
        assert_eq!(conditions.repeatability(4), Repeatability::Measured);
        conditions.repeats = repeats(Some(0.97), false);
        assert!(!conditions.repeatability(4).holds());
    }
}
