//! Writes a synthetic profile of any size, for testing and timing readers of profiles. Nothing was recorded.
//!
//! `generate-profile OUT.numaloc [THREADS SLICES PAGES ROWS]`: bursts of neighbour pairs, then distant
//! pairs, over an array whose pages thread 0 touched first.

#![forbid(unsafe_code)]

use std::path::Path;

use numaloc_model::pages::PageHead;
use numaloc_model::profile::{
    Clock, CommRow, Meta, Object, ObjectKind, PageSlice, Profile, ProfileBuilder, Slice, Thread,
};
use numaloc_model::{Layer, ObjectIdx, PageNumber, PageUsage, SliceIdx, ThreadAccess, ThreadIdx};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| {
        args.get(at)
            .map_or(default, |a| a.parse().expect("a whole number"))
    };
    let out = args
        .first()
        .expect("usage: generate-profile OUT.numaloc [THREADS SLICES PAGES ROWS]");
    let (threads, slices, pages) = (number(1, 16), number(2, 400), number(3, 2000));
    let rows = number(4, slices * threads);
    let profile = generate(threads, slices, pages, rows);
    if let Err(error) = numaloc_formats::profile::write(&profile, Path::new(out), true) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

/// SplitMix64: a small generator with a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

/// Number of the first page.
const FIRST_PAGE: u64 = 0x7f00_0000;

fn generate(threads: usize, slices: usize, pages: usize, rows: usize) -> Profile {
    let mut random = Random(1);
    let per_slice = rows.div_ceil(slices.max(1));
    let mut communication = Vec::with_capacity(rows);
    for slice in 0..slices {
        // Four bursts with pauses; the pattern changes half-way.
        let along = slice as f64 / slices as f64;
        let loud = (along * 8.0) as usize % 2 == 1;
        let mut pairs: Vec<(usize, usize)> = (0..per_slice)
            .map(|_| {
                let src = random.below(threads);
                let dst = match random.below(20) {
                    0 => random.below(threads),
                    _ if along < 0.5 => src ^ 1,
                    _ => (src + threads / 2) % threads,
                };
                (src, dst.min(threads - 1))
            })
            .filter(|(src, dst)| src != dst)
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        for (src, dst) in pairs {
            let events = if loud { 20 + random.below(60) } else { 1 } as u64;
            communication.push(CommRow {
                slice: SliceIdx::from_index(slice),
                src: ThreadIdx::from_index(src),
                dst: ThreadIdx::from_index(dst),
                layer: Layer::WriteRead,
                events,
                bytes: events * 8,
            });
        }
    }
    let mut usage = PageUsage::new(4096);
    let mut page_slices = Vec::new();
    for page in 0..pages {
        let owner = page * threads / pages;
        let grid = page < pages * 3 / 4;
        let first = if grid { 0 } else { owner };
        let mut accesses = vec![
            ThreadAccess {
                thread: ThreadIdx::from_index(first),
                reads: 0,
                writes: 64,
            },
            ThreadAccess {
                thread: ThreadIdx::from_index(owner),
                reads: 3000 + random.below(2000) as u64,
                writes: 800,
            },
        ];
        if grid && page % 8 == 0 {
            let neighbour = (owner + 1) % threads;
            accesses.push(ThreadAccess {
                thread: ThreadIdx::from_index(neighbour),
                reads: 500 + random.below(4000) as u64,
                writes: 0,
            });
        }
        for access in &accesses {
            page_slices.push(PageSlice {
                slice: SliceIdx::from_index(page % slices),
                page: PageNumber(FIRST_PAGE + page as u64),
                thread: access.thread,
                accesses: access.reads + access.writes,
            });
        }
        let head = PageHead {
            number: PageNumber(FIRST_PAGE + page as u64),
            object: Some(ObjectIdx(u32::from(!grid))),
            object_page: if grid { page } else { page - pages * 3 / 4 } as u64,
            first_touch: Some(ThreadIdx::from_index(first)),
            first_touch_time: page as u64,
            policy: None,
        };
        usage.push(head, accesses);
    }
    page_slices.dedup_by_key(|row| (row.slice, row.page, row.thread));
    let object = |name: &str, pages: usize, base: u64| Object {
        kind: ObjectKind::Heap,
        name: name.to_owned(),
        size: pages as u64 * 4096,
        order: 0,
        thread: Some(ThreadIdx(0)),
        base,
        variables: Vec::new(),
    };
    let mut tables = ProfileBuilder::new(
        Meta {
            command: vec!["made-up".into(), threads.to_string()],
            notes: vec!["made up by generate-profile, not recorded".into()],
            ..Meta::new("generated", Clock::Virtual)
        },
        usage.page_size(),
    );
    tables.usage(&usage);
    tables.threads = (0..threads)
        .map(|at| Thread {
            pid: 100,
            tid: 100 + at as u32,
            end: slices as u64 * 1000,
            accesses: 1_000_000,
            read_bytes: 6_000_000,
            write_bytes: 2_000_000,
            ..Thread::new(if at == 0 {
                "0".into()
            } else {
                format!("0.{at}")
            })
        })
        .collect();
    tables.slices = (0..slices as u64)
        .map(|at| Slice {
            start: at * 1000,
            end: at * 1000 + 1000,
        })
        .collect();
    tables.communication = communication;
    tables.page_slices = page_slices;
    tables.objects = vec![
        object("grid (stencil.c:41)", pages * 3 / 4, 0x7f00_0000 * 4096),
        object(
            "edges (stencil.c:57)",
            pages / 4,
            (0x7f00_0000 + pages as u64 * 3 / 4) * 4096,
        ),
    ];
    tables.build().unwrap()
}
