//! The recorder and the placer give the same names, which plans depend on: one stream of events is fed to both.

use std::io;

use numaloc_apply::controller::{Actuator, ApplyOptions, Controller};
use numaloc_apply::index::PlanIndex;
use numaloc_assemble::lineage::Lineage;
use numaloc_assemble::objects::{Images, Memory, Section};
use numaloc_identity::object::{ARENA_BYTES, MAIN_STACK_BYTES, STACK, SYSTEM_V};
use numaloc_identity::{Creator, MapCall, path};
use numaloc_journal::Record;
use numaloc_model::plan::{PagePlan, Plan, ThreadPlan};
use numaloc_model::{LogicalNode, LogicalPu, OsNode, OsPu};
use proptest::prelude::*;

const PRIVATE: u64 = 0x22;
const RESERVED: u64 = 0x4022;
const FILES: [&str; 3] = ["", "grid.bin", "table"];
const STACK_END: u64 = 0x7fff_0000_0000;
const STACK_BYTES: u64 = 0x2_1000;
const HEAP_START: u64 = 0x55_5555_5123;

/// What a thread of the program does next; `thread` is taken modulo how many there are.
#[derive(Clone, Debug)]
enum Event {
    Map {
        thread: usize,
        pages: u64,
        shared: bool,
        file: usize,
    },
    Arena {
        thread: usize,
        twice: bool,
        aligned: bool,
    },
    Attach {
        thread: usize,
        bytes: u64,
    },
    Break {
        pages: u64,
    },
    Thread {
        creator: usize,
        pages: u64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let thread = 0usize..8;
    prop_oneof![
        4 => (thread.clone(), 1u64..4, any::<bool>(), 0usize..3)
            .prop_map(|(thread, pages, shared, file)| Event::Map { thread, pages, shared, file }),
        1 => (thread.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(thread, twice, aligned)| Event::Arena { thread, twice, aligned }),
        1 => (thread.clone(), 1u64..20_000).prop_map(|(thread, bytes)| Event::Attach { thread, bytes }),
        1 => (1u64..50).prop_map(|pages| Event::Break { pages }),
        2 => (thread, 3u64..6).prop_map(|(creator, pages)| Event::Thread { creator, pages }),
    ]
}

/// A mapping as both sides see it: number of the calling thread, the call, its result.
#[derive(Clone, Debug)]
enum Seen {
    Map(usize, u64, u64, u64, usize, u64),
    Attach(usize, u64, u64),
    Break(u64),
    /// Creator's number and the stack pointer.
    Thread(usize, u64),
}

/// Gives every event an address; threads exist once they were created.
fn happen(events: &[Event]) -> Vec<Seen> {
    let (mut next, mut threads, mut heap) = (0x7000_0000_0000u64, 1usize, HEAP_START);
    let mut seen = Vec::new();
    for event in events {
        let mut at = |bytes: u64| {
            let address = next;
            next += bytes.next_multiple_of(4096) + 0x10_0000;
            address
        };
        match *event {
            Event::Map {
                thread,
                pages,
                shared,
                file,
            } => {
                let flags =
                    if shared { 0x21 } else { PRIVATE } & if file == 0 { !0 } else { !0x20 };
                let length = pages * 4096 - 100;
                seen.push(Seen::Map(
                    thread % threads,
                    length,
                    3,
                    flags,
                    file,
                    at(length),
                ));
            }
            Event::Arena {
                thread,
                twice,
                aligned,
            } => {
                let base = at(4 * ARENA_BYTES).next_multiple_of(ARENA_BYTES);
                let address = if aligned { base } else { base + 0x3000 };
                let length = if twice { 2 * ARENA_BYTES } else { ARENA_BYTES };
                seen.push(Seen::Map(thread % threads, length, 0, RESERVED, 0, address));
            }
            Event::Attach { thread, bytes } => {
                seen.push(Seen::Attach(thread % threads, bytes, at(bytes)))
            }
            Event::Break { pages } => {
                heap += pages * 4096;
                seen.push(Seen::Break(heap));
            }
            Event::Thread { creator, pages } => {
                let creator = creator % threads;
                let (length, address) = (pages * 4096, at(pages * 4096));
                seen.push(Seen::Map(creator, length, 3, PRIVATE, 0, address));
                seen.push(Seen::Thread(creator, address + length - 64));
                threads += 1;
            }
        }
    }
    seen
}

/// No program and no library: statics need files.
struct NoFiles;

impl Images for NoFiles {
    fn sections(&self, _: &str) -> Option<Vec<Section>> {
        None
    }
}

/// The paths of the threads, and the objects as the recorder names them.
fn recorded(seen: &[Seen]) -> (Vec<String>, Memory) {
    let mut threads = vec![Creator::new(path::FIRST)];
    let map =
        |sequence, thread: usize, address, length, protection, flags, file: &str| Record::Map {
            sequence,
            thread: thread as u32,
            address,
            length,
            protection,
            flags,
            file: file.to_owned(),
            offset: 0,
            moved_from: 0,
        };
    let mut records = vec![
        map(
            0,
            0,
            STACK_END - STACK_BYTES,
            STACK_BYTES,
            3,
            PRIVATE,
            STACK,
        ),
        Record::Break {
            sequence: 1,
            address: HEAP_START,
        },
    ];
    for (sequence, event) in (2..).zip(seen) {
        records.push(match *event {
            Seen::Map(thread, length, protection, flags, file, address) => map(
                sequence,
                thread,
                address,
                length,
                protection,
                flags,
                FILES[file],
            ),
            Seen::Attach(thread, bytes, address) => {
                map(sequence, thread, address, bytes, 3, 1, SYSTEM_V)
            }
            Seen::Break(address) => Record::Break { sequence, address },
            Seen::Thread(creator, pointer) => {
                let path = threads[creator].next_thread();
                threads.push(Creator::new(path.clone()));
                Record::Stack {
                    sequence,
                    path,
                    pointer,
                }
            }
        });
    }
    let paths: Vec<String> = threads
        .iter()
        .map(|thread| thread.path().to_owned())
        .collect();
    let process = Lineage::alone(&records, path::FIRST, |thread| &paths[thread as usize]);
    let memory = Memory::build(&process, &NoFiles);
    drop(process);
    (paths, memory)
}

/// An actuator that notes where memory was bound, and on which PU each thread.
#[derive(Default)]
struct Notes {
    bound: Vec<(u64, u32)>,
    pinned: Vec<(i32, u32)>,
}

impl Actuator for Notes {
    fn pin(&mut self, tid: i32, pus: &[u32]) -> io::Result<()> {
        self.pinned.extend(pus.iter().map(|&pu| (tid, pu)));
        Ok(())
    }
    fn affinity(&mut self, _: i32) -> io::Result<Vec<u32>> {
        Ok(Vec::new())
    }
    fn bind(&mut self, ranges: &[(u64, u64, u32)]) -> Vec<i32> {
        self.bound
            .extend(ranges.iter().map(|&(start, _, node)| (start, node)));
        vec![0; ranges.len()]
    }
    fn interleave(&mut self, _: (u64, u64), _: &[u32]) -> i32 {
        0
    }
    fn interleave_by_weights(&mut self, _: (u64, u64), _: &[u32]) -> i32 {
        0
    }
    fn own_policy(&mut self, _: &[u32]) -> i32 {
        0
    }
    fn relocate(&mut self, _: i32, _: &[u64], nodes: &[i32]) -> io::Result<Vec<i32>> {
        Ok(nodes.to_vec())
    }
    fn locate(&mut self, _: i32, pages: &[u64]) -> io::Result<Vec<i32>> {
        Ok(vec![0; pages.len()])
    }
}

/// A plan for every recorded object: its first page on a node of its own number, the thread on a PU of its own number.
fn plan(paths: &[String], memory: &Memory) -> Plan {
    let of = |object: usize| object as u32;
    let first_page = |found: &numaloc_assemble::objects::Found| match found.base + MAIN_STACK_BYTES
        == STACK_END
    {
        // The lower part of the first stack is not there yet.
        true => (MAIN_STACK_BYTES - STACK_BYTES) / 4096,
        false => 0,
    };
    Plan {
        threads: paths
            .iter()
            .enumerate()
            .map(|(at, path)| ThreadPlan {
                path: path.clone(),
                pu: LogicalPu(of(at)),
                os_pu: OsPu(of(at)),
            })
            .collect(),
        pages: memory
            .objects
            .iter()
            .enumerate()
            .map(|(at, found)| PagePlan {
                object: of(at),
                first_page: first_page(found),
                pages: 1,
                node: LogicalNode(of(at)),
                os_node: OsNode(of(at)),
            })
            .collect(),
        objects: memory
            .objects
            .iter()
            .map(|found| found.key.clone())
            .collect(),
        ..Plan::by_hand("test", "test")
    }
}

/// Feeds the same events to the placer.
fn placed(seen: &[Seen], plan: &Plan) -> Notes {
    let mut controller = Controller::new(
        PlanIndex::new(plan, 1000),
        ApplyOptions::default(),
        (0..1000).collect(),
    );
    let mut act = Notes::default();
    let tid = |thread: usize| 100 + thread as i32;
    controller.started(tid(0), &mut act);
    let stack = (STACK_END - STACK_BYTES, STACK_END);
    controller.loaded(
        tid(0),
        &[],
        None,
        Some((HEAP_START, HEAP_START)),
        Some(stack),
        &mut act,
    );
    let mut threads = 1;
    for event in seen {
        match *event {
            Seen::Map(thread, length, protection, flags, file, address) => {
                let file = Some(FILES[file]).filter(|file| !file.is_empty());
                let call = MapCall {
                    length,
                    protection,
                    flags,
                    file,
                };
                controller.mapped(tid(thread), &call, address, &mut act);
            }
            Seen::Attach(thread, bytes, address) => {
                controller.attached(tid(thread), bytes, address, &mut act)
            }
            Seen::Break(address) => controller.break_moved(tid(0), address, &mut act),
            Seen::Thread(creator, pointer) => {
                controller.announced(tid(creator), tid(threads), true);
                controller.created(tid(creator), tid(threads), true, pointer, &mut act);
                threads += 1;
            }
        }
    }
    act
}

proptest! {
    #[test]
    fn the_placer_finds_every_object_and_thread_that_the_recorder_named(events in prop::collection::vec(event(), 0..60)) {
        let seen = happen(&events);
        let (paths, memory) = recorded(&seen);
        let plan = plan(&paths, &memory);
        let act = placed(&seen, &plan);
        for (at, path) in paths.iter().enumerate() {
            prop_assert!(act.pinned.contains(&(100 + at as i32, at as u32)), "thread {}", path);
        }
        let grown = seen.iter().any(|event| matches!(event, Seen::Break(_)));
        for (at, (found, page)) in memory.objects.iter().zip(&plan.pages).enumerate() {
            // A heap that never grew has no page.
            let is_there = found.key.size > 0 || grown;
            let bound = act.bound.contains(&(found.base + page.first_page * 4096, at as u32));
            prop_assert_eq!(bound, is_there, "{:?}", found);
        }
        // Nothing else was taken for an object of the plan. A page that the break enters twice is bound twice.
        let objects = memory.objects.iter().filter(|found| found.key.size > 0 || grown).count();
        let bound: std::collections::BTreeSet<(u64, u32)> =
            act.bound.iter().map(|&(start, node)| (start / 4096, node)).collect();
        prop_assert_eq!(bound.len(), objects);
    }
}
