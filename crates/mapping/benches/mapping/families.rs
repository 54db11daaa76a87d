//! Generated communication patterns, labels always shuffled.

use numaloc_model::CommMatrix;

/// A kind of program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// 5-point stencil on a square, open borders.
    Grid2,
    /// 7-point stencil on a cube, open borders.
    Grid3,
    /// Each task and the next, closed.
    Ring,
    /// Every pair communicates, amounts 90 to 110.
    AllToAll,
    /// Stages of 8 tasks, each task feeds two of the next stage; a chain of stages.
    Pipeline,
    /// 6 random partners, weights over two decades.
    Random,
    /// Cliques of 8 with a weak ring between them.
    Cliques,
    /// Blocks in blocks: weights fall by 4 with every level of a binary tree, sparse at the top.
    Nested,
    /// Half stencil, quarter transpose, quarter butterfly: rows of a spectral or multigrid code.
    Mixture,
    /// BT and SP of the NAS benchmarks: multi-partitioning on a square of processes. Faces of cells go to the
    /// neighbours in both directions and along the diagonal, all closed.
    NpbBt,
    /// LU: pencils on a rectangle, a wavefront from corner to corner and back: four neighbours,
    /// open borders.
    NpbLu,
    /// CG: sums over each row of processes by recursive doubling, and an exchange with the transposed process.
    NpbCg,
    /// FT with more processes than planes: transposes within each row and within each column of processes.
    NpbFt,
    /// MG: faces between neighbours in a closed cube of processes; on the coarser grids only every second, fourth, ...
    /// process remains.
    NpbMg,
    /// IS: keys go from every process to every other, in proportion to the buckets' sizes.
    NpbIs,
}

impl Family {
    /// Patterns of the NAS parallel benchmarks (MPI), as their sources and reports describe them.
    pub const NPB: [Self; 6] = [
        Self::NpbBt,
        Self::NpbLu,
        Self::NpbCg,
        Self::NpbFt,
        Self::NpbMg,
        Self::NpbIs,
    ];

    pub const ALL: [Self; 9] = [
        Self::Grid2,
        Self::Grid3,
        Self::Ring,
        Self::AllToAll,
        Self::Pipeline,
        Self::Random,
        Self::Cliques,
        Self::Nested,
        Self::Mixture,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Grid2 => "grid2",
            Self::Grid3 => "grid3",
            Self::Ring => "ring",
            Self::AllToAll => "all-to-all",
            Self::Pipeline => "pipeline",
            Self::Random => "random",
            Self::Cliques => "cliques",
            Self::Nested => "nested",
            Self::Mixture => "mixture",
            Self::NpbBt => "npb-bt",
            Self::NpbLu => "npb-lu",
            Self::NpbCg => "npb-cg",
            Self::NpbFt => "npb-ft",
            Self::NpbMg => "npb-mg",
            Self::NpbIs => "npb-is",
        }
    }

    /// Whether the number of pairs grows with N squared.
    pub fn is_dense(self) -> bool {
        matches!(self, Self::AllToAll | Self::NpbIs)
    }

    /// `n` tasks; same seed, same matrix.
    pub fn generate(self, n: usize, seed: u64) -> CommMatrix {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut cells = Vec::new();
        let mut add = |a: usize, b: usize, w: f64| {
            if a != b {
                cells.push((a, b, w));
                cells.push((b, a, w));
            }
        };
        match self {
            Self::Grid2 => {
                for (a, b) in neighbours2(n) {
                    add(a, b, 100.0);
                }
            }
            Self::Grid3 => {
                let [x, y, z] = sides3(n);
                for t in 0..n {
                    let (i, j, k) = (t / (y * z), t / z % y, t % z);
                    if i + 1 < x {
                        add(t, t + y * z, 100.0);
                    }
                    if j + 1 < y {
                        add(t, t + z, 100.0);
                    }
                    if k + 1 < z {
                        add(t, t + 1, 100.0);
                    }
                }
            }
            Self::Ring => (0..n).for_each(|t| add(t, (t + 1) % n, 100.0)),
            Self::AllToAll => {
                for a in 0..n {
                    for b in a + 1..n {
                        add(a, b, f64::from(rng.u32(90..=110)));
                    }
                }
            }
            Self::Pipeline => {
                for t in 0..n.saturating_sub(8) {
                    let next = (t / 8 + 1) * 8;
                    add(t, next + t % 8, 100.0);
                    add(t, (next + rng.usize(0..8)).min(n - 1), 30.0);
                }
            }
            Self::Random => {
                for a in 0..n {
                    for _ in 0..3 {
                        let w = 10f64.powf(2.0 * rng.f64()).round();
                        add(a, rng.usize(0..n), w);
                    }
                }
            }
            Self::Cliques => {
                for t in 0..n {
                    for other in t + 1..((t / 8 + 1) * 8).min(n) {
                        add(t, other, 100.0);
                    }
                    if t % 8 == 0 {
                        add(t, (t + 8) % n, 20.0);
                    }
                }
            }
            Self::Nested => {
                let mut weight = 1024.0;
                let mut block = 2;
                while block <= n.next_power_of_two() {
                    for t in 0..n {
                        // One partner in the other half of the block.
                        let half = block / 2;
                        let base = t / block * block + if t % block < half { half } else { 0 };
                        let partner = base + rng.usize(0..half);
                        if partner < n {
                            add(t, partner, f64::max(weight, 1.0));
                        }
                    }
                    weight /= 4.0;
                    block *= 2;
                }
            }
            Self::Mixture => {
                for (a, b) in neighbours2(n) {
                    add(a, b, 100.0);
                }
                let [x, y] = sides2(n);
                for t in 0..n {
                    let (i, j) = (t / y, t % y);
                    // Transpose where the grid is square, butterfly partners near and far.
                    if i < y && j < x && i * y + j < j * y + i && j * y + i < n {
                        add(t, j * y + i, 50.0);
                    }
                    for bit in [1, 2, 4] {
                        if t < t ^ bit && t ^ bit < n {
                            add(t, t ^ bit, 25.0);
                        }
                    }
                }
            }
            Self::NpbBt | Self::NpbLu | Self::NpbCg | Self::NpbFt | Self::NpbMg | Self::NpbIs => {
                crate::npb::generate(self, n, &mut rng, &mut add);
            }
        }
        let mut order: Vec<usize> = (0..n).collect();
        rng.shuffle(&mut order);
        CommMatrix::from_cells(
            n,
            cells.into_iter().map(|(a, b, w)| (order[a], order[b], w)),
        )
        .expect("generated cells are valid")
    }
}

/// Pairs of neighbours in a grid of `n` with two sides.
pub fn neighbours2(n: usize) -> impl Iterator<Item = (usize, usize)> {
    let [x, y] = sides2(n);
    (0..n).flat_map(move |t| {
        let below = (t / y + 1 < x).then_some((t, t + y));
        let beside = (t % y + 1 < y).then_some((t, t + 1));
        below.into_iter().chain(beside)
    })
}

/// Two factors of `n`, as equal as possible.
pub fn sides2(n: usize) -> [usize; 2] {
    let x = (1..=n)
        .take_while(|x| x * x <= n)
        .filter(|&x| n.is_multiple_of(x))
        .last()
        .unwrap_or(1);
    [x, n / x]
}

/// Three factors of `n`, as equal as possible.
pub fn sides3(n: usize) -> [usize; 3] {
    let x = (1..=n)
        .take_while(|x| x * x * x <= n)
        .filter(|&x| n.is_multiple_of(x))
        .last()
        .unwrap_or(1);
    let [y, z] = sides2(n / x);
    [x, y, z]
}
