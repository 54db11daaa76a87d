//! Counts keys by their value: threads read blocks of one vector that the first thread made, count into tables of their
//! own, and a channel brings the tables to the first thread, which adds them.

use std::sync::mpsc::channel;
use std::thread;

const KEYS: usize = 1 << 20;
const VALUES: usize = 1 << 14;
const THREADS: usize = 8;
const ROUNDS: usize = 3;

fn main() {
    let mut seed = 1_u64;
    let keys: Vec<u32> = (0..KEYS)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as u32 % VALUES as u32
        })
        .collect();
    let (send, receive) = channel::<Vec<u32>>();
    thread::scope(|scope| {
        for block in keys.chunks(KEYS / THREADS) {
            let send = send.clone();
            scope.spawn(move || {
                let mut table = vec![0_u32; VALUES];
                for _ in 0..ROUNDS {
                    for &key in block {
                        table[key as usize] += 1;
                    }
                }
                send.send(table).expect("the first thread receives");
            });
        }
    });
    drop(send);
    let mut sum = vec![0_u64; VALUES];
    for table in receive {
        for (sum, count) in sum.iter_mut().zip(table) {
            *sum += u64::from(count);
        }
    }
    println!("{}", sum.iter().sum::<u64>());
}
