//! Product of two matrices by scoped threads, a block of rows each; main fills the inputs. Arguments: THREADS [SIDE].
fn main() {
    let mut words = std::env::args().skip(1);
    let threads: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(4);
    let n: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(96);
    let a: Vec<f64> = (0..n * n).map(|i| (i % 7) as f64).collect();
    let b: Vec<f64> = (0..n * n).map(|i| (i % 5) as f64).collect();
    let mut c = vec![0.0; n * n];
    let rows = n.div_ceil(threads);
    std::thread::scope(|scope| {
        for (block, part) in c.chunks_mut(rows * n).enumerate() {
            let (a, b) = (&a, &b);
            scope.spawn(move || {
                for (row, out) in part.chunks_mut(n).enumerate() {
                    for k in 0..n {
                        let factor = a[(block * rows + row) * n + k];
                        for (sum, value) in out.iter_mut().zip(&b[k * n..]) {
                            *sum += factor * value;
                        }
                    }
                }
            });
        }
    });
    println!("{}", c[n + 1]);
}
