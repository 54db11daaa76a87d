//! The clocks of different hosts, compared by the program's own messages.
//!
//! A message from host `a` to host `b` arrives after it was sent, so the difference of the clocks, `b`'s less `a`'s, is
//! at most the time of the end of the receive less that of the send; of all messages the smallest bound holds. Messages
//! in the other direction bound it from below, and collectives that no rank leaves before all have entered bound it
//! both ways. The estimate is the middle of the bounds, and half their distance is its error. Nothing is added to the
//! program's messages, as a ping-pong would be.

use std::collections::HashMap;

use super::Seen;
use crate::rank_file::EventKind;

/// The clocks of hosts.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Clocks {
    /// By host: its clock less that of the first host, in nanoseconds; `None` if it is not known.
    pub offsets: Vec<Option<i64>>,
    /// Largest error of a known offset, in nanoseconds.
    pub error: u64,
}

/// Smallest bounds of the clock of the second host less that of the first, by hosts.
#[derive(Debug, Default)]
pub(super) struct Bounds(HashMap<(u32, u32), i64>);

impl Bounds {
    /// Adds the sides of a message or, if no rank leaves it before all have entered, of a collective.
    pub fn add(&mut self, group: &[Seen], meets: bool) {
        if group.iter().all(|(_, _, host)| *host == group[0].2) {
            return;
        }
        for (start, _, from) in group {
            if !matches!(start.kind, EventKind::Send | EventKind::Collective) {
                continue;
            }
            for (end, _, to) in group {
                // What was polled for has no time at which it arrived.
                let arrives = match end.kind {
                    EventKind::Receive | EventKind::Probe => true,
                    EventKind::Collective => meets,
                    EventKind::Send | EventKind::SendWait => false,
                };
                if from == to || !arrives || end.end == end.begin {
                    continue;
                }
                let most = end.end.wrapping_sub(start.posted) as i64;
                let bound = self.0.entry((*from, *to)).or_insert(most);
                *bound = most.min(*bound);
            }
        }
    }

    /// The clocks of this number of hosts: from the first host on, over the pair of hosts that adds the smallest error.
    pub fn clocks(&self, hosts: usize) -> Clocks {
        let mut offsets: Vec<Option<i64>> = vec![None; hosts];
        let mut errors = vec![0u64; hosts];
        if let Some(first) = offsets.first_mut() {
            *first = Some(0);
        }
        loop {
            let next = self.0.iter().filter_map(|(&(from, to), &most)| {
                let known = offsets[from as usize]?;
                let least = self.0.get(&(to, from))?.checked_neg()?;
                let is_new = offsets[to as usize].is_none();
                let width = u64::try_from(most.checked_sub(least)?).ok()?;
                let error = errors[from as usize].saturating_add(width.div_ceil(2));
                let middle = least.saturating_add((width / 2) as i64);
                is_new.then_some((error, to, known.saturating_add(middle)))
            });
            let Some((error, host, offset)) = next.min() else {
                break;
            };
            (offsets[host as usize], errors[host as usize]) = (Some(offset), error);
        }
        Clocks {
            offsets,
            error: errors.into_iter().max().unwrap_or(0),
        }
    }
}

/// Whether no rank leaves a collective of this name before all have entered it.
pub(super) fn meets(operation: &str) -> bool {
    let name = operation.trim_start_matches("MPI_");
    ["Barrier", "Allreduce", "Allgather", "Alltoall", "Comm_dup"]
        .iter()
        .any(|known| name.starts_with(known))
}

impl Clocks {
    /// The event by the first host's clock; of hosts whose clocks are known the number is 0.
    pub fn aligned(&self, (mut event, rank, host): Seen) -> Seen {
        let Some(Some(offset)) = self.offsets.get(host as usize) else {
            return (event, rank, host);
        };
        for time in [&mut event.posted, &mut event.begin, &mut event.end] {
            *time = time.saturating_add_signed(offset.saturating_neg());
        }
        (event, rank, 0)
    }
}
