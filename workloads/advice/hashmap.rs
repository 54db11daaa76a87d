//! Words counted in a map of 64 shards with a lock each; every thread draws its words with its own seed.
//! Arguments: THREADS [WORDS].
use std::collections::HashMap;
use std::sync::Mutex;

fn main() {
    let mut words = std::env::args().skip(1);
    let threads: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(4);
    let n: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(15_000);
    let shards: Vec<Mutex<HashMap<u64, u32>>> = (0..64).map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for me in 0..threads {
            let shards = &shards;
            scope.spawn(move || {
                let mut seed = me as u64 + 1;
                for _ in 0..n / threads {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let word = (seed >> 40) % 3000;
                    *shards[word as usize % 64].lock().unwrap().entry(word).or_default() += 1;
                }
            });
        }
    });
    println!("{}", shards.iter().map(|shard| shard.lock().unwrap().len()).sum::<usize>());
}
