//! Chooses the PU a thread runs on: the one it is pinned to, or one chosen by a model of the operating system.
//!
//! The model follows Linux's fair class, without knowledge of communication and pages (the thread placement under "data
//! mapping only"):
//!
//! - a new thread gets an idle PU on the node with the fewest threads, on an idle core if there is one; without an idle
//!   PU, the PU with the fewest threads;
//! - a thread that wakes up gets the PU it ran on if that is idle; else an idle core, then an idle PU below the same
//!   last-level cache; then any idle PU; else it queues at the PU it ran on;
//! - a PU that becomes idle takes the thread that has queued for longest, below its own last-level cache first;
//! - at random intervals a PU is disturbed (interrupts, daemons), and its thread moves to an idle one, if there is one.
//!
//! Equal choices are drawn from the seed: several seeds show how much such a run varies.

use std::collections::VecDeque;

use numaloc_model::LogicalPu;

use crate::machine::Machine;

/// Where threads run.
#[derive(Clone, Copy, Debug)]
pub enum Threads<'a> {
    /// PU of each thread, by thread index.
    Pinned(&'a [LogicalPu]),
    /// Chosen by the model of the operating system.
    Os {
        /// Seed for choices among equals.
        seed: u64,
    },
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pu {
    pub(crate) clock: u64,
    pub(crate) running: Option<u32>,
    /// When the running thread got the PU.
    pub(crate) since: u64,
    /// Threads that are ready, and since when.
    pub(crate) ready: VecDeque<(u32, u64)>,
    /// Whether it is in the queue of PUs to continue.
    pub(crate) queued: bool,
}

impl Pu {
    fn threads(&self) -> usize {
        usize::from(self.running.is_some()) + self.ready.len()
    }

    fn is_idle(&self) -> bool {
        self.threads() == 0
    }
}

/// Chooses PUs.
pub(crate) struct Scheduler {
    /// By thread: the PU it runs on, or ran on last.
    pu: Vec<u32>,
    os: Option<Os>,
}

struct Os {
    random: u64,
    /// By PU: time of its next disturbance.
    disturbed_at: Vec<u64>,
    /// Picoseconds between two disturbances of a PU.
    mean: f64,
}

impl Scheduler {
    pub(crate) fn new(threads: Threads<'_>, machine: &Machine, count: usize) -> Self {
        match threads {
            Threads::Pinned(pus) => Self {
                pu: pus.iter().map(|pu| pu.0).collect(),
                os: None,
            },
            Threads::Os { seed } => {
                let mut os = Os {
                    // Never 0, which the generator would not leave.
                    random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
                    disturbed_at: Vec::new(),
                    mean: machine.parameters.os_disturbance_ms * 1e9,
                };
                os.disturbed_at = machine.pus.iter().map(|_| os.pause()).collect();
                Self {
                    pu: vec![0; count],
                    os: Some(os),
                }
            }
        }
    }

    /// The PU of a thread.
    pub(crate) fn pu_of(&self, thread: u32) -> usize {
        self.pu[thread as usize] as usize
    }

    /// The PU for a ready thread, and whether it differs from the previous one.
    pub(crate) fn place(
        &mut self,
        thread: u32,
        is_new: bool,
        machine: &Machine,
        pus: &[Pu],
    ) -> (usize, bool) {
        let last = self.pu[thread as usize];
        let Some(os) = &mut self.os else {
            return (last as usize, false);
        };
        let pu = match is_new {
            true => os.for_new(machine, pus),
            false => os.for_woken(last, machine, pus),
        };
        self.pu[thread as usize] = pu as u32;
        (pu, !is_new && pu as u32 != last)
    }

    /// Pins a thread to a PU from now on; returns the PU it runs on, or ran on last.
    pub(crate) fn pin(&mut self, thread: u32, to: usize) -> usize {
        std::mem::replace(&mut self.pu[thread as usize], to as u32) as usize
    }

    /// A thread that waits for another PU and can run on this idle one.
    pub(crate) fn pull(
        &mut self,
        to: usize,
        machine: &Machine,
        pus: &mut [Pu],
    ) -> Option<(u32, u64)> {
        self.os.as_ref()?;
        let group = machine.pus[to].group;
        let waiting = pus
            .iter()
            .enumerate()
            .filter(|(_, pu)| pu.running.is_some());
        let longest = waiting.filter_map(|(at, pu)| {
            let &(_, since) = pu.ready.front()?;
            Some((machine.pus[at].group != group, since, at))
        });
        let (_, _, from) = longest.min()?;
        let pulled = pus[from].ready.pop_front()?;
        self.pu[pulled.0 as usize] = to as u32;
        Some(pulled)
    }

    /// Another PU for the thread that runs on this one, if this one is disturbed at `now`.
    pub(crate) fn disturb(
        &mut self,
        pu: usize,
        now: u64,
        machine: &Machine,
        pus: &[Pu],
    ) -> Option<usize> {
        let os = self.os.as_mut()?;
        if now < os.disturbed_at[pu] {
            return None;
        }
        os.disturbed_at[pu] = now.saturating_add(os.pause());
        let to = os.idle(machine, pus, machine.pus[pu].group)?;
        let thread = pus[pu].running?;
        self.pu[thread as usize] = to as u32;
        Some(to)
    }
}

impl Os {
    /// xorshift64*.
    fn draw(&mut self) -> u32 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// An exponentially distributed time with the mean between disturbances.
    fn pause(&mut self) -> u64 {
        let uniform = (f64::from(self.draw()) + 1.0) / (f64::from(u32::MAX) + 1.0);
        (-uniform.ln() * self.mean) as u64
    }

    fn for_new(&mut self, machine: &Machine, pus: &[Pu]) -> usize {
        let mut on_node = vec![0; machine.nodes];
        let mut on_core = vec![0; machine.core_node.len()];
        for (pu, place) in pus.iter().zip(&machine.pus) {
            on_node[place.node as usize] += pu.threads();
            on_core[place.core as usize] += pu.threads();
        }
        let rank = |at: usize| {
            let place = machine.pus[at];
            let threads = pus[at].threads();
            (
                threads,
                on_node[place.node as usize],
                on_core[place.core as usize],
            )
        };
        (0..pus.len())
            .min_by_key(|&at| (rank(at), self.draw()))
            .expect("a machine has PUs")
    }

    fn for_woken(&mut self, last: u32, machine: &Machine, pus: &[Pu]) -> usize {
        if pus[last as usize].is_idle() {
            return last as usize;
        }
        let group = machine.pus[last as usize].group;
        self.idle(machine, pus, group).unwrap_or(last as usize)
    }

    /// An idle PU, below that last-level cache and on an idle core if possible.
    fn idle(&mut self, machine: &Machine, pus: &[Pu], group: u32) -> Option<usize> {
        let mut on_core = vec![0; machine.core_node.len()];
        for (pu, place) in pus.iter().zip(&machine.pus) {
            on_core[place.core as usize] += pu.threads();
        }
        (0..pus.len())
            .filter(|&at| pus[at].is_idle())
            .min_by_key(|&at| {
                let place = machine.pus[at];
                (
                    place.group != group,
                    on_core[place.core as usize],
                    self.draw(),
                )
            })
    }
}
