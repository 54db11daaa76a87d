//! Recognises a grid of tasks in row-major order by the differences of the numbers of tasks that communicate.

use crate::tasks::TaskGraph;

/// Differences that may be a step along a dimension: those with the largest amounts.
const STRIDES: usize = 12;
/// Mean steps between partners above which tasks are no grid: the corners of a cube are 3 apart.
const MOST_STEPS: f64 = 3.0;

/// Lengths of the grid's dimensions, the last one with consecutive tasks; `None` if partners are no neighbours.
pub(super) fn recognised(graph: &TaskGraph) -> Option<Vec<usize>> {
    let tasks = graph.tasks();
    let mut by_difference = vec![0.0; tasks];
    for (a, b, weight) in graph.pairs() {
        by_difference[b - a] += weight;
    }
    let total: f64 = by_difference.iter().sum();
    let mut strides: Vec<usize> = (2..tasks).filter(|&d| by_difference[d] > 0.0).collect();
    strides.sort_by(|&a, &b| {
        by_difference[b]
            .total_cmp(&by_difference[a])
            .then(a.cmp(&b))
    });
    strides.truncate(STRIDES);
    strides.retain(|&stride| tasks.is_multiple_of(stride));
    strides.sort_unstable();

    // No stride (a chain), one (a plane), or two (a cuboid).
    let mut chains: Vec<Vec<usize>> = vec![vec![tasks]];
    for (at, &outer) in strides.iter().enumerate() {
        chains.push(vec![tasks / outer, outer]);
        for &inner in strides[..at].iter().filter(|&&s| outer.is_multiple_of(s)) {
            chains.push(vec![tasks / outer, outer / inner, inner]);
        }
    }
    let steps = |dims: &[usize]| -> f64 {
        let cells = graph.pairs().map(|(a, b, w)| w * apart(dims, a, b) as f64);
        cells.sum::<f64>() / total
    };
    let valued = chains.into_iter().map(|dims| (steps(&dims), dims));
    let (steps, dims) = valued.min_by(|a, b| a.0.total_cmp(&b.0))?;
    (steps <= MOST_STEPS).then_some(dims)
}

/// Steps between two tasks, the shorter way round in each dimension.
fn apart(dims: &[usize], mut a: usize, mut b: usize) -> usize {
    let along = dims.iter().rev().map(|&length| {
        let steps = (a % length).abs_diff(b % length);
        (a, b) = (a / length, b / length);
        steps.min(length - steps)
    });
    along.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Direction;
    use numaloc_model::CommMatrix;

    /// Neighbours along every dimension; round if `round`.
    fn stencil(dims: [usize; 3], round: bool) -> TaskGraph {
        let [x, y, z] = dims;
        let mut cells = Vec::new();
        for task in 0..x * y * z {
            let at = [task / (y * z), task / z % y, task % z];
            for (d, stride) in [y * z, z, 1].into_iter().enumerate() {
                if at[d] + 1 < dims[d] {
                    cells.push((task, task + stride, 1.0));
                } else if round && dims[d] > 2 {
                    cells.push((task, task - at[d] * stride, 1.0));
                }
            }
        }
        let comm = CommMatrix::from_cells(x * y * z, cells).unwrap();
        TaskGraph::new(&comm, Direction::Auto)
    }

    #[test]
    fn grids_are_known_by_their_strides() {
        for round in [false, true] {
            assert_eq!(recognised(&stencil([4, 6, 8], round)), Some(vec![4, 6, 8]));
            assert_eq!(recognised(&stencil([1, 9, 5], round)), Some(vec![9, 5]));
            assert_eq!(recognised(&stencil([1, 1, 30], round)), Some(vec![30]));
        }
    }

    #[test]
    fn all_to_all_is_no_grid() {
        let cells = (0..64).flat_map(|a| (0..a).map(move |b| (a, b, 1.0)));
        let comm = CommMatrix::from_cells(64, cells).unwrap();
        assert_eq!(recognised(&TaskGraph::new(&comm, Direction::Auto)), None);
        let silent = CommMatrix::empty(8);
        assert_eq!(recognised(&TaskGraph::new(&silent, Direction::Auto)), None);
    }
}
