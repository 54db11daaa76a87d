//! Prefix sums in two passes: each thread sums its block, then adds the sum of the blocks before it. Threads fill
//! their blocks. Arguments: THREADS [NUMBERS].
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn main() {
    let mut words = std::env::args().skip(1);
    let threads: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(4);
    let n: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(150_000);
    let mut numbers = vec![0_u64; n];
    let sums: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    let block = n.div_ceil(threads);
    let parts = numbers.chunks_mut(block);
    let barrier = Barrier::new(parts.len());
    std::thread::scope(|scope| {
        for (me, part) in parts.enumerate() {
            let (sums, barrier) = (&sums, &barrier);
            scope.spawn(move || {
                let mut sum = 0;
                for (at, number) in part.iter_mut().enumerate() {
                    sum += (me + at) as u64 % 10;
                    *number = sum;
                }
                sums[me].store(sum, Relaxed);
                barrier.wait();
                let before: u64 = sums[..me].iter().map(|sum| sum.load(Relaxed)).sum();
                part.iter_mut().for_each(|number| *number += before);
            });
        }
    });
    println!("{}", numbers[n - 1]);
}
