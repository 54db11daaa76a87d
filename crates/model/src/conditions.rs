//! What shaped a recorded run apart from the program and its arguments: the environment, and how work reached the threads.

/// Variables of the environment that decide how many threads a program starts, where they run, which work each gets, and
/// which arena of the heap it allocates from. A recording keeps those that are set.
pub const VARIABLES: [&str; 41] = [
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

/// Those among them by which a run-time system binds threads itself, against any plan.
pub const BINDING: [&str; 5] = [
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "KMP_PLACE_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
];

/// How a program hands work to its threads while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkSharing {
    /// A loop whose iterations go to whichever thread is free: `schedule(dynamic)` or `(guided)`.
    DynamicLoop,
    /// A loop whose schedule `OMP_SCHEDULE` decides.
    RuntimeLoop,
    /// `sections`: each goes to whichever thread comes first.
    Sections,
    /// Tasks, which any thread of the team may run.
    Tasks,
    /// A pool of threads that steal work from each other (oneTBB, Go, Rayon, Cilk).
    Stealing,
}

impl WorkSharing {
    /// What a program without symbols contains (a section, or part of a constant) if it has a run-time system whose threads
    /// steal work from each other, and what is recorded instead of a function of it.
    pub const STRIPPED: [(&str, &str); 2] = [
        (".go.buildinfo", "Go's scheduler"),
        ("rayon-core-", "Rayon's pool"),
    ];

    /// The function that starts a Java virtual machine. The threads of its collector and of its library's pools steal work;
    /// the pools are bytecode, which no symbol names.
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

    /// The kind of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::DynamicLoop => "loops with a dynamic or guided schedule",
            Self::RuntimeLoop => "loops whose schedule OMP_SCHEDULE decides",
            Self::Sections => "sections",
            Self::Tasks => "tasks",
            Self::Stealing => "threads that steal work from each other",
        }
    }

    /// What a function of that symbol does, if it hands out work. A program that calls it does so at run time.
    #[must_use]
    pub fn of_symbol(symbol: &str) -> Option<Self> {
        let starts = |names: &[&str]| names.iter().any(|name| symbol.starts_with(name));
        if starts(&["GOMP_loop_", "GOMP_parallel_loop_"]) {
            // A thread asks for the first part of its work once, for more of it many times.
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

/// Several recordings of one program compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeats {
    /// How many recordings, this one included.
    pub runs: u32,
    /// Smallest correlation of another recording's whole-run matrix with this one's (Pearson, threads matched by path);
    /// `None` where a matrix is empty or even.
    pub correlation: Option<f64>,
    /// Whether all had the same threads, by path.
    pub same_threads: bool,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Those of [`VARIABLES`] that were set, by name.
    pub environment: Vec<(String, String)>,
    /// Ways of handing out work that were seen, with the function by which; by kind, then name.
    pub sharing: Vec<(WorkSharing, String)>,
    /// What recording several times has shown.
    pub repeats: Option<Repeats>,
}

/// Correlation from which on two recordings count as the same pattern.
pub const SAME_PATTERN: f64 = 0.9;

/// Whether another run gives the same work to the same threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeatability {
    /// Several recordings agree.
    Measured,
    /// Several recordings differ.
    Differs,
    /// Work is handed out while the program runs; whether that makes a difference was not measured.
    Dynamic,
    /// Nothing speaks against it.
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

    /// Whether a plan that names threads by their place in the program can be expected to hold.
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

    /// Whether the environment makes a run-time system bind threads itself.
    #[must_use]
    pub fn binds(&self) -> bool {
        self.environment
            .iter()
            .any(|(name, value)| BINDING.contains(&name.as_str()) && value != "false")
    }

    /// The ways of handing out work that leave open which thread gets what: a schedule that the environment makes static
    /// does not.
    pub fn open(&self) -> impl Iterator<Item = &(WorkSharing, String)> {
        let fixed = self.variable("OMP_SCHEDULE").is_some_and(|schedule| {
            let kind = schedule.rsplit(':').next().unwrap_or_default();
            kind.trim().to_ascii_lowercase().starts_with("static")
        });
        self.sharing
            .iter()
            .filter(move |(kind, _)| !(fixed && *kind == WorkSharing::RuntimeLoop))
    }

    /// What is known, for a run of `threads` threads. Measured differences count more than what was seen, and both more
    /// than nothing.
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
    fn variables_are_in_order_and_binding_ones_among_them() {
        assert!(VARIABLES.is_sorted());
        assert!(BINDING.iter().all(|name| VARIABLES.contains(name)));
    }

    #[test]
    fn functions_that_hand_out_work_are_known() {
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
    fn measurements_count_more_than_what_was_seen() {
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
