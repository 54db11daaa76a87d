//! Accesses recorded by block or by loop are counted as if each had been recorded by itself.

mod support;

use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU64};

use numaloc_model::{Layer, PageNumber, Profile};
use numaloc_trace::block::{Block, Form, Kind, Piece, REGISTERS, Step, Strides};
use numaloc_trace::thread::{Loop, Pace, When};
use numaloc_trace::{Config, Engine, ThreadTracer};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use support::{Recorder, assembled};

/// Address of the blocks' data: the middle of mapped memory, as loops require.
fn data() -> u64 {
    const SIZE: usize = 16 << 20;
    static MEMORY: OnceLock<u64> = OnceLock::new();
    *MEMORY.get_or_init(|| {
        let memory: &'static mut [u8] = Box::leak(vec![0; SIZE].into());
        (memory.as_ptr() as u64 + SIZE as u64 / 2) & !0xfff
    })
}

const THREADS: usize = 3;

/// Records `block` as its frontend would.
fn record_block(thread: &mut Thread, block: &'static Block, registers: &[u64; REGISTERS]) {
    let (tracer, shape) = (&mut thread.tracer, block.shape());
    if shape.repeats && thread.counted.goes_on(block) {
        return;
    }
    macro_rules! one_of {
        ($($n:literal: $($writes:literal)+;)+) => {
            match (shape.groups, shape.writes) {
                $(
                    ($n, _) if shape.repeats => tracer.iteration::<$n>(block, registers),
                    $(($n, $writes) => tracer.block::<$n, $writes>(block, registers),)+
                )+
                _ => tracer.block::<0, 0>(block, registers),
            }
        };
    }
    one_of! {
        1: 0 1;
        2: 0 1 2 3;
        3: 0 1 2 3 4 5 6 7;
        4: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15;
    }
}

/// A thread, and its frontend's counter of runs.
struct Thread {
    tracer: Box<ThreadTracer>,
    counted: &'static Counted,
}

#[derive(Default)]
struct Counted {
    block: AtomicPtr<Block>,
    more: AtomicU64,
}

impl Counted {
    /// Counts an iteration of `block` and returns true, if the run may have another one.
    fn goes_on(&self, block: &'static Block) -> bool {
        let (of, more) = (self.block.load(Relaxed), self.more.load(Relaxed));
        let counts = std::ptr::eq(of, block) && more > 0;
        self.more.store(more - u64::from(counts), Relaxed);
        counts
    }
}

impl Pace for &'static Counted {
    fn begin(&mut self, block: &'static Block, more: u64) {
        self.block
            .store(std::ptr::from_ref(block).cast_mut(), Relaxed);
        self.more.store(more, Relaxed);
    }

    fn end(&mut self) -> u64 {
        self.block.store(null_mut(), Relaxed);
        self.more.load(Relaxed)
    }
}

/// Records the block's accesses one by one.
fn singly(tracer: &mut ThreadTracer, block: &Block, registers: &[u64; REGISTERS]) {
    for (piece, address) in block.pieces.iter().zip(block.addresses(registers)) {
        let size = u32::from(piece.size);
        match piece.kind {
            Kind::Read => tracer.access::<false, false>(address, size),
            Kind::Write => tracer.access::<true, false>(address, size),
            Kind::Update => tracer.update::<false>(address, size),
        }
    }
}

/// A thread runs a block a number of times while the registers move by the strides.
#[derive(Clone, Debug)]
struct Job {
    thread: usize,
    block: usize,
    times: u64,
    registers: [u64; 3],
}

fn piece() -> impl Strategy<Value = Piece> {
    let form = (0u8..3, prop::option::of((0u8..3, 0u8..4)));
    let size = prop::sample::select(vec![1u8, 2, 4, 8, 16]);
    let kind = prop::sample::select(vec![Kind::Read, Kind::Read, Kind::Write, Kind::Update]);
    (form, 0u64..100, size, kind).prop_map(|((base, index), displacement, size, kind)| Piece {
        form: Form {
            // Index registers hold small values, so that all addresses are close together.
            base: Some(base),
            index: index.map(|(register, shift)| (register + 3, shift)),
        },
        displacement,
        size,
        kind,
    })
}

/// Pieces, and the strides of a block that repeats.
type Code = (Vec<Piece>, Option<[i64; 6]>);

fn block() -> impl Strategy<Value = Code> {
    let stride = prop::sample::select(vec![0i64, 0, 8, 4, -8, 16, 64, 200, -3]);
    let strides = prop::array::uniform6(stride);
    (
        prop::collection::vec(piece(), 1..7),
        prop::option::of(strides),
    )
}

fn job(blocks: usize) -> impl Strategy<Value = Job> {
    let registers = prop::array::uniform3(0u64..300);
    // Mostly short, sometimes longer than a run can be.
    let times = prop_oneof![9 => 1u64..150, 1 => 150u64..1500];
    (0..THREADS, 0..blocks, times, registers).prop_map(|(thread, block, times, registers)| Job {
        thread,
        block,
        times,
        registers,
    })
}

/// A block, and what each iteration adds to its registers.
struct Iterated {
    block: &'static Block,
    strides: [i64; 6],
    /// The same as a loop, if the block repeats.
    whole: Option<Loop>,
}

impl Iterated {
    fn new((pieces, strides): Code) -> Self {
        let known: Option<Strides> = strides.map(|strides| {
            std::array::from_fn(|at| {
                Some(Step {
                    constant: strides.get(at).copied().unwrap_or(0) as u64,
                    register: None,
                })
            })
        });
        Self {
            block: Box::leak(Box::new(Block::new(&pieces, known.as_ref()))),
            strides: strides.unwrap_or([0; 6]),
            whole: known.map(|known| Loop::new(&pieces, known)),
        }
    }

    /// Calls `record` for each of `times` iterations.
    fn each(
        &self,
        registers: &[u64; REGISTERS],
        times: u64,
        mut record: impl FnMut(&'static Block, &[u64; REGISTERS]),
    ) {
        let mut registers = *registers;
        for _ in 0..times {
            record(self.block, &registers);
            for (register, stride) in registers.iter_mut().zip(self.strides) {
                *register = register.wrapping_add_signed(stride);
            }
        }
    }
}

/// Records each access by itself.
fn by_access(thread: &mut Thread, code: &Iterated, from: &[u64; REGISTERS], times: u64) {
    code.each(from, times, |block, registers| {
        singly(&mut thread.tracer, block, registers);
    });
}

/// Records each iteration by block.
fn by_block(thread: &mut Thread, code: &Iterated, from: &[u64; REGISTERS], times: u64) {
    code.each(from, times, |block, registers| {
        record_block(thread, block, registers);
    });
}

/// Records all iterations together, if the block repeats; some before they are made and some after.
fn by_loop(thread: &mut Thread, code: &Iterated, from: &[u64; REGISTERS], times: u64) {
    let when = [When::Before, When::After][(times & 1) as usize];
    match &code.whole {
        Some(whole) => thread.tracer.recorded_loop(whole, from, times, when),
        None => by_block(thread, code, from, times),
    }
}

fn recorded(
    blocks: &[Iterated],
    jobs: &[Job],
    recorder: &Recorder,
    record: impl Fn(&mut Thread, &Iterated, &[u64; REGISTERS], u64),
) -> Profile {
    let engine: &'static Engine = recorder.engine();
    let mut threads = vec![engine.first_thread(1)];
    for tid in 2..=THREADS as u32 {
        let pending_thread = threads[0].pending_thread(0);
        threads[0].creator.count_thread();
        threads.push(engine.attach(pending_thread, tid));
    }
    let paced = |mut tracer: Box<ThreadTracer>| {
        let counted: &'static Counted = Box::leak(Box::default());
        tracer.set_pace(Box::new(counted));
        Thread { tracer, counted }
    };
    let mut threads: Vec<Thread> = threads.into_iter().map(paced).collect();
    for job in jobs {
        let thread = &mut threads[job.thread];
        let mut registers = [0; REGISTERS];
        for at in 0..3 {
            registers[at] = data() + job.registers[at];
            registers[at + 3] = job.registers[at];
        }
        record(thread, &blocks[job.block], &registers, job.times);
        // The next job may be another thread's, whose accesses come later than all of these.
        thread.tracer.flush_pending();
    }
    for thread in &mut threads {
        thread.tracer.end(0);
    }
    engine.finish();
    assembled(recorder.folder())
}

/// `usual`: also check that the count of false sharing is as close as it usually is.
fn check(
    blocks: Vec<Code>,
    jobs: Vec<Job>,
    recorder: &Recorder,
    usual: bool,
) -> Result<(), TestCaseError> {
    let blocks: Vec<Iterated> = blocks.into_iter().map(Iterated::new).collect();
    let one = recorded(&blocks, &jobs, recorder, by_access);
    agree(&one, &recorded(&blocks, &jobs, recorder, by_block), usual)?;
    agree(&one, &recorded(&blocks, &jobs, recorder, by_loop), usual)
}

fn agree(one: &Profile, other: &Profile, usual: bool) -> Result<(), TestCaseError> {
    prop_assert_eq!(
        format!("{:?}", one.threads()),
        format!("{:?}", other.threads())
    );
    // Which undecided event evicts another depends on their order, which is known only to within a run.
    let rows = |profile: &Profile, layer| -> Vec<_> {
        let rows = profile.communication().iter();
        rows.filter(|row| row.layer == layer).cloned().collect()
    };
    let exact = |profile: &Profile| format!("{:?}", rows(profile, Layer::WriteRead));
    prop_assert_eq!(exact(one), exact(other));
    let disjoint = |profile: &Profile| -> f64 {
        let rows = rows(profile, Layer::FalseSharing);
        rows.iter().map(|row| row.events as f64).sum()
    };
    let (one_sum, other_sum) = (disjoint(one), disjoint(other));
    let apart = (one_sum - other_sum).abs();
    let near = apart <= 3.0 + one_sum / 10.0;
    prop_assert!(near || !usual, "{one_sum} and {other_sum}");
    // The time of a page's first touch is known only to within a run.
    let pages = |profile: &Profile| {
        let usage = profile.pages();
        let of = |page: &numaloc_model::pages::Page| {
            let cells = usage.accesses(page).to_vec();
            (page.number, page.first_touch, cells)
        };
        format!("{:?}", usage.pages().iter().map(of).collect::<Vec<_>>())
    };
    prop_assert_eq!(pages(one), pages(other));
    Ok(())
}

/// Blocks, and jobs that run them.
fn runs() -> impl Strategy<Value = (Vec<Code>, Vec<Job>)> {
    prop::collection::vec(block(), 1..6).prop_flat_map(|blocks| {
        let jobs = prop::collection::vec(job(blocks.len()), 1..40);
        (Just(blocks), jobs)
    })
}

fn always(config: Config, cases: u32) {
    let recorder = Recorder::new(config);
    let config = |cases| ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    // The same cases each time: the bound on the error of false sharing holds usually, not always.
    let same = TestRng::deterministic_rng(RngAlgorithm::default());
    let runners = [
        (TestRunner::new_with_rng(config(cases), same), true),
        // Other cases each time, without that bound.
        (TestRunner::new(config(cases / 5)), false),
    ];
    for (mut runner, usual) in runners {
        let checked = runner.run(&runs(), |(blocks, jobs)| {
            check(blocks, jobs, &recorder, usual)
        });
        if let Err(error) = checked {
            panic!("{error}");
        }
    }
}

#[test]
fn a_block_counts_as_its_accesses() {
    always(Config::default(), 300);
}

#[test]
fn in_short_slices_too() {
    let config = Config {
        slice: 100,
        ..Config::default()
    };
    always(config, 100);
}

#[test]
fn with_sampled_lines() {
    let config = Config {
        line_share_ppm: 300_000,
        ..Config::default()
    };
    always(config, 50);
}

#[test]
fn with_sampled_bursts() {
    let config = Config {
        time_share_ppm: 300_000,
        ..Config::default()
    };
    always(config, 50);
}

#[test]
fn with_consecutive_accesses_only() {
    let config = Config {
        consecutive: true,
        ..Config::default()
    };
    always(config, 50);
}

/// Downward by whole lines: the sampled lines are those sampled access by access.
#[test]
fn with_sampled_lines_downward() {
    let form = |base, index| Form {
        base: Some(base),
        index,
    };
    let piece = |form, displacement, size, kind| Piece {
        form,
        displacement,
        size,
        kind,
    };
    let recorder = Recorder::new(Config {
        line_share_ppm: 300_000,
        ..Config::default()
    });
    for stride in [-8i64, -16, 8, 16] {
        let code = vec![
            piece(form(2, Some((3, 3))), 18, 8, Kind::Update),
            piece(form(1, None), 86, 4, Kind::Read),
        ];
        let jobs = vec![Job {
            thread: 1,
            block: 0,
            times: 94,
            registers: [0, 51, 70],
        }];
        let code = vec![(code, Some([0, 4, 0, stride, 0, 0]))];
        check(code, jobs, &recorder, true).unwrap();
    }
}

/// An update of a thread's own bytes decides no event on their line, with or without the block.
#[test]
fn own_bytes_decide_no_event() {
    let piece = |base, displacement, size, kind| Piece {
        form: Form {
            base: Some(base),
            index: None,
        },
        displacement,
        size,
        kind,
    };
    let code = vec![
        piece(1, 25, 1, Kind::Update),
        piece(1, 35, 4, Kind::Read),
        piece(2, 65, 4, Kind::Read),
    ];
    // Two threads write a line alternately, each its own byte, twice at a time.
    let jobs: Vec<Job> = (0..40)
        .map(|at| Job {
            thread: at % 2,
            block: 0,
            times: 2,
            registers: [0, 167 + at as u64 % 2, 0],
        })
        .collect();
    let recorder = Recorder::new(Config::default());
    check(vec![(code, None)], jobs, &recorder, true).unwrap();
}

/// Loops that write and read whole lines, halves of lines, and what other threads have written; worked by hand.
#[test]
fn runs_distinguish_true_from_false_sharing() {
    const LINES: u64 = 16;
    let word = |kind| {
        let form = Form {
            base: Some(0),
            index: None,
        };
        let piece = Piece {
            form,
            displacement: 0,
            size: 8,
            kind,
        };
        let word = Iterated::new((vec![piece], Some([8, 0, 0, 0, 0, 0])));
        assert!(word.block.shape().repeats);
        word
    };
    let blocks = [word(Kind::Write), word(Kind::Read)];
    let (write, read) = (0, 1);
    let job = |thread, block, offset, times| Job {
        thread,
        block,
        times,
        registers: [offset, 0, 0],
    };
    let all = |thread, block| vec![job(thread, block, 0, 8 * LINES)];
    // The second or the first four words of each line.
    let halves = |thread, block, second: bool| -> Vec<Job> {
        let half = |line| job(thread, block, 64 * line + 32 * u64::from(second), 4);
        (0..LINES).map(half).collect()
    };
    // Jobs, events per line, and how many of them are false sharing.
    let cases = [
        // The first event on a line is not classified.
        (vec![all(0, write), all(1, read)], 1, 0),
        (vec![all(0, write), all(1, read)], 1, 0),
        (vec![all(0, write), halves(1, read, true)], 1, 0),
        (vec![halves(0, write, false), halves(1, read, true)], 1, 1),
        (vec![halves(0, write, false), all(1, read)], 1, 0),
        (
            vec![
                halves(0, write, true),
                halves(1, read, false),
                halves(1, read, true),
            ],
            1,
            0,
        ),
        // Written entirely by one thread, then in half by another.
        (
            vec![
                all(0, write),
                halves(1, write, false),
                halves(0, read, true),
            ],
            1,
            1,
        ),
        // No thread reads what another wrote.
        (vec![all(0, write), all(0, read), all(0, write)], 0, 0),
    ];
    let (mut events, mut disjoint, mut jobs) = (0, 0, Vec::new());
    for (done, some, false_ones) in cases {
        jobs.extend(done.into_iter().flatten());
        events += LINES * some;
        disjoint += LINES * false_ones;
    }
    let recorder = Recorder::new(Config::default());
    let sums = |profile: &Profile| {
        let sum = |layer| -> u64 {
            let rows = profile.communication().iter();
            rows.filter(|row| row.layer == layer)
                .map(|row| row.events)
                .sum()
        };
        (sum(Layer::WriteRead), sum(Layer::FalseSharing))
    };
    for record in [by_access, by_block, by_loop] {
        let recorded = recorded(&blocks, &jobs, &recorder, record);
        assert_eq!(sums(&recorded), (events, disjoint));
    }
}

/// A loop that leaves mapped memory must fault there without waiting until all its iterations are recorded.
#[test]
fn a_loop_is_recorded_only_as_far_as_memory_is_mapped() {
    let recorder = Recorder::new(Config::default());
    let engine = recorder.engine();
    let mut thread = engine.first_thread(1);
    let piece = Piece {
        form: Form {
            base: Some(0),
            index: None,
        },
        displacement: 0,
        size: 8,
        kind: Kind::Write,
    };
    let strides = std::array::from_fn(|_| {
        Some(Step {
            constant: 8,
            register: None,
        })
    });
    let endless = Loop::new(&[piece], strides);
    thread.recorded_loop(&endless, &[data(); REGISTERS], u64::MAX, When::Before);
    thread.end(0);
    engine.finish();
    let profile = assembled(recorder.folder());
    let first = PageNumber(data() / 4096);
    let pages = profile.pages().pages();
    assert!(pages.iter().any(|page| page.number == first));
}
