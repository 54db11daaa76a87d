//! Seconds of a run with its ranks on hosts.
//!
//! A profile has amounts by pair of ranks and part of the run, not the order of messages. So a run is taken as phases
//! one after the other, in which every rank computes and then exchanges all its messages of the phase:
//!
//! ```text
//! phase   = max over ranks of (compute + own overheads and latencies + max(own transfers, busiest of its links))
//! link    = bytes of all messages that it carries / its bandwidth
//! own     = s x serial + (1 - s) x concurrent          s: share of the bytes that are sent and received one by one
//! serial  = sum over messages sent and received of o + L + (n - 1) G + o
//! concurrent = o x messages + L x most messages of one partner + max(bytes out, bytes in) G
//! ```
//!
//! A ping-pong is serial; halo exchanges, `MPI_Sendrecv` and collectives are concurrent. If a part of the messages is
//! non-blocking, communication may be hidden behind computation: [`Times::hidden_s`] is the time if all of that part
//! is.
//!
//! Cost: O(cells x links of a route), of dragonflies 11 times that.

use crate::fabric::{Fabric, Loads};

/// Messages between a pair of ranks in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Sender.
    pub src: u32,
    /// Receiver.
    pub dst: u32,
    /// Number of messages.
    pub messages: u64,
    /// Sum of their bytes.
    pub bytes: u64,
}

/// A part of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phase {
    /// Messages, one cell for each pair.
    pub cells: Vec<Cell>,
    /// Seconds of computation by rank.
    pub compute_s: Vec<f64>,
}

/// What a run asks of computers and network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Parts of the run, in order.
    pub phases: Vec<Phase>,
    /// By rank: share (0..=1) of its bytes that are sent and received one message after the other.
    pub serial: Vec<f64>,
    /// Share (0..=1) of the bytes that may be on their way while the ranks compute.
    pub non_blocking: f64,
}

/// Where a rank is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seat {
    /// Host, by its position in the cluster.
    pub host: u32,
    /// NUMA node.
    pub node: u32,
    /// Factor by which it computes for longer than in [`Phase::compute_s`], for example because it shares a core.
    pub slower: f64,
}

/// A link and how long it is busy.
#[derive(Clone, Debug, PartialEq)]
pub struct Busy {
    /// Index of the link in the fabric.
    pub link: usize,
    /// Its name.
    pub name: String,
    /// Seconds in which it carries bytes.
    pub seconds: f64,
}

/// Seconds of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// The whole run, if ranks do not compute while they communicate.
    pub seconds: f64,
    /// The same if all communication that may be hidden behind computation is.
    pub hidden_s: f64,
    /// The part in which the slowest rank of each phase computes.
    pub compute_s: f64,
    /// The busiest links, the busiest first; at most [`MOST_BUSY`].
    pub busiest: Vec<Busy>,
    /// Bytes between hosts.
    pub between_hosts: f64,
    /// All bytes.
    pub bytes: f64,
}

/// Links that are named.
pub const MOST_BUSY: usize = 4;
/// Shares of messages on direct links of which the best is taken, in tenths.
const TENTHS: u32 = 10;

/// What a rank does itself in a phase.
#[derive(Clone, Copy, Default)]
struct Own {
    messages_s: f64,
    serial_s: f64,
    latency_s: f64,
    out_s: f64,
    in_s: f64,
    link_s: f64,
}

impl Own {
    /// Seconds of communication; `serial`: share that is one message after the other.
    fn seconds(&self, serial: f64) -> f64 {
        let waits_for_links = (self.link_s - self.out_s - self.in_s).max(0.0);
        let one_by_one = self.serial_s + waits_for_links;
        let at_once = self.messages_s + self.latency_s + self.link_s.max(self.out_s.max(self.in_s));
        serial * one_by_one + (1.0 - serial) * at_once
    }
}

/// Seconds of a run whose rank `r` is at `seats[r]`; `distance` of two NUMA nodes of one host.
///
/// # Panics
/// If a cell names a rank without a seat, or a seat a host that the fabric does not have.
#[must_use]
pub fn times(
    demand: &Demand,
    fabric: &Fabric,
    seats: &[Seat],
    distance: impl Fn(u32, u32) -> f64,
) -> Times {
    let mut found = Times::default();
    let mut all = fabric.unloaded();
    for phase in &demand.phases {
        let (direct, loads) = loads(phase, fabric, seats);
        let own = own(phase, fabric, seats, direct, &loads, &distance);
        let mut slowest = [0.0_f64; 3];
        for (rank, own) in own.iter().enumerate() {
            let compute = phase.compute_s.get(rank).copied().unwrap_or(0.0) * seats[rank].slower;
            let serial = demand.serial.get(rank).copied().unwrap_or(0.0);
            let communication = own.seconds(serial);
            let hidden = demand.non_blocking * communication.min(compute);
            let of_rank = [
                compute + communication,
                compute + communication - hidden,
                compute,
            ];
            for (most, one) in slowest.iter_mut().zip(of_rank) {
                *most = most.max(one);
            }
        }
        found.seconds += slowest[0];
        found.hidden_s += slowest[1];
        found.compute_s += slowest[2];
        for cell in &phase.cells {
            found.bytes += cell.bytes as f64;
            if seats[cell.src as usize].host != seats[cell.dst as usize].host {
                found.between_hosts += cell.bytes as f64;
            }
        }
        for (sum, load) in all.iter_mut().zip(&loads) {
            *sum += load;
        }
    }
    found.busiest = busiest(&all, fabric);
    found
}

/// Bytes on the links in a phase, and the share of messages on the direct links of a dragonfly: that under which the
/// busiest link is busy for the shortest time, the largest of equals.
fn loads(phase: &Phase, fabric: &Fabric, seats: &[Seat]) -> (f64, Loads) {
    let with = |direct: f64| {
        let mut loads = fabric.unloaded();
        for cell in &phase.cells {
            let [from, to] = [cell.src, cell.dst].map(|rank| seats[rank as usize].host as usize);
            // LogGP: the first byte of a message is its latency's.
            let bytes = cell.bytes.saturating_sub(cell.messages) as f64;
            fabric.carry(from, to, bytes, direct, &mut loads);
        }
        loads
    };
    let only = with(1.0);
    if !fabric.is_adaptive() {
        return (1.0, only);
    }
    let longest = |loads: &Loads| {
        let seconds = loads.iter().zip(fabric.bytes_per_s());
        seconds
            .map(|(load, speed)| load / speed)
            .fold(0.0, f64::max)
    };
    let (mut best, mut least) = ((1.0, only.clone()), longest(&only));
    for tenth in (0..TENTHS).rev() {
        let direct = f64::from(tenth) / f64::from(TENTHS);
        let loads = with(direct);
        let seconds = longest(&loads);
        if seconds < least {
            (best, least) = ((direct, loads), seconds);
        }
    }
    best
}

fn own(
    phase: &Phase,
    fabric: &Fabric,
    seats: &[Seat],
    direct: f64,
    loads: &Loads,
    distance: impl Fn(u32, u32) -> f64,
) -> Vec<Own> {
    let mut own = vec![Own::default(); seats.len()];
    for cell in &phase.cells {
        let [src, dst] = [cell.src, cell.dst].map(|rank| seats[rank as usize]);
        let (from, to) = (src.host as usize, dst.host as usize);
        let way = fabric.way(from, to, distance(src.node, dst.node));
        let mut link_s = 0.0_f64;
        fabric.each_link(from, to, direct, |link, _| {
            link_s = link_s.max(loads[link] / fabric.bytes_per_s()[link]);
        });
        let messages = cell.messages as f64;
        let transfer_s = way.transfer_s(cell.messages, cell.bytes);
        for (rank, is_sender) in [(cell.src, true), (cell.dst, false)] {
            let own = &mut own[rank as usize];
            own.messages_s += messages * way.overhead_s;
            own.serial_s += way.seconds(cell.messages, cell.bytes);
            own.link_s = own.link_s.max(link_s);
            match is_sender {
                true => own.out_s += transfer_s,
                false => own.in_s += transfer_s,
            }
            // What comes in is waited for; messages of several partners are on their way together.
            if !is_sender {
                own.latency_s = own.latency_s.max(messages * way.latency_s);
            }
        }
    }
    own
}

fn busiest(loads: &Loads, fabric: &Fabric) -> Vec<Busy> {
    let mut busy: Vec<(usize, f64)> = loads
        .iter()
        .zip(fabric.bytes_per_s())
        .map(|(load, speed)| load / speed)
        .enumerate()
        .filter(|(_, seconds)| *seconds > 0.0)
        .collect();
    busy.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    busy.truncate(MOST_BUSY);
    let named = busy.into_iter().map(|(link, seconds)| Busy {
        link,
        name: fabric.name(link),
        seconds,
    });
    named.collect()
}
