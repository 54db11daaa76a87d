//! The page accesses that a plan's figures count: those of `show`, beyond the private caches of the machine.

use numaloc_analysis::beyond_caches::beyond_private_caches;
use numaloc_analysis::local::{Accesses, alone};
use numaloc_model::{LogicalNode, Mapping, PageUsage, Placement, Profile, ThreadIdx};
use numaloc_topology::Topology;

use crate::private_cache::private_cache;

/// The page accesses of a run beyond the private caches of a machine: computed once, for all figures of a plan.
pub(crate) struct BeyondCaches<'a> {
    pub profile: &'a Profile,
    pub machine: &'a Topology,
    usage: PageUsage,
    alone: Vec<f64>,
}

impl<'a> BeyondCaches<'a> {
    pub fn of(profile: &'a Profile, machine: &'a Topology) -> Self {
        let threads = profile.threads().len();
        let (slices, line) = (profile.page_slices(), profile.meta().line_size);
        let cache = private_cache(machine);
        Self {
            profile,
            machine,
            usage: beyond_private_caches(profile.pages(), slices, threads, cache, line),
            alone: alone(profile),
        }
    }

    /// The accesses, page by page.
    pub fn usage(&self) -> &PageUsage {
        &self.usage
    }

    /// Accesses to pages on another node than the accessing thread's, and all.
    pub fn remote(&self, mapping: &Mapping, placement: &Placement) -> (u64, u64) {
        let counted = self.accesses().bound(self.nodes(mapping), placement);
        (counted.remote.round() as u64, counted.all as u64)
    }

    /// Remote share of threads that are not bound, and that would be at `mapping` if they were; 0 without accesses.
    pub fn unbound(&self, mapping: &Mapping) -> f64 {
        let counted = self.accesses().unbound(self.nodes(mapping));
        counted.remote_share().unwrap_or(0.0)
    }

    fn accesses(&self) -> Accesses<'_> {
        Accesses {
            profile: self.profile,
            beyond: &self.usage,
            alone: &self.alone,
            homes: self.machine.nodes_with_pus().len(),
            memories: self.machine.nodes().len(),
        }
    }

    fn nodes(&self, mapping: &Mapping) -> impl Fn(ThreadIdx) -> LogicalNode {
        |thread| self.machine.node_of(mapping.pu[thread.index()])
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use numaloc_model::pages::PageHead;
    use numaloc_model::profile::{
        Clock, Meta, Object, ObjectKind, PageSlice, ProfileBuilder, Slice, Thread,
    };
    use numaloc_model::{ObjectIdx, PageNumber, SliceIdx, ThreadAccess};
    use numaloc_topology::resolve;
    use proptest::prelude::*;

    use super::*;
    use crate::reference::Reference;
    use crate::{Choice, Options, PlanRequest, Scope, Subject, Unobserved, plan};

    const THREADS: u32 = 5;

    /// Object, first toucher, and accesses by slice and thread.
    type Page = (Option<u32>, Option<u32>, [[u64; THREADS as usize]; 2]);

    fn page() -> impl Strategy<Value = Page> {
        let accesses = prop::array::uniform5(prop_oneof![Just(0), 1..9000_u64]);
        (
            prop::option::of(0..2_u32),
            prop::option::of(0..THREADS),
            prop::array::uniform2(accesses),
        )
    }

    fn profile(pages: &[Page]) -> Profile {
        let mut tables = ProfileBuilder::new(Meta::new("native", Clock::Virtual), 4096);
        let object = |name: &str, order| Object {
            kind: ObjectKind::Mapping,
            name: name.to_owned(),
            size: 1 << 20,
            order,
            thread: Some(ThreadIdx(0)),
            base: u64::from(order) << 30,
            variables: Vec::new(),
        };
        tables.objects = vec![object("[anon]", 0), object("libc.so.6", 1)];
        tables.slices = [(0, 10), (10, 20)]
            .map(|(start, end)| Slice { start, end })
            .into();
        let sum = |slice: usize, thread: usize| -> u64 {
            pages.iter().map(|page| page.2[slice][thread]).sum()
        };
        let each = || (0..2_u32).flat_map(|slice| (0..THREADS).map(move |thread| (slice, thread)));
        tables.threads = (0..THREADS)
            .map(|thread| Thread {
                pid: 1,
                tid: thread + 1,
                end: 20,
                accesses: sum(0, thread as usize) + sum(1, thread as usize),
                ..Thread::new(format!("0.{thread}"))
            })
            .collect();
        for (number, &(object, toucher, accesses)) in (0_u64..).zip(pages) {
            let head = PageHead {
                number: PageNumber(number),
                object: object.map(ObjectIdx),
                object_page: number,
                first_touch: toucher.map(ThreadIdx),
                first_touch_time: 0,
                policy: None,
            };
            let rows = (0..THREADS).map(|thread| ThreadAccess {
                thread: ThreadIdx(thread),
                reads: accesses[0][thread as usize] + accesses[1][thread as usize],
                writes: 0,
            });
            let rows: Vec<_> = rows.filter(|row| row.reads > 0).collect();
            tables.page(head, rows);
        }
        let slices = each().flat_map(|(slice, thread)| {
            (0_u64..).zip(pages).map(move |(number, page)| PageSlice {
                slice: SliceIdx(slice),
                page: PageNumber(number),
                thread: ThreadIdx(thread),
                accesses: page.2[slice as usize][thread as usize],
            })
        });
        tables.page_slices = slices.filter(|row| row.accesses > 0).collect();
        tables.build().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn show_and_plan_give_the_same_shares(
            pages in prop::collection::vec(page(), 1..12),
            machine in prop::sample::select(vec![
                "numa:2 core:2 pu:1", "numa:4 core:1 pu:2", "package:2 [numa] [numa] core:2 pu:1", "numa:3 core:1 pu:1",
            ]),
        ) {
            let (profile, machine) = (profile(&pages), resolve(machine).unwrap());
            let shown = Reference::machine(THREADS as usize, None, machine.clone())
                .characterise(&profile)
                .unwrap();
            let subject = Subject::new(Cow::Borrowed(&profile), &Scope::default()).unwrap();
            let choice = Choice::new("os", "first-touch").unwrap();
            let options = Options::default();
            let request = PlanRequest { subject: &subject, machine: &machine, choice: &choice, options: &options };
            let planned = plan(request, &Unobserved).unwrap().unplanned();
            let remote = |at: usize| shown.outlooks[at].local.map(|local| 1.0 - local);
            match remote(0) {
                None => prop_assert_eq!(planned.bound.1, 0),
                Some(free) => {
                    prop_assert!((planned.free - free).abs() < 1e-9, "{} {free}", planned.free);
                    let (part, all) = planned.bound;
                    let bound = remote(1).unwrap() * all as f64;
                    prop_assert!((part as f64 - bound).abs() < 0.51, "{part} {bound} of {all}");
                }
            }
        }
    }
}
