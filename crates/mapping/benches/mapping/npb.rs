//! Patterns of the NAS parallel benchmarks. Weights are faces of cells, segments of vectors or keys; messages of a few
//! numbers (norms, dot products) are left out.

use crate::families::{Family, neighbours2, sides2, sides3};

/// Points along the side of a process's part of MG's finest grid.
const MG_SIDE: usize = 8;

/// Adds the pairs of `family` for `n` processes.
pub fn generate(
    family: Family,
    n: usize,
    rng: &mut fastrand::Rng,
    add: &mut impl FnMut(usize, usize, f64),
) {
    match family {
        Family::NpbBt => {
            let [x, y] = sides2(n);
            for t in 0..n {
                let (i, j) = (t / y, t % y);
                let (below, beside) = ((i + 1) % x, (j + 1) % y);
                for other in [below * y + j, i * y + beside, below * y + beside] {
                    add(t, other, 100.0);
                }
            }
        }
        Family::NpbLu => neighbours2(n).for_each(|(a, b)| add(a, b, 100.0)),
        Family::NpbCg => {
            let [x, y] = sides2(n);
            for t in 0..n {
                let (row, column) = (t / y, t % y);
                let bits = (0..usize::BITS).map(|bit| 1 << bit);
                for bit in bits.take_while(|bit| bit < &y) {
                    if column < column ^ bit && column ^ bit < y {
                        add(t, row * y + (column ^ bit), 100.0);
                    }
                }
                // With twice as many columns as rows, a pair of columns is one unit.
                let transposed = column / (y / x) * y + row * (y / x) + column % (y / x);
                if t < transposed {
                    add(t, transposed, 100.0);
                }
            }
        }
        Family::NpbFt => {
            let [_, y] = sides2(n);
            for a in 0..n {
                (a + 1..(a / y + 1) * y).for_each(|b| add(a, b, 100.0));
                (a + y..n).step_by(y).for_each(|b| add(a, b, 100.0));
            }
        }
        Family::NpbMg => {
            let sides = sides3(n);
            // Faces of all grids of which every process has a part; then one point per grid.
            let mut face = 0;
            let mut side = MG_SIDE;
            while side > 0 {
                face += side * side;
                side /= 2;
            }
            let mut stride = 1;
            while sides.iter().any(|&side| stride < side) {
                faces(sides, stride, face as f64, add);
                (stride, face) = (stride * 2, 1);
            }
        }
        _ => {
            for a in 0..n {
                for b in a + 1..n {
                    add(a, b, f64::from(rng.u32(50..=150)));
                }
            }
        }
    }
}

/// Pairs of each process whose position is a multiple of `stride` in all directions, and the next such process in each.
fn faces(sides: [usize; 3], stride: usize, weight: f64, add: &mut impl FnMut(usize, usize, f64)) {
    let [x, y, z] = sides;
    let number = |[i, j, k]: [usize; 3]| (i * y + j) * z + k;
    for t in 0..x * y * z {
        let place = [t / (y * z), t / z % y, t % z];
        if place.iter().any(|at| !at.is_multiple_of(stride)) {
            continue;
        }
        for direction in 0..3 {
            let mut next = place;
            next[direction] = (place[direction] + stride) % sides[direction];
            // Two processes in a closed row are one pair.
            let twice = sides[direction] == 2 * stride && place[direction] > 0;
            if stride < sides[direction] && !twice {
                add(t, number(next), weight);
            }
        }
    }
}
