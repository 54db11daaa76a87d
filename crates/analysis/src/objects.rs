//! Page use by object.
//!
//! An object is memory that the recorder could name: a static section, the heap, a mapping, a thread's stack. If a
//! section's variables are known, a page counts for the variable that holds at least half of it, so that large arrays
//! get rows of their own and small variables stay with their section. The same holds for blocks of memory with a known
//! place of allocation: they are parts of the heap or of a mapping. The table shows which threads made the pages
//! resident and which use them, which is what a user can change in the source.
//!
//! Cost: O(page cells + objects T); pages without an object are summed in one row without a name.

use numaloc_identity::object::{ANONYMOUS, STACK};
use numaloc_model::profile::{Named, Object, ObjectKind, Profile, Variable};
use numaloc_model::{ObjectIdx, ThreadIdx};

use crate::assignment::NodeAssignment;

/// Use of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectUse {
    /// The object; `None` for the pages without an object.
    pub object: Option<ObjectIdx>,
    /// Which of the object's variables; `None` for pages that no single variable fills.
    pub variable: Option<usize>,
    /// Its pages with accesses.
    pub pages: u64,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Threads that accessed it.
    pub threads: u64,
    /// The thread that touched most of its pages first, and their number.
    pub first_toucher: Option<(ThreadIdx, u64)>,
    /// `E_app` of its pages only.
    pub exclusivity: f64,
    /// Share of its accesses that are local under first touch; 0 if first touch was not observed.
    pub local_share: f64,
}

impl ObjectUse {
    /// Loads and stores.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.reads + self.writes
    }

    /// Its memory, unless it is that of pages without an object.
    #[must_use]
    pub fn named(&self) -> Option<Named> {
        self.object.map(|object| Named {
            object,
            variable: self.variable,
        })
    }

    /// Which object of the profile.
    #[must_use]
    pub fn object<'p>(&self, profile: &'p Profile) -> Option<&'p Object> {
        self.object.map(|at| profile.object(at))
    }

    /// Which variable of the profile.
    #[must_use]
    pub fn variable<'p>(&self, profile: &'p Profile) -> Option<&'p Variable> {
        self.object(profile)?.variables.get(self.variable?)
    }

    /// Display name: `grid (stencil.c:41)`, `app:.bss`, `[anon], 8.0 MiB, no. 2`.
    #[must_use]
    pub fn label(&self, profile: &Profile) -> String {
        if let Some(variable) = self.variable(profile) {
            return variable_label(variable);
        }
        self.object(profile)
            .map_or_else(|| "(no object)".to_owned(), object_label)
    }

    /// Share of the pages that the main first toucher brought in.
    #[must_use]
    pub fn first_touch_share(&self) -> f64 {
        self.first_toucher
            .map_or(0.0, |(_, pages)| pages as f64 / self.pages.max(1) as f64)
    }
}

/// An object's name, and what distinguishes it from others of that name.
#[must_use]
pub fn object_label(object: &Object) -> String {
    match object.kind {
        _ if object.name == ANONYMOUS => format!(
            "{ANONYMOUS}, {}, no. {}",
            size_words(object.size),
            object.order + 1
        ),
        ObjectKind::Stack => object
            .thread
            .map_or_else(|| object.name.clone(), |t| format!("{STACK} of {t}")),
        _ => object.name.clone(),
    }
}

/// An object's name; that of a mapping is the block of memory that fills three quarters of it or more, if there is one.
#[must_use]
pub fn content_label(object: &Object) -> String {
    let block = object.content();
    block.map_or_else(|| object_label(object), variable_label)
}

/// Memory by its name: a variable's, else its object's.
#[must_use]
pub fn named_label(profile: &Profile, named: Named) -> String {
    let content = || content_label(profile.object(named.object));
    profile.variable(named).map_or_else(content, variable_label)
}

/// A variable with the place of its declaration.
#[must_use]
pub fn variable_label(variable: &Variable) -> String {
    match &variable.source {
        Some(source) => format!("{} ({source})", variable.name),
        None => variable.name.clone(),
    }
}

fn size_words(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{:.1} GiB", b as f64 / f64::from(1 << 30)),
        b if b >= 1 << 20 => format!("{:.1} MiB", b as f64 / f64::from(1 << 20)),
        b => format!("{} KiB", b >> 10),
    }
}

/// Use of every object with accesses, the most used first (ties: lower index first).
#[must_use]
pub fn object_use(profile: &Profile, assignment: &NodeAssignment) -> Vec<ObjectUse> {
    let unnamed = profile.objects().len();
    let key = |object: Option<ObjectIdx>| object.map_or(unnamed, ObjectIdx::index).min(unnamed);
    let pages = profile.pages().pages();
    let keys: Vec<(usize, Option<usize>)> = pages
        .iter()
        .map(|page| (key(page.object), profile.variable_of(page)))
        .collect();
    let mut order: Vec<usize> = (0..pages.len()).collect();
    order.sort_by_key(|&at| keys[at]);
    let threads = profile.threads().len();
    let mut touched = vec![0u64; threads];
    let mut used = vec![false; threads];
    let mut by_node = vec![0u64; assignment.nodes];
    let mut found = Vec::new();
    let mut at = 0;
    while at < order.len() {
        let (object, variable) = keys[order[at]];
        touched.fill(0);
        used.fill(false);
        let (mut pages, mut reads, mut writes, mut most, mut local) =
            (0u64, 0u64, 0u64, 0u64, 0u64);
        while at < order.len() {
            if keys[order[at]] != (object, variable) {
                break;
            }
            let page = &profile.pages().pages()[order[at]];
            at += 1;
            let accesses = profile.pages().accesses(page);
            if accesses.is_empty() {
                continue;
            }
            pages += 1;
            for access in accesses {
                reads += access.reads;
                writes += access.writes;
                used[access.thread.index()] = true;
            }
            profile
                .pages()
                .by_node(page, |t| assignment.node(t.index()), &mut by_node);
            most += by_node.iter().copied().max().unwrap_or(0);
            if let Some(first) = page.first_touch {
                touched[first.index()] += 1;
                local += by_node[assignment.node(first.index())];
            }
        }
        let accesses = (reads + writes) as f64;
        if accesses == 0.0 {
            continue;
        }
        let top = touched.iter().copied().max().unwrap_or(0);
        found.push(ObjectUse {
            object: (object < unnamed).then(|| ObjectIdx::from_index(object)),
            variable,
            pages,
            reads,
            writes,
            threads: used.iter().filter(|&&u| u).count() as u64,
            first_toucher: (top > 0).then(|| {
                let thread = touched
                    .iter()
                    .position(|&t| t == top)
                    .expect("top is in it");
                (ThreadIdx::from_index(thread), top)
            }),
            exclusivity: most as f64 / accesses,
            local_share: local as f64 / accesses,
        });
    }
    found.sort_by_key(|use_| std::cmp::Reverse(use_.accesses()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::tests::profile_of;
    use numaloc_model::pages::PageHead;
    use numaloc_model::profile::{Object, ObjectKind};
    use numaloc_model::{PageNumber, PageUsage, ThreadAccess};
    use proptest::prelude::*;

    #[test]
    fn a_grid_touched_by_the_main_thread() {
        let mut tables = profile_of(4, 1, &[]).into_builder();
        tables.objects = vec![Object {
            kind: ObjectKind::Heap,
            name: "grid (stencil.c:41)".into(),
            size: 3 * 4096,
            order: 0,
            thread: Some(ThreadIdx(0)),
            base: 0,
            variables: Vec::new(),
        }];
        let mut usage = PageUsage::new(4096);
        // Three pages of the grid: T0 touched all; T1, T2, T3 use one each. One page without object.
        for (page, user) in [(0u64, 1u32), (1, 2), (2, 3), (9, 0)] {
            usage.push(
                PageHead {
                    number: PageNumber(page),
                    object: (page < 9).then_some(ObjectIdx(0)),
                    object_page: page,
                    first_touch: Some(ThreadIdx(0)),
                    first_touch_time: 0,
                    policy: None,
                },
                [(0, 1), (user, 9)]
                    .into_iter()
                    .map(|(t, n)| ThreadAccess {
                        thread: ThreadIdx(t),
                        reads: n,
                        writes: 0,
                    })
                    .collect(),
            );
        }
        tables.usage(&usage);
        let profile = tables.build().unwrap();
        let found = object_use(&profile, &NodeAssignment::blocks(4, 2));
        assert_eq!(found.len(), 2);
        let grid = &found[0];
        assert_eq!(
            (grid.object, grid.pages, grid.threads),
            (Some(ObjectIdx(0)), 3, 4)
        );
        assert_eq!(grid.first_toucher, Some((ThreadIdx(0), 3)));
        // Threads 0,1 on node 0: page 0 has all 10 there; pages 1 and 2 have 1 there, 9 on node 1.
        assert!((grid.exclusivity - 28.0 / 30.0).abs() < 1e-12);
        assert!((grid.local_share - 12.0 / 30.0).abs() < 1e-12);
        assert_eq!((found[1].object, found[1].accesses()), (None, 10));
    }

    /// A page of the first object, at `base`, that thread 0 touched first and thread 1 reads.
    fn read_by_t1(page: u64, base: u64, reads: u64) -> (PageHead, Vec<ThreadAccess>) {
        let head = PageHead {
            number: PageNumber(base / 4096 + page),
            object: Some(ObjectIdx(0)),
            object_page: page,
            first_touch: Some(ThreadIdx(0)),
            first_touch_time: 0,
            policy: None,
        };
        let access = ThreadAccess {
            thread: ThreadIdx(1),
            reads,
            writes: 0,
        };
        (head, vec![access])
    }

    #[test]
    fn a_mapping_has_the_name_of_the_block_that_fills_it() {
        let block = |size| Variable {
            name: "malloc in main".into(),
            offset: 16,
            size,
            source: Some("app.c:3".into()),
        };
        let mut object = Object {
            kind: ObjectKind::Mapping,
            name: ANONYMOUS.into(),
            size: 4096,
            order: 0,
            thread: None,
            base: 0,
            variables: vec![block(512), block(3072)],
        };
        assert_eq!(content_label(&object), "malloc in main (app.c:3)");
        object.variables.pop();
        assert_eq!(content_label(&object), "[anon], 4 KiB, no. 1");
        object.variables = vec![block(4000)];
        object.kind = ObjectKind::Static;
        assert_eq!(content_label(&object), object_label(&object));
    }

    #[test]
    fn a_page_counts_for_the_variable_that_holds_half_of_it() {
        let mut tables = profile_of(2, 1, &[]).into_builder();
        let variable = |name: &str, offset, size, source: Option<&str>| Variable {
            name: name.into(),
            offset,
            size,
            source: source.map(str::to_owned),
        };
        tables.objects = vec![Object {
            kind: ObjectKind::Static,
            name: "app:.bss".into(),
            size: 12_000,
            order: 0,
            thread: Some(ThreadIdx(0)),
            // The section begins in the middle of a page.
            base: 0x10_0800,
            variables: vec![
                variable("flag", 0, 4, None),
                variable("grid", 64, 8128, Some("stencil.c:41")),
                variable("tail", 8192, 2048, None),
            ],
        }];
        let mut usage = PageUsage::new(4096);
        for page in 0..4u64 {
            let (head, accesses) = read_by_t1(page, 0x10_0800, 1 << page);
            usage.push(head, accesses);
        }
        tables.usage(&usage);
        let profile = tables.build().unwrap();
        let found = object_use(&profile, &NodeAssignment::blocks(2, 2));
        // Offsets by page: 0..2048 (1984 bytes of grid: less than half), 2048..6144 (grid), 6144..10240
        // (2048 of grid, then 2048 of tail: the first that holds half), 10240..12000 (nobody).
        let rows: Vec<(String, u64, u64)> = found
            .iter()
            .map(|use_| (use_.label(&profile), use_.pages, use_.accesses()))
            .collect();
        assert_eq!(
            rows,
            [
                ("app:.bss".to_owned(), 2, 1 + 8),
                ("grid (stencil.c:41)".to_owned(), 2, 2 + 4),
            ]
        );
    }

    #[test]
    fn a_block_is_named_by_its_allocation_site() {
        let mut tables = profile_of(2, 1, &[]).into_builder();
        tables.objects = vec![Object {
            kind: ObjectKind::Mapping,
            name: "[anon]".into(),
            size: 4 * 4096,
            order: 0,
            thread: Some(ThreadIdx(0)),
            base: 0x4000_0000,
            variables: vec![Variable {
                name: "malloc in make_grid < main".into(),
                offset: 16,
                size: 3 * 4096 - 16,
                source: Some("stencil.c:41".into()),
            }],
        }];
        let mut usage = PageUsage::new(4096);
        for page in 0..4u64 {
            let (head, accesses) = read_by_t1(page, 0x4000_0000, 10);
            usage.push(head, accesses);
        }
        tables.usage(&usage);
        let profile = tables.build().unwrap();
        let found = object_use(&profile, &NodeAssignment::blocks(2, 2));
        let rows: Vec<(String, u64)> = found.iter().map(|u| (u.label(&profile), u.pages)).collect();
        assert_eq!(
            rows,
            [
                ("malloc in make_grid < main (stencil.c:41)".to_owned(), 3),
                ("[anon], 16 KiB, no. 1".to_owned(), 1),
            ]
        );
    }

    proptest! {
        #[test]
        fn objects_add_up_to_the_pages_and_are_in_range(
            pages in proptest::collection::vec((0u32..4, 0u32..4, proptest::collection::vec(0u64..40, 4)), 1..30),
            nodes in 1usize..4,
        ) {
            let mut tables = profile_of(4, 1, &[]).into_builder();
            let object = |order| Object {
                kind: ObjectKind::Heap, name: "block".into(), size: 1 << 20, order,
                thread: None, base: 0, variables: Vec::new(),
            };
            tables.objects = (0..3).map(object).collect();
            let mut usage = PageUsage::new(4096);
            for (at, (object, first, counts)) in pages.iter().enumerate() {
                let head = PageHead {
                    number: PageNumber(at as u64),
                    // The fourth is a page without an object.
                    object: (*object < 3).then_some(ObjectIdx(*object)),
                    object_page: at as u64,
                    first_touch: Some(ThreadIdx(*first)),
                    first_touch_time: 0,
                    policy: None,
                };
                let accesses = counts.iter().enumerate().filter(|(_, c)| **c > 0);
                usage.push(head, accesses.map(|(t, &c)| ThreadAccess {
                    thread: ThreadIdx(t as u32), reads: c, writes: 0,
                }).collect());
            }
            tables.usage(&usage);
            let profile = tables.build().unwrap();
            let of = NodeAssignment::round_robin(4, nodes);
            let found = object_use(&profile, &of);
            let all: u64 = pages.iter().flat_map(|p| &p.2).sum();
            prop_assert_eq!(found.iter().map(ObjectUse::accesses).sum::<u64>(), all);
            let used = pages.iter().filter(|p| p.2.iter().any(|&c| c > 0)).count() as u64;
            prop_assert_eq!(found.iter().map(|o| o.pages).sum::<u64>(), used);
            for o in &found {
                prop_assert!(o.exclusivity >= 1.0 / nodes as f64 - 1e-12 && o.exclusivity <= 1.0);
                prop_assert!(o.local_share <= o.exclusivity + 1e-12);
                prop_assert!(o.first_touch_share() <= 1.0 && o.threads <= 4);
            }
            prop_assert!(found.windows(2).all(|w| w[0].accesses() >= w[1].accesses()));
            // Accesses by object, weighted, give the application's exclusivity.
            let whole: f64 = found.iter().map(|o| o.exclusivity * o.accesses() as f64).sum();
            if all > 0 {
                let app = crate::pages::exclusivity(profile.pages(), &of).unwrap();
                prop_assert!((whole / all as f64 - app).abs() < 1e-9);
            }
        }
    }
}
