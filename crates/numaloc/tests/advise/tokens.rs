//! A tokeniser whose threads count tokens and bytes in statistics that all of them share; AFTER: each adds
//! its own at the end.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

const THREADS: usize = 8;
const BYTES: usize = 40_000;

static TOKENS: AtomicU64 = AtomicU64::new(0);
static LETTERS: AtomicU64 = AtomicU64::new(0);

fn tokenise(text: &[u8]) {
    let (mut tokens, mut letters) = (0, 0);
    for token in text.split(|&byte| byte == b' ') {
        let hash = token.iter().fold(5381u64, |hash, &byte| hash.wrapping_mul(33) ^ u64::from(byte));
        if hash != 5381 {
            if cfg!(AFTER) {
                tokens += 1;
                letters += token.len() as u64;
            } else {
                TOKENS.fetch_add(1, Relaxed);
                LETTERS.fetch_add(token.len() as u64, Relaxed);
            }
        }
    }
    if cfg!(AFTER) {
        TOKENS.fetch_add(tokens, Relaxed);
        LETTERS.fetch_add(letters, Relaxed);
    }
}

fn main() {
    let text: Vec<u8> = (0..THREADS * BYTES)
        .map(|at| if at * 2_654_435_761 >> 7 & 7 == 0 { b' ' } else { b'a' + (at % 26) as u8 })
        .collect();
    thread::scope(|scope| {
        for part in text.chunks(BYTES) {
            scope.spawn(|| tokenise(part));
        }
    });
    println!("{} {}", TOKENS.load(Relaxed), LETTERS.load(Relaxed));
}
