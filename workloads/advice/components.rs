//! Connected components by labels that spread along edges, with atomic minima, until none changes.
//! Arguments: THREADS [VERTICES].
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

fn main() {
    let mut words = std::env::args().skip(1);
    let threads: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(4);
    let n: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(8_000);
    let edges: Vec<[u32; 4]> = (0..n as u64)
        .map(|v| [1_u64, 7, 31, 1009].map(|k| ((v * 2_654_435_761 + k * 40_503) % n as u64) as u32))
        .collect();
    let labels: Vec<AtomicU32> = (0..n as u32).map(AtomicU32::new).collect();
    let block = n.div_ceil(threads);
    for _ in 0..4 {
        let changed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (me, part) in edges.chunks(block).enumerate() {
                let (labels, changed) = (&labels, &changed);
                scope.spawn(move || {
                    for (at, targets) in part.iter().enumerate() {
                        let own = &labels[me * block + at];
                        for &to in targets {
                            let least = own.load(Relaxed).min(labels[to as usize].load(Relaxed));
                            if own.fetch_min(least, Relaxed) != labels[to as usize].fetch_min(least, Relaxed) {
                                changed.store(true, Relaxed);
                            }
                        }
                    }
                });
            }
        });
        if !changed.into_inner() {
            break;
        }
    }
    println!("{}", labels.iter().map(|label| u64::from(label.load(Relaxed))).sum::<u64>());
}
