//! Collective events: reductions and broadcasts over numbered contributors, one generation after another; each waiter
//! gets the result as a data block.

use std::collections::VecDeque;

use super::delivery::Waiter;
use crate::error::{Error, Result};

/// `collectiveType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveKind {
    /// One contributor gets the result.
    Reduce,
    /// Every contributor gets the result.
    AllReduce,
    /// Every contributor gets the values of the one that sends.
    Broadcast,
}

/// What a collective event is created with.
#[derive(Clone, Copy, Debug)]
pub struct CollectiveParams {
    /// Who gets what.
    pub kind: CollectiveKind,
    /// `redOp_t`: type and operation of the values.
    pub operator: u16,
    /// Values in a contribution.
    pub values: u16,
    /// Number of contributors.
    pub contributors: u32,
}

/// The state of a collective event.
pub struct Collective {
    kind: CollectiveKind,
    operator: Operator,
    values: usize,
    contributors: usize,
    /// Contributions not consumed yet, oldest first, by contributor.
    contributions: Vec<VecDeque<Vec<u8>>>,
    /// Waiters for results, oldest generation first, by contributor.
    waiters: Vec<VecDeque<Waiter>>,
    /// BROADCAST: values sent, and how many each contributor has taken.
    sent: VecDeque<Vec<u8>>,
    taken: Vec<u64>,
    dropped: u64,
}

#[derive(Clone, Copy)]
struct Operator {
    bytes: usize,
    signed: bool,
    real: bool,
    operation: u16,
}

macro_rules! fold {
    ($type:ty, $operation:expr, $into:expr, $from:expr, $bits:tt) => {
        for (a, b) in $into
            .chunks_exact_mut(size_of::<$type>())
            .zip($from.chunks_exact(size_of::<$type>()))
        {
            let x = <$type>::from_ne_bytes((&*a).try_into().expect("exact chunk"));
            let y = <$type>::from_ne_bytes(b.try_into().expect("exact chunk"));
            let z = fold!(@$bits $type, $operation, x, y);
            a.copy_from_slice(&z.to_ne_bytes());
        }
    };
    (@integer $type:ty, $operation:expr, $x:expr, $y:expr) => {
        match $operation {
            0 => $x.wrapping_add($y),
            1 => $x.wrapping_mul($y),
            2 => $x.min($y),
            3 => $x.max($y),
            4 => $x & $y,
            5 => $x | $y,
            _ => $x ^ $y,
        }
    };
    (@real $type:ty, $operation:expr, $x:expr, $y:expr) => {
        match $operation {
            0 => $x + $y,
            1 => $x * $y,
            2 => $x.min($y),
            _ => $x.max($y),
        }
    };
}

impl Operator {
    fn new(bits: u16) -> Result<Self> {
        let operator = Self {
            bytes: usize::from((bits >> 2) & 7) + 1,
            signed: bits & (1 << 5) != 0,
            real: bits & (1 << 6) != 0,
            operation: (bits >> 7) & 7,
        };
        let known = matches!(operator.bytes, 4 | 8)
            && operator.operation <= if operator.real { 3 } else { 6 };
        known.then_some(operator).ok_or(Error::Invalid)
    }

    fn fold(self, into: &mut [u8], from: &[u8]) {
        let operation = self.operation;
        match (self.real, self.signed, self.bytes) {
            (true, _, 8) => fold!(f64, operation, into, from, real),
            (true, ..) => fold!(f32, operation, into, from, real),
            (false, true, 8) => fold!(i64, operation, into, from, integer),
            (false, true, _) => fold!(i32, operation, into, from, integer),
            (false, false, 8) => fold!(u64, operation, into, from, integer),
            (false, false, _) => fold!(u32, operation, into, from, integer),
        }
    }
}

impl Collective {
    pub(crate) fn new(params: &CollectiveParams) -> Result<Self> {
        let contributors = params.contributors as usize;
        if contributors == 0 || params.values == 0 {
            return Err(Error::Invalid);
        }
        Ok(Self {
            kind: params.kind,
            operator: Operator::new(params.operator)?,
            values: usize::from(params.values),
            contributors,
            contributions: vec![VecDeque::new(); contributors],
            waiters: vec![VecDeque::new(); contributors],
            sent: VecDeque::new(),
            taken: vec![0; contributors],
            dropped: 0,
        })
    }

    fn slot(&self, from: u32) -> Result<usize> {
        ((from as usize) < self.contributors)
            .then_some(from as usize)
            .ok_or(Error::Invalid)
    }

    pub(crate) fn add_waiter(&mut self, from: u32, waiter: Waiter) -> Result<()> {
        let slot = self.slot(from)?;
        self.waiters[slot].push_back(waiter);
        Ok(())
    }

    /// # Safety
    /// `data` holds `values` values.
    pub(crate) unsafe fn contribute(&mut self, from: u32, data: *const u8) -> Result<()> {
        let slot = self.slot(from)?;
        if data.is_null() {
            return Err(Error::Invalid);
        }
        let length = self.values * self.operator.bytes;
        // SAFETY: the caller's promise.
        let values = unsafe { std::slice::from_raw_parts(data, length) }.to_vec();
        if self.kind == CollectiveKind::Broadcast {
            self.sent.push_back(values);
        } else {
            self.contributions[slot].push_back(values);
        }
        Ok(())
    }

    /// Results that are now complete, with the waiters of each.
    pub(crate) fn complete(&mut self) -> Vec<(Vec<u8>, Vec<Waiter>)> {
        if self.kind == CollectiveKind::Broadcast {
            self.complete_broadcasts()
        } else {
            self.complete_reductions()
        }
    }

    fn complete_broadcasts(&mut self) -> Vec<(Vec<u8>, Vec<Waiter>)> {
        let mut ready = Vec::new();
        for slot in 0..self.contributors {
            while let Some(values) = self.sent.get((self.taken[slot] - self.dropped) as usize) {
                let Some(waiter) = self.waiters[slot].pop_front() else {
                    break;
                };
                ready.push((values.clone(), vec![waiter]));
                self.taken[slot] += 1;
            }
        }
        // The sender may not ask for its own value: keep only values that another contributor may still need.
        let slowest = self.taken.iter().filter(|&&n| n > 0).min().copied();
        let waiters = self.taken.iter().filter(|&&n| n > 0).count();
        if waiters + 1 >= self.contributors {
            while slowest.is_some_and(|n| n > self.dropped) {
                self.sent.pop_front();
                self.dropped += 1;
            }
            for taken in &mut self.taken {
                *taken = (*taken).max(self.dropped);
            }
        }
        ready
    }

    fn complete_reductions(&mut self) -> Vec<(Vec<u8>, Vec<Waiter>)> {
        let all = self.kind == CollectiveKind::AllReduce;
        let mut ready = Vec::new();
        loop {
            let all_contributed = self.contributions.iter().all(|queue| !queue.is_empty());
            let awaited = if all {
                self.waiters.iter().all(|queue| !queue.is_empty())
            } else {
                self.waiters.iter().any(|queue| !queue.is_empty())
            };
            if !all_contributed || !awaited {
                return ready;
            }
            let mut parts = self
                .contributions
                .iter_mut()
                .filter_map(VecDeque::pop_front);
            let mut result = parts.next().expect("at least one contributor");
            for part in parts {
                self.operator.fold(&mut result, &part);
            }
            let mut waiters = self.waiters.iter_mut();
            let waiters = if all {
                waiters.filter_map(VecDeque::pop_front).collect()
            } else {
                waiters.find_map(VecDeque::pop_front).into_iter().collect()
            };
            ready.push((result, waiters));
        }
    }
}
