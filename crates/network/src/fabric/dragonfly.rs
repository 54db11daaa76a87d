//! Dragonflies: groups of routers, every router linked to every other of its group, every group to every other
//! (Kim, Dally, Scott, Abts: Technology-Driven, Highly-Scalable Dragonfly Topology, ISCA 2008).

use numaloc_topology::links::{Links, Routing};

use super::{FabricError, MOST_LINKS, by_level};

/// Links in this order: of hosts out and in, within groups, between groups.
pub(super) struct Dragonfly {
    hosts: usize,
    /// Groups that have hosts, and routers in each.
    groups: usize,
    routers: usize,
    /// Hosts per router.
    below: usize,
    routing: Routing,
}

impl Dragonfly {
    pub fn of(
        [_, routers, below]: [usize; 3],
        hosts: usize,
        routing: Routing,
        links: &Links,
    ) -> Result<(Self, Vec<f64>), FabricError> {
        // Groups without a host carry nothing: detours go by way of groups with hosts.
        let in_group = routers.saturating_mul(below).max(1);
        let groups = hosts.div_ceil(in_group);
        let local = routers
            .checked_mul(routers)
            .and_then(|pairs| pairs.checked_mul(groups));
        let count = local
            .and_then(|local| local.checked_add(groups.checked_mul(groups)?))
            .and_then(|count| count.checked_add(2 * hosts))
            .filter(|count| *count <= MOST_LINKS)
            .ok_or(FabricError::TooLarge)?;
        let speed = links.figures().host_bytes_per_s;
        let speeds = by_level("bytes_per_s", &links.bytes_per_s, |_| speed, 3)?;
        let parallel = by_level("parallel", &links.parallel, |_| 1.0, 3)?;
        let [global, within, of_host] = [0, 1, 2].map(|level| speeds[level] * parallel[level]);
        let mut all = vec![of_host; 2 * hosts];
        all.resize(2 * hosts + groups * routers * routers, within);
        all.resize(count, global);
        let dragonfly = Self {
            hosts,
            groups,
            routers,
            below,
            routing,
        };
        Ok((dragonfly, all))
    }

    pub fn is_adaptive(&self) -> bool {
        self.routing == Routing::Adaptive && self.groups > 2
    }

    fn router(&self, host: usize) -> (usize, usize) {
        let router = host / self.below;
        (router / self.routers, router % self.routers)
    }

    fn within(&self, group: usize, from: usize, to: usize) -> usize {
        2 * self.hosts + (group * self.routers + from) * self.routers + to
    }

    fn between(&self, from: usize, to: usize) -> usize {
        2 * self.hosts + self.groups * self.routers * self.routers + from * self.groups + to
    }

    pub fn each_link(&self, from: usize, to: usize, direct: f64, on: &mut impl FnMut(usize, f64)) {
        on(2 * from, 1.0);
        on(2 * to + 1, 1.0);
        let ((from_group, from), (to_group, to)) = (self.router(from), self.router(to));
        if from_group == to_group {
            if from != to {
                on(self.within(from_group, from, to), 1.0);
            }
            return;
        }
        // The ends of links between groups are spread over the routers.
        let share = 1.0 / self.routers as f64;
        for router in 0..self.routers {
            if router != from {
                on(self.within(from_group, from, router), share);
            }
            if router != to {
                on(self.within(to_group, router, to), share);
            }
        }
        if direct > 0.0 {
            on(self.between(from_group, to_group), direct);
        }
        let others = self.groups - 2;
        if direct >= 1.0 || others == 0 {
            return;
        }
        let detour = (1.0 - direct) / others as f64;
        let through = detour * share * share;
        for group in (0..self.groups).filter(|&group| group != from_group && group != to_group) {
            on(self.between(from_group, group), detour);
            on(self.between(group, to_group), detour);
            for a in 0..self.routers {
                for b in (0..self.routers).filter(|&b| b != a) {
                    on(self.within(group, a, b), through);
                }
            }
        }
    }

    /// Between groups, a hop at each end of the link between them is counted.
    pub fn further_switches(&self, from: usize, to: usize) -> usize {
        let (from, to) = (self.router(from), self.router(to));
        match (from.0 == to.0, from.1 == to.1) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 3,
        }
    }

    pub fn name(&self, link: usize, hosts: &[String]) -> String {
        let Some(link) = link.checked_sub(2 * self.hosts) else {
            let direction = if link.is_multiple_of(2) { "out" } else { "in" };
            return format!("{}, {direction}", hosts[link / 2]);
        };
        let in_group = self.routers * self.routers;
        match link.checked_sub(self.groups * in_group) {
            None => format!(
                "group {}, router {} to {}",
                link / in_group,
                link % in_group / self.routers,
                link % self.routers
            ),
            Some(link) => format!(
                "group {} to group {}",
                link / self.groups,
                link % self.groups
            ),
        }
    }
}
