//! Sample sort: threads scatter their keys into buckets, one for each thread, which then sort a bucket each.
//! Arguments: THREADS [KEYS].
use std::sync::{Barrier, Mutex};

fn main() {
    let mut words = std::env::args().skip(1);
    let threads: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(4);
    let n: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(20_000);
    let buckets: Vec<Mutex<Vec<u32>>> = (0..threads).map(|_| Mutex::default()).collect();
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        for me in 0..threads {
            let (buckets, barrier) = (&buckets, &barrier);
            scope.spawn(move || {
                let mut own = vec![Vec::new(); threads];
                let mut seed = me as u32 + 1;
                for _ in 0..n / threads {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    own[(u64::from(seed) * threads as u64 >> 32) as usize].push(seed);
                }
                for (bucket, keys) in buckets.iter().zip(&own) {
                    if !keys.is_empty() {
                        bucket.lock().unwrap().extend(keys);
                    }
                }
                barrier.wait();
                buckets[me].lock().unwrap().sort_unstable();
            });
        }
    });
    println!("{}", buckets.iter().map(|bucket| bucket.lock().unwrap().len()).sum::<usize>());
}
