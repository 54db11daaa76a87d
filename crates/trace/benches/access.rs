//! The cost of one access to the thread that makes it: CPU nanoseconds, median and spread of several rounds.
//!
//! Run with `cargo bench -p numaloc-trace`, or `make bench-access`. Each case runs one thread; `make bench-trace`
//! shows what two threads cost each other.
//!
//! `make bench-instructions` counts instructions instead, which do not depend on what else the machine does: it runs
//! the program under valgrind with `--only CASE --accesses N --rounds 1` for two values of N and takes the difference.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use numaloc_trace::cross_process::{Backing, Board};
use numaloc_trace::{Config, Engine, Layer, ThreadTracer};

const MEMORY: u64 = 64 << 20;
const BASE: u64 = 0x10_0000_0000;

fn cpu_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the structure it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What is measured, from the command line.
struct Bench {
    /// Only the case of this name; empty for all.
    only: String,
    /// Accesses in a round.
    accesses: u64,
    /// Measured rounds; two more come before them if there are several.
    rounds: usize,
}

impl Bench {
    fn from_arguments() -> Self {
        let mut bench = Self {
            only: String::new(),
            accesses: 4_000_000,
            rounds: 9,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().expect("an option has a value");
            match &*argument {
                "--only" => bench.only = value(),
                "--accesses" => bench.accesses = value().parse().expect("a number of accesses"),
                "--rounds" => bench.rounds = value().parse().expect("a number of rounds"),
                // Added by cargo.
                _ => {}
            }
        }
        bench
    }

    fn measure(
        &self,
        name: &str,
        tracer: &mut ThreadTracer,
        mut work: impl FnMut(&mut ThreadTracer, u64),
    ) {
        if !self.only.is_empty() && name != self.only {
            return;
        }
        let warm_up = if self.rounds > 1 { 2 } else { 0 };
        let mut costs: Vec<f64> = (0..self.rounds + warm_up)
            .map(|_| {
                let began = cpu_ns();
                for at in 0..self.accesses {
                    work(tracer, std::hint::black_box(at));
                }
                (cpu_ns() - began) as f64 / self.accesses as f64
            })
            .skip(warm_up)
            .collect();
        costs.sort_by(f64::total_cmp);
        println!(
            "| {name} | {:.2} | {:.2} to {:.2} |",
            costs[costs.len() / 2],
            costs[0],
            costs[costs.len() - 1]
        );
    }
}

fn started(folder: &std::path::Path, config: Config) -> (&'static Engine, Box<ThreadTracer>) {
    let config = Config {
        folder: folder.to_owned(),
        ..config
    };
    let engine: &'static Engine = Box::leak(Box::new(Engine::start(config, "bench").unwrap()));
    (engine, engine.first_thread(1))
}

/// A pseudo-random address: multiples of an odd number modulo a power of two.
fn random(at: u64) -> u64 {
    BASE + (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % (MEMORY / 8) * 8
}

/// The minimum of any exact tracer: the line's word loaded, compared and stored, and a count for the page.
fn least(bench: &Bench, name: &str, tracer: &mut ThreadTracer, counts_pages: bool) {
    if !bench.only.is_empty() && name != bench.only {
        return;
    }
    let table =
        |size: u64| -> Vec<AtomicU64> { (0..MEMORY / size).map(|_| AtomicU64::new(1)).collect() };
    let (lines, pages) = (table(64), table(4096));
    let mut changed = 0;
    bench.measure(name, tracer, |_, at| {
        let offset = at * 8 % MEMORY;
        let line = &lines[(offset / 64) as usize];
        changed += u64::from(line.load(Relaxed) != 1);
        line.store(1, Relaxed);
        if counts_pages {
            let page = &pages[(offset / 4096) as usize];
            page.store(page.load(Relaxed) + 1, Relaxed);
        }
    });
    assert_eq!(changed, 0);
}

fn main() {
    let bench = Bench::from_arguments();
    let folders: Vec<_> = (0..7).map(|_| tempfile::tempdir().unwrap()).collect();
    println!("| access | ns, median | spread |\n|---|---|---|");
    let (engine, mut one) = started(folders[0].path(), Config::default());
    least(
        &bench,
        "the least: a line's word loaded, compared and stored, 64 MiB in order",
        &mut one,
        false,
    );
    least(
        &bench,
        "the least: the same and a page's count",
        &mut one,
        true,
    );
    bench.measure("read, same line", &mut one, |t, at| {
        t.access::<false, false>(BASE + at % 8 * 8, 8);
    });
    bench.measure("write, same line", &mut one, |t, at| {
        t.access::<true, false>(BASE + at % 8 * 8, 8);
    });
    bench.measure("read, same page, line after line", &mut one, |t, at| {
        t.access::<false, false>(BASE + at % 64 * 64, 8);
    });
    bench.measure("read, 64 MiB in order", &mut one, |t, at| {
        t.access::<false, false>(BASE + at * 8 % MEMORY, 8);
    });
    bench.measure("read, 64 MiB at random", &mut one, |t, at| {
        t.access::<false, false>(random(at), 8);
    });
    bench.measure("write, 64 MiB at random", &mut one, |t, at| {
        t.access::<true, false>(random(at), 8);
    });
    // Lines that change hands: each write and each read is slow, and every read is an event.
    let mut other = engine.attach(one.pending_thread(0), 2);
    bench.measure(
        "write and another thread's read of 4 KiB (two accesses)",
        &mut one,
        |t, at| {
            t.access::<true, false>(BASE + MEMORY + at % 64 * 64, 8);
            other.access::<false, false>(BASE + MEMORY + at % 64 * 64, 8);
        },
    );
    bench.measure(
        "read again of a line that was communicated",
        &mut other,
        |t, at| {
            t.access::<false, false>(BASE + MEMORY + at % 64 * 64, 8);
        },
    );
    // Memory shared by processes.
    let board = Board::create().unwrap();
    let config = Config {
        cross_process: Some(board.place()),
        ..Config::default()
    };
    let (engine, mut one) = started(folders[3].path(), config);
    let file = tempfile::tempfile().unwrap();
    let backing = Backing::of_file(std::os::fd::AsRawFd::as_raw_fd(&file), BASE);
    engine.shared(backing, BASE, MEMORY, 0, true);
    bench.measure(
        "shared by processes: read, 64 MiB in order",
        &mut one,
        |t, at| {
            t.access::<false, false>(BASE + at * 8 % MEMORY, 8);
        },
    );
    bench.measure(
        "shared by processes: write, 64 MiB in order",
        &mut one,
        |t, at| {
            t.access::<true, false>(BASE + at * 8 % MEMORY, 8);
        },
    );
    let mut other = engine.attach(one.pending_thread(0), 2);
    bench.measure(
        "shared by processes: write and another thread's read of 4 KiB (two accesses)",
        &mut one,
        |t, at| {
            t.access::<true, false>(BASE + at % 64 * 64, 8);
            other.access::<false, false>(BASE + at % 64 * 64, 8);
        },
    );
    // Layers for comparison, which need every access.
    for (name, config, folder) in [
        (
            "strictly consecutive",
            Config {
                consecutive: true,
                ..Config::default()
            },
            &folders[4],
        ),
        (
            "layer last_two too",
            Config {
                layers: vec![Layer::WriteRead, Layer::LastTwo],
                ..Config::default()
            },
            &folders[5],
        ),
        (
            "layer shared_line too",
            Config {
                layers: vec![Layer::WriteRead, Layer::SharedLine],
                ..Config::default()
            },
            &folders[6],
        ),
    ] {
        let (_, mut one) = started(folder.path(), config);
        bench.measure(
            &format!("read, 64 MiB in order, {name}"),
            &mut one,
            |t, at| {
                t.access::<false, false>(BASE + at * 8 % MEMORY, 8);
            },
        );
        bench.measure(
            &format!("write, 64 MiB in order, {name}"),
            &mut one,
            |t, at| {
                t.access::<true, false>(BASE + at * 8 % MEMORY, 8);
            },
        );
    }
    for (name, time_share_ppm, line_share_ppm, folder) in [
        ("5% of the lines", 1_000_000, 50_000, &folders[1]),
        ("5% in bursts", 50_000, 1_000_000, &folders[2]),
    ] {
        let config = Config {
            time_share_ppm,
            line_share_ppm,
            ..Config::default()
        };
        let (_, mut sampled) = started(folder.path(), config);
        bench.measure(
            &format!("read, 64 MiB in order, {name}"),
            &mut sampled,
            |t, at| {
                t.access::<false, false>(BASE + at * 8 % MEMORY, 8);
            },
        );
        bench.measure(
            &format!("read, 64 MiB at random, {name}"),
            &mut sampled,
            |t, at| {
                t.access::<false, false>(random(at), 8);
            },
        );
    }
}
