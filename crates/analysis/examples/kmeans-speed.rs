//! Measures the time of the optimal clustering of N timestamps: `make bench-kmeans`.

#![forbid(unsafe_code)]

use numaloc_analysis::kmeans;
use std::time::Instant;

fn main() {
    let k_max = numaloc_analysis::concurrency::K_MAX;
    println!("distinct timestamps, {k_max} cluster counts: seconds");
    for n in [10_000usize, 100_000, 1_000_000] {
        let points: Vec<f64> = (0..n).map(|at| at as f64 * 10.0).collect();
        // A reproducible rough weight: bursts on a slow wave.
        let weights: Vec<f64> = (0..n)
            .map(|at| 1.0 + (at * 2_654_435_761 % 97) as f64 + 50.0 * ((at * 20 / n) % 2) as f64)
            .collect();
        let seconds: Vec<String> = (0..3)
            .map(|_| {
                let start = Instant::now();
                std::hint::black_box(kmeans::cluster(&points, &weights, k_max));
                format!("{:.3}", start.elapsed().as_secs_f64())
            })
            .collect();
        println!("{n:>9}: {}", seconds.join(" "));
    }
}
