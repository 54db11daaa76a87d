//! One way to put a grid of tasks on a torus of hosts.

use super::factors::ordered;

/// How the dimensions of a torus are split over those of a grid.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    grid: Vec<usize>,
    torus: Vec<usize>,
    /// By dimension of the torus and of the grid: how many cuboids of the grid's dimension are along the torus's.
    along: Vec<Vec<usize>>,
    /// The torus's dimensions backwards: which one a dimension of the grid follows first.
    backwards: bool,
}

impl Layout {
    /// Every layout whose cuboids fill the grid.
    pub(super) fn all<'a>(
        grid: &'a [usize],
        torus: &'a [usize],
    ) -> impl Iterator<Item = Self> + 'a {
        let ways: Vec<_> = torus.iter().map(|&l| ordered(l, grid.len())).collect();
        let count: usize = ways.iter().map(Vec::len).product();
        let layout = move |mut number: usize| -> Vec<Vec<usize>> {
            let pick = |ways: &Vec<Vec<usize>>| {
                let way = number % ways.len();
                number /= ways.len();
                ways[way].clone()
            };
            ways.iter().map(pick).collect()
        };
        (0..count).flat_map(move |number| {
            let along = layout(number);
            let hosts = |d: usize| along.iter().map(|way| way[d]).product::<usize>();
            let fills = (0..grid.len()).all(|d| grid[d].is_multiple_of(hosts(d)));
            let folded = (0..grid.len()).any(|d| along.iter().filter(|way| way[d] > 1).count() > 1);
            let of = |backwards| Self {
                grid: grid.to_vec(),
                torus: torus.to_vec(),
                along: along.clone(),
                backwards,
            };
            let orders: &[bool] = match (fills, folded) {
                (false, _) => &[],
                (true, false) => &[false],
                (true, true) => &[false, true],
            };
            orders.iter().copied().map(of).collect::<Vec<_>>()
        })
    }

    /// Sides of the cuboid of one host.
    fn sides(&self) -> Vec<usize> {
        let hosts = |d: usize| self.along.iter().map(|way| way[d]).product::<usize>();
        (0..self.grid.len())
            .map(|d| self.grid[d] / hosts(d))
            .collect()
    }

    /// The host of every task.
    pub(super) fn hosts(&self) -> Vec<usize> {
        let sides = self.sides();
        let share = |d: usize| -> Vec<usize> {
            let places = 0..self.grid[d];
            places.map(|at| self.share(d, at / sides[d])).collect()
        };
        self.sums(&(0..self.grid.len()).map(share).collect::<Vec<_>>())
    }

    /// What the place of a cuboid along one dimension of the grid adds to the number of its host.
    fn share(&self, dimension: usize, mut at: usize) -> usize {
        let mut order: Vec<usize> = (0..self.torus.len()).collect();
        if self.backwards {
            order.reverse();
        }
        let mut below: usize = self.along.iter().map(|way| way[dimension]).product();
        let mut number = 0;
        for t in order {
            below /= self.along[t][dimension];
            let digit = at / below;
            at %= below;
            // Every second time the other way: the next cuboid is a neighbour at the turns as well.
            if digit % 2 == 1 {
                at = below - 1 - at;
            }
            let inner: usize = self.along[t][dimension + 1..].iter().product();
            let stride: usize = self.torus[t + 1..].iter().product();
            number += digit * inner * stride;
        }
        number
    }

    /// The place of every task among the PUs of its host, whose nodes are split over the sides of the cuboid like this;
    /// `None` if they do not divide these.
    pub(super) fn inside(&self, nodes: &[usize]) -> Option<Vec<u32>> {
        let sides = self.sides();
        let mut within = Vec::new();
        for (side, &count) in sides.iter().zip(nodes) {
            if !side.is_multiple_of(count) {
                return None;
            }
            within.push(side / count);
        }
        let width: usize = within.iter().product();
        let share = |d: usize| -> Vec<usize> {
            let node: usize = nodes[d + 1..].iter().product();
            let seat: usize = within[d + 1..].iter().product();
            let place = |at: usize| {
                let at = at % sides[d];
                at / within[d] * node * width + at % within[d] * seat
            };
            (0..self.grid[d]).map(place).collect()
        };
        let shares: Vec<_> = (0..self.grid.len()).map(share).collect();
        let places = self.sums(&shares).into_iter();
        Some(places.map(|place| place as u32).collect())
    }

    /// By task in row-major order: the sum of the shares of its coordinates.
    fn sums(&self, shares: &[Vec<usize>]) -> Vec<usize> {
        let mut sums = vec![0];
        for share in shares {
            let next = sums
                .iter()
                .flat_map(|sum| share.iter().map(move |s| sum + s));
            sums = next.collect();
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_fills_every_host_and_every_pu_once() {
        let (grid, torus) = ([8, 12, 4], [2, 4, 3]);
        let mut layouts = 0;
        for layout in Layout::all(&grid, &torus) {
            layouts += 1;
            let hosts = layout.hosts();
            for nodes in ordered(4, 3) {
                let Some(inside) = layout.inside(&nodes) else {
                    continue;
                };
                let mut places: Vec<usize> = hosts
                    .iter()
                    .zip(&inside)
                    .map(|(host, place)| host * 16 + *place as usize)
                    .collect();
                places.sort_unstable();
                assert!(places.into_iter().eq(0..384), "{layout:?} {nodes:?}");
            }
        }
        assert!(layouts > 20);
    }

    #[test]
    fn a_line_turns_round_at_the_ends_of_the_torus() {
        let snake = Layout::all(&[6], &[2, 3]).next().unwrap();
        assert_eq!(snake.hosts(), [0, 1, 2, 5, 4, 3]);
    }
}
