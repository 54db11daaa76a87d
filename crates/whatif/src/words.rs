//! What to write in the source, for people: one sentence, and a sketch in the program's language.

use crate::change::{BATCH, Change, Speeds};

/// How a program's threads are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C, C++ or Fortran with OpenMP.
    OpenMp,
    /// C with threads of its own.
    C,
    /// C++ with threads of its own.
    Cpp,
    /// Rust.
    Rust,
    /// Fortran with OpenMP.
    Fortran,
    /// Anything else.
    Other,
}

impl Language {
    /// By the ending of a source file's name, `FILE:LINE`, and whether the program uses OpenMP.
    #[must_use]
    pub fn of(source: Option<&str>, has_openmp: bool) -> Self {
        let file = source.map_or("", |source| source.split(':').next().unwrap_or(source));
        let ending = file.rsplit_once('.').map_or("", |(_, ending)| ending);
        match ending.to_ascii_lowercase().as_str() {
            "rs" => Self::Rust,
            "f" | "for" | "f77" | "f90" | "f95" | "f03" | "f08" => Self::Fortran,
            _ if has_openmp => Self::OpenMp,
            "c" | "h" => Self::C,
            "cc" | "cpp" | "cxx" | "c++" | "hpp" | "hh" => Self::Cpp,
            _ => Self::Other,
        }
    }

    /// That of the place that begins with memory, if people write changes there: what a library does for the program,
    /// such as setting memory, is written where the program uses it.
    #[must_use]
    pub fn of_change(begins: Option<Self>, used: impl FnOnce() -> Option<Self>) -> Option<Self> {
        begins
            .filter(|language| *language != Self::Other)
            .or_else(used)
    }
}

/// What a change makes of the run, as the head of an answer: `initialise it in parallel`.
#[must_use]
pub fn headline(change: Change) -> &'static str {
    match change {
        Change::Bind(_) => "bind the threads",
        Change::PlacePages => "place pages where they are used",
        Change::InterleaveAll => "interleave all pages",
        Change::TouchByUsers(_) => "initialise it by the threads that use it",
        Change::Interleave(_) => "interleave its pages over the nodes",
        Change::Deal(_, Speeds::Weighted) => "interleave its pages by the bandwidth of the nodes",
        Change::Deal(_, Speeds::Tier) => {
            "place its pages on the tiers of memory by how they are used"
        }
        Change::Replicate(_) => "keep a copy on each node",
        Change::Separate(_) => "put what different threads write on lines of their own",
        Change::PerThread(_) => "give each thread a copy and join the copies at the end",
        Change::Batch(_) => {
            "count in each thread and change the shared variable once for many times"
        }
        Change::Chunk(_) => "hand out more iterations of the loop at a time",
    }
}

/// Lines that show how to write a change in the source; none for what numaloc does without.
#[must_use]
pub fn sketch(change: Change, language: Language) -> Vec<String> {
    let lines: &[&str] = match (change, language) {
        (Change::TouchByUsers(_), Language::OpenMp) => &[
            "#pragma omp parallel for schedule(static)  // as in the loops that use it",
            "for (long i = 0; i < n; i++) a[i] = ...;",
        ],
        (Change::TouchByUsers(_), Language::Fortran) => &[
            "!$omp parallel do schedule(static)  ! as in the loops that use it",
            "do i = 1, n; a(i) = ...; end do",
        ],
        (Change::TouchByUsers(_), Language::Rust) => &[
            "// memory that nobody has touched: Vec::with_capacity, not vec![0; n]",
            "chunks.into_par_iter().for_each(|chunk| initialise(chunk));  // same chunks and pool as in use",
        ],
        (Change::TouchByUsers(_), Language::C | Language::Cpp) => &[
            "// in each thread, before its first work: the part that it will use",
            "for (size_t i = begin(t); i < end(t); i++) a[i] = ...;",
            "// then a barrier; memory must not be touched before (malloc, not calloc or vector(n))",
        ],
        (Change::TouchByUsers(_), Language::Other) => {
            &["each thread initialises the part that it will use, then all wait for each other"]
        }
        (Change::Interleave(_), _) => &[
            "// numaif.h, link with -lnuma; before the memory is touched",
            "unsigned long all = (1ul << (numa_max_node() + 1)) - 1;",
            "mbind(a, bytes, MPOL_INTERLEAVE, &all, 8 * sizeof all, 0);",
        ],
        (Change::Deal(_, Speeds::Weighted), _) => &[
            "// Linux 6.9, by the system's weights (numaloc plan --export sysfs-weights); before the memory is touched",
            "unsigned long all = (1ul << (numa_max_node() + 1)) - 1;",
            "mbind(a, bytes, 6 /* MPOL_WEIGHTED_INTERLEAVE */, &all, 8 * sizeof all, 0);",
        ],
        (Change::Deal(_, Speeds::Tier), _) => &[
            "// the part that threads wait for on the fast node, the rest where bandwidth is left",
            "fast = numa_alloc_onnode(hot, fast_node); slow = numa_alloc_onnode(bytes - hot, slow_node);",
        ],
        (Change::Replicate(_), _) => &[
            "// once it is complete, by one thread of each node:",
            "copy[node] = numa_alloc_onnode(bytes, node); memcpy(copy[node], table, bytes);",
            "// in each thread: const T *table = copy[numa_node_of_cpu(sched_getcpu())];",
        ],
        (Change::Separate(_), Language::Rust) => &["#[repr(align(64))] struct PerThread { ... }"],
        (Change::Separate(_), Language::Fortran) => {
            &["real(8) :: s(8, nthreads)  ! use s(1, t): a line for each thread"]
        }
        (Change::Separate(_), Language::Cpp) => &["struct alignas(64) PerThread { ... };"],
        (Change::Separate(_), _) => &["struct per_thread { ...; } __attribute__((aligned(64)));"],
        (Change::PerThread(_), Language::OpenMp) => &["#pragma omp parallel for reduction(+:sum)"],
        (Change::PerThread(_), Language::Fortran) => &["!$omp parallel do reduction(+:sum)"],
        (Change::PerThread(_), _) => &[
            "a local variable in each thread's work;",
            "add it to the shared one once, when the work is done",
        ],
        (Change::Batch(_), _) => {
            return vec![format!(
                "if (++mine == {BATCH}) {{ shared += mine; mine = 0; }}  // and the rest at the end"
            )];
        }
        (Change::Chunk(_), Language::Fortran) => {
            return vec![format!(
                "!$omp do schedule(dynamic, {BATCH})  ! or {BATCH} times the present size"
            )];
        }
        (Change::Chunk(_), _) => {
            return vec![format!(
                "#pragma omp for schedule(dynamic, {BATCH})  // or {BATCH} times the present size"
            )];
        }
        (Change::Bind(_) | Change::PlacePages | Change::InterleaveAll, _) => &[],
    };
    lines.iter().map(|&line| line.to_owned()).collect()
}

/// What the rating of a change assumes, in a sentence.
#[must_use]
pub fn assumption(change: Change) -> &'static str {
    match change {
        Change::Bind(_) => "threads stay where they are bound",
        Change::PlacePages => "the next run uses the same pages",
        Change::InterleaveAll | Change::Interleave(_) | Change::Deal(..) => {
            "pages are placed before they are used"
        }
        Change::TouchByUsers(_) => {
            "the initialisation's order does not matter, and the same threads use the same pages"
        }
        Change::Replicate(_) => {
            "nobody writes it once it is initialised; each node has room for a copy"
        }
        Change::Separate(_) => "no thread uses bytes that another one writes",
        Change::PerThread(_) => "its value is needed at the end only",
        Change::Batch(_) => "its value may be some changes old",
        Change::Chunk(_) => "larger pieces take about as long as each other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_is_that_of_the_source() {
        assert_eq!(Language::of(Some("a.c:7"), true), Language::OpenMp);
        assert_eq!(Language::of(Some("a.f90:7"), true), Language::Fortran);
        assert_eq!(Language::of(Some("main.rs:7"), false), Language::Rust);
        assert_eq!(Language::of(Some("a.cc:7"), false), Language::Cpp);
        assert_eq!(Language::of(Some("Main.java:7"), false), Language::Other);
        assert_eq!(Language::of(None, false), Language::Other);
    }

    #[test]
    fn every_change_of_the_source_has_a_sketch() {
        let languages = [
            Language::OpenMp,
            Language::C,
            Language::Cpp,
            Language::Rust,
            Language::Fortran,
            Language::Other,
        ];
        for change in [
            Change::Bind(0),
            Change::PlacePages,
            Change::InterleaveAll,
            Change::TouchByUsers(0),
            Change::Interleave(0),
            Change::Deal(0, Speeds::Weighted),
            Change::Deal(0, Speeds::Tier),
            Change::Replicate(0),
            Change::Separate(0),
            Change::PerThread(0),
            Change::Batch(0),
            Change::Chunk(0),
        ] {
            for language in languages {
                assert_eq!(sketch(change, language).is_empty(), !change.is_in_source());
            }
        }
    }
}
