//! Tori with dimension-order routing (Dally and Seitz, Deadlock-Free Message Routing, IEEE Trans. Computers 1987).

use numaloc_topology::links::Links;

use super::{FabricError, MOST_LINKS, by_level};

/// Links in this order: of hosts out and in, then of each place, dimension and direction.
pub(super) struct Torus {
    dims: Vec<usize>,
    hosts: usize,
}

impl Torus {
    pub fn of(
        dims: &[usize],
        hosts: usize,
        links: &Links,
    ) -> Result<(Self, Vec<f64>), FabricError> {
        let places = dims
            .iter()
            .try_fold(1_usize, |all, dim| all.checked_mul(*dim));
        let between = places.and_then(|places| places.checked_mul(2 * dims.len()));
        let count = between
            .and_then(|between| between.checked_add(2 * hosts))
            .filter(|count| *count <= MOST_LINKS)
            .ok_or(FabricError::TooLarge)?;
        let speed = links.figures().host_bytes_per_s;
        let speeds = by_level("bytes_per_s", &links.bytes_per_s, |_| speed, 2)?;
        let parallel = by_level("parallel", &links.parallel, |_| 1.0, 2)?;
        let mut all = vec![speeds[1] * parallel[1]; 2 * hosts];
        all.resize(count, speeds[0] * parallel[0]);
        let torus = Self {
            dims: dims.to_vec(),
            hosts,
        };
        Ok((torus, all))
    }

    /// The coordinate of a place in a dimension, and the distance to the next place in it.
    fn coordinate(&self, place: usize, dim: usize) -> (usize, usize) {
        let stride: usize = self.dims[dim + 1..].iter().product();
        (place / stride % self.dims[dim], stride)
    }

    /// Steps and directions (true: upwards) from one coordinate to another, with the share that goes so.
    fn steps(length: usize, from: usize, to: usize) -> [(usize, bool, f64); 2] {
        let up = (to + length - from) % length;
        let down = (length - up) % length;
        match up.cmp(&down) {
            std::cmp::Ordering::Less => [(up, true, 1.0), (0, false, 0.0)],
            std::cmp::Ordering::Greater => [(down, false, 1.0), (0, true, 0.0)],
            std::cmp::Ordering::Equal => [(up, true, 0.5), (down, false, 0.5)],
        }
    }

    pub fn each_link(&self, from: usize, to: usize, on: &mut impl FnMut(usize, f64)) {
        on(2 * from, 1.0);
        on(2 * to + 1, 1.0);
        let mut place = from;
        for dim in 0..self.dims.len() {
            let length = self.dims[dim];
            let ((at, stride), (goal, _)) = (self.coordinate(place, dim), self.coordinate(to, dim));
            let base = place - at * stride;
            for (steps, is_up, share) in Self::steps(length, at, goal) {
                for step in 0..steps {
                    let reached = match is_up {
                        true => (at + step) % length,
                        false => (at + length - step) % length,
                    };
                    let left = base + reached * stride;
                    let link = (left * self.dims.len() + dim) * 2 + usize::from(!is_up);
                    on(2 * self.hosts + link, share);
                }
            }
            place = base + goal * stride;
        }
    }

    pub fn further_switches(&self, from: usize, to: usize) -> usize {
        let hops = (0..self.dims.len()).map(|dim| {
            let ((a, _), (b, _)) = (self.coordinate(from, dim), self.coordinate(to, dim));
            a.abs_diff(b).min(self.dims[dim] - a.abs_diff(b))
        });
        hops.sum::<usize>().max(1) - 1
    }

    pub fn name(&self, link: usize, hosts: &[String]) -> String {
        let Some(link) = link.checked_sub(2 * self.hosts) else {
            let direction = if link.is_multiple_of(2) { "out" } else { "in" };
            return format!("{}, {direction}", hosts[link / 2]);
        };
        let (place, dim) = (link / 2 / self.dims.len(), link / 2 % self.dims.len());
        let at: Vec<String> = (0..self.dims.len())
            .map(|dim| self.coordinate(place, dim).0.to_string())
            .collect();
        let sign = if link.is_multiple_of(2) { '+' } else { '-' };
        format!("place {} to {sign}{}", at.join(","), dim + 1)
    }
}
