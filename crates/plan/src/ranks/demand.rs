//! What a profile of ranks demands: messages by phase, and computation.
//!
//! A rank computes when it is in no MPI call, which the profile knows for the whole run; each phase gets a share by its
//! length. Without times of calls only the messages are known. Patterns that alternate faster than a twentieth of the
//! run are one phase, in which their messages are on their way together.

use std::collections::BTreeMap;

use numaloc_analysis::pattern_phases::{LEAST_CHANGE, PatternRule, message_window, pattern_phases};
use numaloc_model::profile::{Clock, Profile};
use numaloc_model::{Layer, MpiCall};
use numaloc_network::{Cell, Demand, Phase};

/// Calls that send one message and return when it has been sent.
const SENDS: [&str; 4] = ["MPI_Send", "MPI_Ssend", "MPI_Rsend", "MPI_Bsend"];
/// Calls that return when one message has been received.
const RECEIVES: [&str; 2] = ["MPI_Recv", "MPI_Mrecv"];
/// Calls that wait for messages that other calls began, or only ask for them.
const OTHERS: [&str; 4] = ["MPI_Wait", "MPI_Test", "MPI_Probe", "MPI_Iprobe"];

/// Share of the run below which a part of it is no phase.
const SHORTEST: f64 = 0.05;

/// The demand of a profile's layer, and the seconds of the recorded run; 0 if it has no times of calls.
#[must_use]
pub fn of(profile: &Profile, layer: Layer) -> (Demand, f64) {
    let compute_s = computing(profile);
    let recorded_s = match compute_s.is_empty() {
        true => 0.0,
        false => length(profile),
    };
    let demand = Demand {
        phases: phases(profile, layer, &compute_s),
        serial: serial(profile),
        non_blocking: non_blocking(profile.mpi_calls()),
    };
    (demand, recorded_s)
}

/// From the first rank's beginning to the last one's end, seconds.
fn length(profile: &Profile) -> f64 {
    let threads = profile.threads().iter();
    let start = threads.clone().map(|thread| thread.start).min();
    let end = threads.map(|thread| thread.end).max();
    end.unwrap_or(0).saturating_sub(start.unwrap_or(0)) as f64 * 1e-9
}

/// Seconds outside MPI by rank; empty if the profile has no times of calls.
fn computing(profile: &Profile) -> Vec<f64> {
    if profile.mpi_calls().is_empty() || profile.meta().clock != Clock::Wall {
        return Vec::new();
    }
    let threads = profile.threads().iter();
    let mut left: Vec<u64> = threads
        .map(|thread| thread.end.saturating_sub(thread.start))
        .collect();
    for call in profile.mpi_calls() {
        let left = &mut left[call.thread.index()];
        *left = left.saturating_sub(call.nanoseconds);
    }
    left.into_iter().map(|ns| ns as f64 * 1e-9).collect()
}

/// Messages by sender and receiver: their number and bytes.
type Cells = BTreeMap<(u32, u32), (u64, u64)>;

/// A part of the run and its length in the clock of the profile.
struct Part {
    cells: Cells,
    length: f64,
}

impl Part {
    fn merge(&mut self, other: Self) {
        self.length += other.length;
        for (pair, (messages, bytes)) in other.cells {
            let sum = self.cells.entry(pair).or_default();
            *sum = (sum.0 + messages, sum.1 + bytes);
        }
    }

    /// `1 - cos` of the bytes of both, and of 64 for each message.
    fn differs_from(&self, other: &Self) -> f64 {
        let weight = |(messages, bytes): (u64, u64)| bytes as f64 + 64.0 * messages as f64;
        let square = |cells: &Cells| cells.values().map(|sum| weight(*sum).powi(2)).sum::<f64>();
        let both = self.cells.iter().map(|(pair, sum)| {
            let others = other.cells.get(pair).copied().unwrap_or_default();
            weight(*sum) * weight(others)
        });
        let lengths = (square(&self.cells) * square(&other.cells)).sqrt();
        1.0 - both.sum::<f64>() / lengths.max(f64::MIN_POSITIVE)
    }
}

/// The parts of the run that are phases of the model: neighbours of one pattern are one, and so is what is short or
/// silent with what is before it. Messages are recorded when they are begun; in a shorter part, ranks that are late
/// would seem to use links alone.
fn parts(profile: &Profile, layer: Layer) -> Vec<Part> {
    let slices = profile.slices();
    let rule = PatternRule {
        layers: &[Layer::Message, Layer::Collective],
        window: message_window(slices.len()),
        by_chance: false,
    };
    let ranges = pattern_phases(profile, rule);
    let whole: u64 = slices.iter().map(|slice| slice.end - slice.start).sum();
    let least = SHORTEST * whole as f64;
    let mut rows = profile.communication().iter().peekable();
    let mut found: Vec<Part> = Vec::new();
    for range in ranges {
        let of_slices = slices[range.clone()].iter();
        let length: u64 = of_slices.map(|slice| slice.end - slice.start).sum();
        let mut cells = Cells::new();
        while let Some(row) = rows.next_if(|row| row.slice.index() < range.end) {
            if layer.holds(row.layer) && row.src != row.dst {
                let sum = cells.entry((row.src.0, row.dst.0)).or_default();
                *sum = (sum.0 + row.events, sum.1 + row.bytes);
            }
        }
        let part = Part {
            cells,
            length: length as f64,
        };
        match found.last_mut() {
            Some(last)
                if part.cells.is_empty()
                    || last.cells.is_empty()
                    || part.length.min(last.length) < least
                    || last.differs_from(&part) < LEAST_CHANGE =>
            {
                last.merge(part);
            }
            _ => found.push(part),
        }
    }
    found
}

fn phases(profile: &Profile, layer: Layer, compute_s: &[f64]) -> Vec<Phase> {
    let parts = parts(profile, layer);
    let whole: f64 = parts.iter().map(|part| part.length).sum::<f64>().max(1.0);
    let phase = |part: Part| {
        let share = part.length / whole;
        let cells = part.cells.into_iter();
        Phase {
            cells: cells
                .map(|((src, dst), (messages, bytes))| Cell {
                    src,
                    dst,
                    messages,
                    bytes,
                })
                .collect(),
            compute_s: compute_s.iter().map(|seconds| seconds * share).collect(),
        }
    };
    parts.into_iter().map(phase).collect()
}

fn is_other(call: &MpiCall) -> bool {
    OTHERS.iter().any(|name| call.operation.starts_with(name))
}

/// By rank: share of the bytes that are both sent and received by calls that return when they are done.
fn serial(profile: &Profile) -> Vec<f64> {
    let ranks = profile.threads().len();
    let (mut sent, mut received, mut all) = (vec![0; ranks], vec![0; ranks], vec![0; ranks]);
    for call in profile.mpi_calls().iter().filter(|call| !is_other(call)) {
        let at = call.thread.index();
        // Messages without bytes count too.
        let amount = call.bytes + call.calls;
        all[at] += amount;
        if SENDS.contains(&&*call.operation) {
            sent[at] += amount;
        } else if RECEIVES.contains(&&*call.operation) {
            received[at] += amount;
        }
    }
    let share = |rank: usize| match all[rank] {
        0 => 0.0,
        all => 2.0 * sent[rank].min(received[rank]) as f64 / all as f64,
    };
    (0..ranks).map(share).collect()
}

/// Share of the bytes that are sent, received or exchanged by calls that return before they are done.
fn non_blocking(calls: &[MpiCall]) -> f64 {
    let (mut begun, mut all) = (0, 0);
    for call in calls.iter().filter(|call| !is_other(call)) {
        all += call.bytes;
        let letter = call.operation.strip_prefix("MPI_I");
        let is_begun =
            letter.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
        if is_begun || call.operation.starts_with("MPI_Start") {
            begun += call.bytes;
        }
    }
    if all > 0 {
        begun as f64 / all as f64
    } else {
        0.0
    }
}
