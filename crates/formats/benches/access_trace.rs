//! Measures how many records of an access trace per second two program threads and the recorder handle, and how fast
//! they are read back.
//!
//! `make bench-trace-writer`; arguments: a folder for the file (default: the system's for temporary files), then part
//! of a case's name to select cases. Each case runs the accesses of two threads through the private-cache filter and
//! sends their blocks over the socket; the recorder's thread compresses and writes them. The file is then read back,
//! thread by thread and in the order of clocks. Rates are per second of wall time and, because a busy machine provides
//! less than two cores, per two seconds of CPU time, which is the rate of two free cores.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use numaloc_formats::access_trace::{AccessTrace, Limit, Order, Writer};
use numaloc_model::ThreadIdx;
use numaloc_trace::access_trace::receive::{Receiver, Sink};
use numaloc_trace::access_trace::stream::Stream;
use numaloc_trace::access_trace::{Filter, Outlet};

const ROUNDS: usize = 3;
const THREADS: u32 = 2;
/// Accesses of each thread in a round.
const ACCESSES: u64 = 8_000_000;

struct ToFile(Arc<Writer>);

impl Sink for ToFile {
    fn take(&self, message: &[u8]) -> bool {
        self.0.append(message)
    }
}

fn cpu_seconds() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the structure it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// Millions per second of wall time, and with two full cores.
struct Rate {
    wall: f64,
    two_cores: f64,
}

fn rate(amount: u64, work: impl FnOnce()) -> Rate {
    let (began, cpu) = (Instant::now(), cpu_seconds());
    work();
    let millions = amount as f64 / 1e6;
    Rate {
        wall: millions / began.elapsed().as_secs_f64(),
        two_cores: millions / ((cpu_seconds() - cpu) / 2.0),
    }
}

/// Median and spread.
fn shown(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let at = |share: usize| values[(values.len() - 1) * share / 2];
    format!("{:.1} ({:.1} to {:.1})", at(1), at(0), at(2))
}

/// Address of an access, and whether it is a store.
type Pattern = fn(u64) -> (u64, bool);

const CASES: [(&str, Pattern); 4] = [
    // One record per access.
    ("read lines in order", |at| (at * 64 % (256 << 20), false)),
    // Two records per access: fetched and, later, written back.
    ("write lines in order", |at| (at * 64 % (256 << 20), true)),
    // a[i] = b[i] + c[i]: two reads and a write, eight of each to a line.
    ("three arrays, 8-byte elements", |at| {
        let (array, place) = (at % 3, at / 3 * 8 % (64 << 20));
        ((array << 28) + place, array == 2)
    }),
    // Differences between lines do not repeat.
    ("read lines at random, 1 GiB", |at| {
        // The final mixing steps of splitmix64 scatter consecutive numbers.
        let mixed = (at ^ at >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 34 & !7, false)
    }),
];

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|a| !a.starts_with('-'));
    let parent = arguments
        .next()
        .unwrap_or_else(|| std::env::temp_dir().display().to_string());
    let wanted = arguments.next().unwrap_or_default();
    println!(
        "| accesses of each of {THREADS} threads | records an access | bytes a record | written, M records/s | at two cores | \
         M accesses/s at two cores | read, M records/s of CPU time | in order |\n|---|---|---|---|---|---|---|---|"
    );
    for (name, pattern) in CASES {
        if !name.contains(&wanted) {
            continue;
        }
        let mut columns: [Vec<f64>; 5] = Default::default();
        let (mut density, mut size) = (0.0, 0.0);
        for _ in 0..ROUNDS {
            let folder = tempfile::tempdir_in(&parent).expect("a folder");
            let path = folder.path().join("0.trace");
            let mut trace = None;
            let written = rate(1_000_000, || write(folder.path(), &path, pattern));
            let read = rate(1_000_000, || {
                let opened = AccessTrace::open(&path, 0).expect("it was just written");
                for stream in 0..opened.streams.len() {
                    let events = opened.events(stream);
                    std::hint::black_box(
                        events.map(|event| event.expect("whole").work).sum::<u64>(),
                    );
                }
                trace = Some(opened);
            });
            let traces = [trace.expect("opened")];
            let ordered = rate(1_000_000, || {
                let thread_of = |path: &str| path.parse().ok().map(ThreadIdx);
                let order = Order::new(&traces, thread_of).expect("whole");
                std::hint::black_box(order.map(|event| event.expect("whole").1.work).sum::<u64>());
            });
            let tally = traces[0].tally();
            assert_eq!(
                tally.accesses,
                u64::from(THREADS) * ACCESSES,
                "all is there"
            );
            assert!(traces[0].complete);
            density = tally.records as f64 / tally.accesses as f64;
            size = tally.bytes as f64 / tally.records as f64;
            let records = tally.records as f64 / 1e6;
            for (column, value) in columns.iter_mut().zip([
                written.wall * records,
                written.two_cores * records,
                written.two_cores * records / density,
                read.two_cores / 2.0 * records,
                ordered.two_cores / 2.0 * records,
            ]) {
                column.push(value);
            }
        }
        let columns: Vec<String> = columns.into_iter().map(shown).collect();
        println!(
            "| {name} | {density:.2} | {size:.3} | {} |",
            columns.join(" | ")
        );
    }
}

/// Two threads make their accesses, the recorder writes them to `path`.
fn write(folder: &Path, path: &Path, pattern: Pattern) {
    let writer = Arc::new(Writer::create(path, Limit::new(u64::MAX)).expect("a new file"));
    let sink = Arc::clone(&writer);
    let receiver = Receiver::listen(folder, 1, move || ToFile(Arc::clone(&sink))).expect("listens");
    let outlet = Outlet::open(Filter::default(), folder, 6, (0, "0")).expect("connects");
    // Its directory is a table that is never unmapped, and threads want it for as long.
    let outlet: &'static Outlet = Box::leak(Box::new(outlet));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut stream = Stream::new(outlet, thread, thread + 1, &thread.to_string(), 0)
                    .expect("the recorder is there");
                let base = 0x10_0000_0000 + (u64::from(thread) << 34);
                for at in 0..ACCESSES {
                    let (address, store) = pattern(std::hint::black_box(at));
                    if store {
                        stream.access::<true>(base + address, 8);
                    } else {
                        stream.access::<false>(base + address, 8);
                    }
                }
                stream.flush();
            });
        }
    });
    outlet.finish();
    outlet.close();
    receiver.finish();
    assert!(writer.failure().is_none(), "{:?}", writer.failure());
}
