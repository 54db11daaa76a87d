//! The model against a second one, written page by page from the manual pages and without ranges: after any sequence of
//! calls and accesses, both agree on who placed each page.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use numaloc_page_faults::{
    Access, AddressSpace, Advice, Area, Backing, By, FileId, HugeAdvice, HugePages, PAGE, Pages,
    Placed, Rule, State,
};
use proptest::prelude::*;

/// Pages of the address space.
const COUNT: u64 = 48;

#[derive(Default)]
struct Table(Mutex<BTreeMap<u64, State>>);

impl Pages for Table {
    fn get(&self, page: u64) -> State {
        let known = self.0.lock().unwrap();
        known.get(&page).copied().unwrap_or(State::ABSENT)
    }

    fn replace(&self, page: u64, before: State, now: State) -> bool {
        let mut known = self.0.lock().unwrap();
        let state = known.entry(page).or_insert(State::ABSENT);
        let same = *state == before;
        if same {
            *state = now;
        }
        same
    }

    fn forget(&self, pages: Range<u64>) {
        self.0
            .lock()
            .unwrap()
            .retain(|page, _| !pages.contains(page));
    }
}

impl Table {
    fn placer(&self, page: u64) -> Option<u32> {
        self.get(page).placer()
    }
}

/// A page as the kernel has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mapped {
    shared: bool,
    of_file: bool,
    file: u64,
    offset: u64,
    readable: bool,
    writable: bool,
    locked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Content {
    #[default]
    Absent,
    Zero,
    /// By this thread, in this generation.
    Placed(u32, u32),
}

#[derive(Clone, Debug)]
enum Call {
    Map(u64, u64, Mapped, bool),
    Unmap(u64, u64),
    Protect(u64, u64, bool, bool),
    DontNeed(u64, u64),
    Remove(u64, u64),
    Lock(u64, u64, bool),
    PopulateLoad(u64, u64),
    PopulateStore(u64, u64),
    Use(u64, bool),
    Kernel(u64, u64),
    Remap(u64, u64, u64, u64, bool),
    Punch(u64, u64, u64, bool),
    Fork,
}

fn mapped() -> impl Strategy<Value = Mapped> {
    (any::<[bool; 4]>(), any::<bool>()).prop_map(|([shared, of_file, writable, none], locked)| {
        Mapped {
            shared,
            of_file,
            readable: !none,
            writable: writable && !none,
            locked,
            ..Mapped::default()
        }
    })
}

fn call() -> impl Strategy<Value = Call> {
    let part = || (0..COUNT - 8, 1..8u64);
    prop_oneof![
        4 => (part(), mapped(), any::<bool>()).prop_map(|((at, n), of, p)| Call::Map(at, n, of, p)),
        1 => part().prop_map(|(at, n)| Call::Unmap(at, n)),
        1 => (part(), any::<bool>()).prop_map(|((at, n), w)| Call::Protect(at, n, true, w)),
        2 => part().prop_map(|(at, n)| Call::DontNeed(at, n)),
        1 => part().prop_map(|(at, n)| Call::Remove(at, n)),
        1 => (part(), any::<bool>()).prop_map(|((at, n), on)| Call::Lock(at, n, on)),
        1 => part().prop_map(|(at, n)| Call::PopulateLoad(at, n)),
        1 => part().prop_map(|(at, n)| Call::PopulateStore(at, n)),
        12 => (0..COUNT, any::<bool>()).prop_map(|(at, store)| Call::Use(at, store)),
        2 => part().prop_map(|(at, n)| Call::Kernel(at, n)),
        2 => (part(), part(), any::<bool>()).prop_map(|((a, n), (b, m), keep)| Call::Remap(a, n, b, m, keep)),
        1 => (0..30u64, 0..4u64, 1..4u64, any::<bool>()).prop_map(|(f, o, n, c)| Call::Punch(f, o, n, c)),
        1 => Just(Call::Fork),
    ]
}

/// The second model.
#[derive(Default)]
struct Kernel {
    pages: Vec<(Option<Mapped>, Content)>,
    generation: u32,
}

impl Kernel {
    fn all(&mut self, at: u64, count: u64) -> &mut [(Option<Mapped>, Content)] {
        &mut self.pages[at as usize..(at + count) as usize]
    }

    fn is_mapped(&self, at: u64, count: u64) -> bool {
        self.pages[at as usize..(at + count) as usize]
            .iter()
            .all(|page| page.0.is_some())
    }

    fn touch(&mut self, at: u64, store: bool, thread: u32) {
        let generation = self.generation;
        let (Some(area), content) = &mut self.pages[at as usize] else {
            return;
        };
        let own = Content::Placed(thread, generation);
        *content = match *content {
            Content::Absent | Content::Zero if area.shared || store => own,
            Content::Absent => Content::Zero,
            // Copied on write.
            Content::Placed(_, before) if store && !area.shared && before < generation => own,
            same => same,
        };
    }

    fn populate(&mut self, at: u64, count: u64, thread: u32) {
        for page in at..at + count {
            if let Some(area) = self.pages[page as usize].0
                && (area.readable || area.writable)
            {
                self.touch(page, area.writable && !area.shared, thread);
            }
        }
    }
}

/// Both models, and whether a call could be made.
struct Both {
    space: AddressSpace,
    table: Table,
    kernel: Kernel,
    files: u64,
    by: By,
}

impl Both {
    fn new() -> Self {
        Self {
            space: AddressSpace::new(HugePages::Never),
            table: Table::default(),
            kernel: Kernel {
                pages: vec![Default::default(); COUNT as usize],
                generation: 0,
            },
            files: 0,
            by: By {
                thread: 0,
                policy: 0,
            },
        }
    }

    fn access_all(&mut self, range: Range<u64>, access: Access) {
        let mut placed = Vec::new();
        self.space
            .access_all(&self.table, range, access, self.by, &mut placed);
        for Placed { pages, by, .. } in placed {
            for page in pages {
                // A shared page of an ancestor has no placer in this process.
                let placer = self.table.placer(page);
                assert!(placer.is_none_or(|placer| placer == by.thread));
            }
        }
    }

    fn map(&mut self, at: u64, count: u64, of: Mapped, populate: bool) {
        self.files += 1;
        let file = self.files;
        let area = Area {
            backing: match (of.shared, of.of_file) {
                (true, _) => Backing::Shared,
                (false, true) => Backing::PrivateFile,
                _ => Backing::Anonymous,
            },
            readable: of.readable,
            writable: of.writable,
            locked: of.locked,
            file: of.of_file.then_some(FileId {
                device: 1,
                inode: file,
            }),
            origin: at * PAGE,
            ..Area::anonymous()
        };
        let range = at * PAGE..(at + count) * PAGE;
        self.table.forget(at..at + count);
        if self.space.map(range.clone(), area) || populate {
            self.access_all(range, Access::Populate);
        }
        for (offset, page) in (0..).zip(self.kernel.all(at, count)) {
            let new = Mapped { file, offset, ..of };
            *page = (Some(new), Content::Absent);
        }
        if of.locked || populate {
            self.kernel.populate(at, count, self.by.thread);
        }
    }

    fn remap(&mut self, from: u64, count: u64, to: u64, new: u64, keeps: bool) {
        let same = |a: Mapped, b: Mapped, apart: u64| {
            Mapped {
                offset: a.offset + apart,
                ..a
            } == b
        };
        let areas: Vec<_> = self.kernel.all(from, count).to_vec();
        let first = areas[0].0;
        let one = first.is_some_and(|first| {
            (0..)
                .zip(&areas)
                .all(|(apart, page)| page.0.is_some_and(|area| same(first, area, apart)))
        });
        let overlap = from < to + new && to < from + count;
        let odd = keeps && (new != count || first.is_some_and(|first| first.shared));
        if !one || overlap || odd {
            return;
        }
        let mut placed = Vec::new();
        self.table.forget(to..to + new);
        let old = from * PAGE..(from + count) * PAGE;
        let added = self.space.remap(
            &self.table,
            old,
            to * PAGE..(to + new) * PAGE,
            keeps,
            &mut placed,
        );
        if let Some(added) = added {
            self.access_all(added, Access::Populate);
        }
        for page in self.kernel.all(from, count) {
            *page = match keeps {
                true => (page.0, Content::Absent),
                false => (None, Content::Absent),
            };
        }
        let first = first.unwrap_or_default();
        for apart in 0..new {
            let content = areas
                .get(apart as usize)
                .map_or(Content::Absent, |page| page.1);
            let area = Mapped {
                offset: first.offset + apart,
                ..first
            };
            self.kernel.pages[(to + apart) as usize] = (Some(area), content);
        }
        if first.locked && new > count {
            self.kernel
                .populate(to + count, new - count, self.by.thread);
        }
    }

    fn call(&mut self, call: &Call) {
        let bytes = |at: u64, count: u64| at * PAGE..(at + count) * PAGE;
        match *call {
            Call::Map(at, count, of, populate) => self.map(at, count, of, populate),
            Call::Unmap(at, count) => {
                self.table.forget(at..at + count);
                self.space.unmap(bytes(at, count));
                self.kernel.all(at, count).fill(Default::default());
            }
            Call::Use(at, store) if self.kernel.is_mapped(at, 1) => {
                let access = if store { Access::Store } else { Access::Load };
                let _ = self.space.access(&self.table, at, access, self.by);
                self.kernel.touch(at, store, self.by.thread);
            }
            Call::Remap(from, count, to, new, keeps) => self.remap(from, count, to, new, keeps),
            Call::Punch(file, offset, count, copies) => {
                let id = FileId {
                    device: 1,
                    inode: file,
                };
                self.space
                    .drop_file(&self.table, id, bytes(offset, count), copies);
                for (area, content) in &mut self.kernel.pages {
                    let part = offset..offset + count;
                    if area.is_some_and(|area| {
                        let chosen = area.of_file && area.file == file && (area.shared || copies);
                        chosen && part.contains(&area.offset)
                    }) {
                        *content = Content::Absent;
                    }
                }
            }
            Call::Fork => {
                self.space = self.space.forked();
                self.kernel.generation += 1;
                for (area, _) in &mut self.kernel.pages {
                    *area = area.map(|area| Mapped {
                        locked: false,
                        ..area
                    });
                }
            }
            ref other => self.ranged(other),
        }
    }

    /// Calls that need their range to be mapped.
    fn ranged(&mut self, call: &Call) {
        let (Call::Protect(at, count, ..)
        | Call::DontNeed(at, count)
        | Call::Remove(at, count)
        | Call::Lock(at, count, _)
        | Call::PopulateLoad(at, count)
        | Call::PopulateStore(at, count)
        | Call::Kernel(at, count)) = *call
        else {
            return;
        };
        if !self.kernel.is_mapped(at, count) {
            return;
        }
        let range = at * PAGE..(at + count) * PAGE;
        let thread = self.by.thread;
        let pages = self.kernel.all(at, count);
        match *call {
            Call::Protect(.., readable, writable) => {
                let mut populated = Vec::new();
                for (number, (area, _)) in (at..).zip(pages) {
                    let Some(area) = area else { continue };
                    if area.locked && !area.shared && writable && !area.writable {
                        populated.push(number);
                    }
                    (area.readable, area.writable) = (readable, writable);
                }
                for range in self.space.protect(range, readable, writable) {
                    self.access_all(range, Access::Populate);
                }
                for page in populated {
                    self.kernel.populate(page, 1, thread);
                }
            }
            Call::DontNeed(..) => {
                self.space.advise(&self.table, range, Advice::DontNeed);
                let private = pages
                    .iter_mut()
                    .filter(|(area, _)| area.is_some_and(|a| !a.shared));
                private.for_each(|page| page.1 = Content::Absent);
            }
            Call::Remove(..) => {
                self.space.advise(&self.table, range, Advice::Remove);
                let shared = pages
                    .iter_mut()
                    .filter(|(area, _)| area.is_some_and(|a| a.shared));
                shared.for_each(|page| page.1 = Content::Absent);
            }
            Call::Lock(.., on) => {
                for (area, _) in pages {
                    *area = area.map(|area| Mapped { locked: on, ..area });
                }
                self.space.lock(range.clone(), on);
                if on {
                    self.access_all(range, Access::Populate);
                    self.kernel.populate(at, count, thread);
                }
            }
            Call::PopulateLoad(..) => {
                self.access_all(range, Access::PopulateLoad);
                (at..at + count).for_each(|page| self.kernel.touch(page, false, thread));
            }
            _ => {
                let access = match call {
                    Call::Kernel(..) => Access::KernelStore,
                    _ => Access::PopulateStore,
                };
                self.access_all(range, access);
                (at..at + count).for_each(|page| self.kernel.touch(page, true, thread));
            }
        }
    }

    fn check(&self, call: &Call) {
        for (number, (area, content)) in (0..).zip(&self.kernel.pages) {
            if area.is_none() {
                continue;
            }
            let state = self.table.get(number);
            let found = match *content {
                Content::Absent => state.is_absent(),
                Content::Zero => state == State::READ,
                // A shared page of an ancestor has no known placer in this process.
                Content::Placed(thread, generation) if generation == self.kernel.generation => {
                    state.placer() == Some(thread)
                }
                Content::Placed(thread, _) => {
                    state.is_placed() && state.placer().is_none_or(|placer| placer == thread)
                }
            };
            assert!(
                found,
                "page {number}: {content:?}, not {state:?}, after {call:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_sequence_of_calls_leaves_pages_with_those_who_placed_them(
        calls in prop::collection::vec((0..4u32, call()), 1..60),
    ) {
        let mut both = Both::new();
        for (thread, call) in &calls {
            both.by.thread = *thread;
            both.call(call);
            both.check(call);
        }
    }
}

fn by(thread: u32) -> By {
    By { thread, policy: 0 }
}

/// A space with huge pages for advised memory, 4 MiB of it from 2 MiB on.
fn huge() -> (AddressSpace, Table) {
    let mut space = AddressSpace::new(HugePages::Madvise);
    let range = 512 * PAGE..1536 * PAGE;
    space.map(range.clone(), Area::anonymous());
    let table = Table::default();
    space.advise(&table, range, Advice::Huge(HugeAdvice::Wanted));
    (space, table)
}

#[test]
fn the_first_store_to_a_huge_page_places_all_of_it() {
    let (space, table) = huge();
    let placed = space.access(&table, 700, Access::Store, by(3)).unwrap();
    assert_eq!((placed.pages, placed.rule), (512..1024, Rule::Huge));
    assert_eq!(table.placer(1023), Some(3));
    assert_eq!(space.access(&table, 513, Access::Store, by(4)), None);
    assert_eq!(table.placer(1024), None);
}

#[test]
fn a_page_that_is_there_or_a_hole_in_the_area_prevents_a_huge_one() {
    let (mut space, table) = huge();
    space.unmap(1000 * PAGE..1001 * PAGE);
    let placed = space.access(&table, 700, Access::Store, by(3)).unwrap();
    assert_eq!(placed.pages, 700..701);
    // Only read before: a huge zero page, which a store splits.
    assert_eq!(space.access(&table, 1100, Access::Load, by(1)), None);
    let placed = space.access(&table, 1200, Access::Store, by(2)).unwrap();
    assert_eq!(placed.pages, 1200..1201);
}

#[test]
fn areas_that_are_alike_are_one() {
    let mut space = AddressSpace::new(HugePages::Always);
    let table = Table::default();
    for start in [512, 600, 1000] {
        let end = if start == 1000 { 1024 } else { start + 400 };
        space.map(start * PAGE..end * PAGE, Area::anonymous());
    }
    let placed = space.access(&table, 513, Access::Store, by(0)).unwrap();
    assert_eq!(placed.pages, 512..1024);
}

#[test]
fn the_policy_of_an_area_is_taken_before_that_of_the_thread() {
    use numaloc_page_faults::Policy;
    let mut space = AddressSpace::default();
    let table = Table::default();
    let (bound, new) = space.number(Policy::of(2, 2));
    let (spread, _) = space.number(Policy::of(3, 3));
    assert!(new && bound != spread && !space.number(Policy::of(2, 2)).1);
    space.map(0..8 * PAGE, Area::anonymous());
    space.bind(0..4 * PAGE, bound);
    let by = By {
        thread: 1,
        policy: spread,
    };
    let of = |page| {
        space
            .access(&table, page, Access::Store, by)
            .unwrap()
            .policy
    };
    assert_eq!((of(3), of(4)), (bound, spread));
    assert_eq!(space.policy(bound), Policy::of(2, 2));
}

#[test]
fn a_child_knows_who_placed_what_it_inherits_and_copies_what_it_changes() {
    let mut space = AddressSpace::default();
    let table = Table::default();
    space.map(0..8 * PAGE, Area::anonymous());
    for page in 0..4 {
        space.access(&table, page, Access::Store, by(7)).unwrap();
    }
    let child = space.forked().forked();
    let read = child.access(&table, 1, Access::Load, by(0)).unwrap();
    assert_eq!(
        (read.rule, read.by.thread, read.by.forks),
        (Rule::Inherited, 7, 2)
    );
    assert_eq!(child.access(&table, 1, Access::Load, by(0)), None);
    let copy = child.access(&table, 1, Access::Store, by(0)).unwrap();
    assert_eq!(
        (copy.rule, copy.by.thread, copy.by.forks),
        (Rule::Copied, 0, 0)
    );
}

#[test]
fn who_resolves_a_fault_for_others_places_the_page() {
    let mut space = AddressSpace::default();
    let table = Table::default();
    space.map(0..8 * PAGE, Area::anonymous());
    space.resolve(0..8 * PAGE, true);
    assert_eq!(space.access(&table, 1, Access::Store, by(1)), None);
    let placed = space.access(&table, 1, Access::Handler, by(2)).unwrap();
    assert_eq!(placed.by.thread, 2);
}

#[test]
fn hugetlb_places_whole_pages_at_any_access() {
    let mut space = AddressSpace::default();
    let table = Table::default();
    let area = Area {
        huge_shift: 21,
        ..Area::anonymous()
    };
    space.map(0..1024 * PAGE, area);
    let placed = space.access(&table, 600, Access::Load, by(5)).unwrap();
    assert_eq!(placed.pages, 512..1024);
}

#[test]
fn a_lower_break_frees_pages() {
    let mut space = AddressSpace::default();
    let table = Table::default();
    space.set_break(&table, 16 * PAGE);
    space.set_break(&table, 32 * PAGE);
    space.access(&table, 20, Access::Store, by(0)).unwrap();
    space.access(&table, 30, Access::Store, by(0)).unwrap();
    let (_, dropped) = space.set_break(&table, 25 * PAGE);
    assert_eq!(dropped, vec![25 * PAGE..32 * PAGE]);
    assert_eq!((table.placer(20), table.placer(30)), (Some(0), None));
}
