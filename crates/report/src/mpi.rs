//! Time in MPI: which share of the run it is, which operations and call sites have it, and who waits for whom.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use numaloc_analysis::sites::place_label;
use numaloc_model::profile::{Clock, Profile};
use numaloc_model::{CodePlace, MpiCall, MpiWait, WaitKind};
use serde_json::{Value, json};

use crate::number;

/// Calls, their bytes and their time; also those of all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Number of calls.
    pub calls: u64,
    /// Bytes that they name.
    pub bytes: u64,
    /// Time in them, ns.
    pub nanoseconds: u64,
    /// Part of it in which they waited, by [`WaitKind`], ns.
    pub waiting: [u64; 3],
    /// Messages and collectives that they waited for.
    pub partners: u64,
    /// Those whose other side is known.
    pub matched: u64,
}

impl Sums {
    fn add(&mut self, call: &MpiCall) {
        self.calls += call.calls;
        self.bytes += call.bytes;
        self.nanoseconds += call.nanoseconds;
        for (sum, part) in self.waiting.iter_mut().zip(call.waiting) {
            *sum += part;
        }
        self.partners += call.partners;
        self.matched += call.matched;
    }

    /// Time in which the calls waited, ns.
    #[must_use]
    pub fn waited(&self) -> u64 {
        self.waiting.iter().sum()
    }
}

/// Time in MPI of all ranks together; lists begin with the longest time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MpiTime<'a> {
    /// Number of ranks.
    pub ranks: usize,
    /// Sum of the ranks' run times, ns.
    pub run: u64,
    /// All calls.
    pub all: Sums,
    /// By operation.
    pub operations: Vec<(&'a str, Sums)>,
    /// By operation and call site.
    pub sites: Vec<((&'a str, &'a CodePlace), Sums)>,
    /// Which ranks waited for which.
    pub waits: Vec<&'a MpiWait>,
}

impl<'a> MpiTime<'a> {
    /// `None` if the profile has no times of MPI calls.
    #[must_use]
    pub fn of(profile: &'a Profile) -> Option<Self> {
        let calls = profile.mpi_calls();
        if calls.is_empty() || profile.meta().clock != Clock::Wall {
            return None;
        }
        let mut all = Sums::default();
        let mut operations: BTreeMap<&str, Sums> = BTreeMap::new();
        let mut sites: BTreeMap<(&str, &CodePlace), Sums> = BTreeMap::new();
        for call in calls {
            all.add(call);
            operations.entry(&call.operation).or_default().add(call);
            let site = (call.operation.as_str(), &call.place);
            sites.entry(site).or_default().add(call);
        }
        let threads = profile.threads();
        let mut ranks: Vec<usize> = calls.iter().map(|call| call.thread.index()).collect();
        ranks.dedup();
        let run = ranks
            .iter()
            .map(|&rank| threads[rank].end.saturating_sub(threads[rank].start));
        let mut waits: Vec<&MpiWait> = profile.mpi_waits().iter().collect();
        waits.sort_by_key(|wait| Reverse(wait.nanoseconds));
        Some(Self {
            ranks: ranks.len(),
            run: run.sum(),
            all,
            operations: longest(operations),
            sites: longest(sites),
            waits,
        })
    }

    /// Time in MPI as a share of the ranks' run time.
    #[must_use]
    pub fn share(&self, nanoseconds: u64) -> f64 {
        nanoseconds as f64 / self.run.max(1) as f64
    }

    /// Share of the messages and collectives that calls waited for whose other side is known.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        match self.all.partners {
            0 => 1.0,
            partners => self.all.matched as f64 / partners as f64,
        }
    }
}

fn longest<K: Ord>(sums: BTreeMap<K, Sums>) -> Vec<(K, Sums)> {
    let mut sums: Vec<(K, Sums)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| Reverse(sum.nanoseconds));
    sums
}

/// Why a rank waited, in words.
#[must_use]
pub fn words(kind: WaitKind) -> &'static str {
    match kind {
        WaitKind::LateSender => "late sender",
        WaitKind::LateReceiver => "late receiver",
        WaitKind::Imbalance => "imbalance",
    }
}

/// A time with three digits.
#[must_use]
pub fn seconds(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    let (unit, name) = match nanoseconds {
        1_000_000_000.. => (1e9, "s"),
        1_000_000.. => (1e6, "ms"),
        1000.. => (1e3, "\u{b5}s"),
        _ => (1.0, "ns"),
    };
    format!("{} {name}", number::plain(value / unit))
}

/// The calling place, in words.
#[must_use]
pub fn site(place: &CodePlace) -> String {
    match place.is_known() {
        true => place_label(place),
        false => "other places".to_owned(),
    }
}

fn sums(sums: &Sums) -> Value {
    json!({
        "calls": sums.calls,
        "bytes": sums.bytes,
        "time_ns": sums.nanoseconds,
        "late_sender_ns": sums.waiting[0],
        "late_receiver_ns": sums.waiting[1],
        "imbalance_ns": sums.waiting[2],
    })
}

fn with(mut object: Value, more: Value) -> Value {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}

/// The field `mpi_time` of `show --json`; null if there are no times.
#[must_use]
pub fn json(profile: &Profile) -> Value {
    let Some(time) = MpiTime::of(profile) else {
        return Value::Null;
    };
    let operations = time
        .operations
        .iter()
        .map(|(name, of)| with(json!({"operation": name}), sums(of)));
    let sites = time.sites.iter().map(|((name, place), of)| {
        let place = json!({"operation": name, "function": place.function, "source": place.source});
        with(place, sums(of))
    });
    let waits = time.waits.iter().map(|wait| {
        json!({
            "thread": wait.thread.0,
            "other": wait.other.0,
            "kind": wait.kind.name(),
            "calls": wait.calls,
            "time_ns": wait.nanoseconds,
        })
    });
    let head = json!({
        "ranks": time.ranks,
        "run_ns": time.run,
        "share": time.share(time.all.nanoseconds),
        "waiting_share": time.share(time.all.waited()),
        "coverage": time.coverage(),
        "operations": operations.collect::<Vec<_>>(),
        "sites": sites.collect::<Vec<_>>(),
        "waits": waits.collect::<Vec<_>>(),
    });
    with(head, sums(&time.all))
}
