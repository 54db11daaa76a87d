//! How a process ends while signals arrive, as a state machine: pure.
//!
//! A process *runs* until one of its threads claims its end; then it *ends*, for good. A thread that wants to end the
//! process takes these steps, and no other order is safe:
//!
//! 1. It blocks all signals. One that was taken before is handled first, and the program's call is made again later.
//! 2. It claims the end ([`claim`]). A thread that comes second waits for the kernel to end it.
//! 3. It interrupts the other threads until each waits, outside its tracer, or has ended ([`on_signal`]).
//! 4. It writes what they have counted.
//! 5. It makes the kernel's call, which nothing can interrupt any more.
//!
//! So the thread that ends the process never waits and never runs a handler of the program, and signals that arrive
//! meanwhile stay pending in the kernel, as after a native `exit_group`.

/// Where a signal finds a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Place {
    /// In translated code: its state is the program's or can be computed.
    Cache,
    /// In a system call of the program, which may take for ever.
    Call,
    /// In the engine, which goes on to a place where it looks whether the process ends.
    Engine,
}

/// What a thread has to do with its process's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The process runs.
    None,
    /// Another thread ends the process.
    Stopped,
    /// This thread ends the process.
    Ends,
}

/// What the engine does with a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaction {
    /// Handles it, as while the process runs.
    Handle,
    /// The thread waits here for the process's end.
    Wait,
    /// The thread waits as soon as it has left the engine.
    Later,
    /// Nothing: the process has ended for the program.
    Ignore,
}

/// The part of thread `me`, which is not 0, if thread `ender` has claimed the end; 0 while the process runs.
pub const fn part(ender: u64, me: u64) -> Part {
    match ender {
        0 => Part::None,
        ender if ender == me => Part::Ends,
        _ => Part::Stopped,
    }
}

/// Whether a thread that found `before` in place of the ender's number may end the process; otherwise it waits.
pub const fn claim(before: u64, me: u64) -> bool {
    matches!(part(before, me), Part::None | Part::Ends)
}

/// What to do with a signal; `fault`: raised by an instruction.
pub const fn on_signal(part: Part, place: Place, fault: bool) -> Reaction {
    match (part, place, fault) {
        // A thread that faults leaves the cache, or repairs the fault, and looks then.
        (Part::None, _, _) | (_, _, true) => Reaction::Handle,
        (Part::Ends, _, false) => Reaction::Ignore,
        (Part::Stopped, Place::Engine, false) => Reaction::Later,
        (Part::Stopped, Place::Cache | Place::Call, false) => Reaction::Wait,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// The steps of a thread.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    enum Step {
        /// In translated code; may begin to end the process, or make another call.
        Cache,
        /// In a call that waits for ever, unless a signal interrupts it.
        Call,
        /// On the way through the engine to the next look.
        Engine,
        /// Before the call that ends the process: step 1.
        Block,
        Claim,
        Stop,
        Write,
        Exit,
        Waits,
    }

    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    struct Thread {
        step: Step,
        blocked: bool,
        /// A signal has been taken and not been handled.
        taken: bool,
        /// Whether the thread will end the process when it is next in the cache.
        ends: bool,
    }

    /// All threads; the ender's number, or 0; whether the kernel has ended the process.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
    struct World {
        threads: Vec<Thread>,
        ender: u64,
        over: bool,
    }

    type Rule = fn(Part, Place, bool) -> Reaction;

    impl World {
        /// What thread `at` may do next; empty if it can do nothing by itself.
        fn steps(&self, at: usize) -> Vec<Self> {
            let me = at as u64 + 1;
            let thread = self.threads[at];
            let with = |change: &dyn Fn(&mut Thread)| {
                let mut next = self.clone();
                change(&mut next.threads[at]);
                next
            };
            let to = |step| with(&|thread| thread.step = step);
            match thread.step {
                Step::Cache if thread.ends => vec![to(Step::Block)],
                Step::Cache => vec![to(Step::Cache), to(Step::Call), to(Step::Engine)],
                Step::Call | Step::Waits => Vec::new(),
                // The dispatcher looks whether the process ends, handles what was taken and unblocks.
                Step::Engine if part(self.ender, me) != Part::None => vec![to(Step::Waits)],
                Step::Engine => vec![with(&|thread| {
                    (thread.step, thread.blocked, thread.taken) = (Step::Cache, false, false);
                })],
                // What was taken is handled first.
                Step::Block => vec![with(&|thread| {
                    thread.blocked = true;
                    thread.step = if thread.taken {
                        Step::Engine
                    } else {
                        Step::Claim
                    };
                })],
                Step::Claim if claim(self.ender, me) => {
                    let mut next = to(Step::Stop);
                    next.ender = me;
                    vec![next]
                }
                Step::Claim => vec![to(Step::Waits)],
                Step::Stop => {
                    let mut others = self.threads.iter().enumerate();
                    match others.all(|(n, other)| n == at || other.step == Step::Waits) {
                        true => vec![to(Step::Write)],
                        // It interrupts them again and again: see `signals`.
                        false => Vec::new(),
                    }
                }
                Step::Write => vec![to(Step::Exit)],
                Step::Exit => {
                    let mut next = self.clone();
                    next.over = true;
                    vec![next]
                }
            }
        }

        /// A signal that reaches thread `at`. `urgent`: the ender's own, which is not blocked.
        fn signal(&self, at: usize, urgent: bool, rule: Rule) -> Option<Self> {
            let thread = self.threads[at];
            let deaf = thread.blocked && !urgent || thread.step == Step::Waits;
            if deaf || self.over {
                return None;
            }
            let place = match thread.step {
                Step::Cache => Place::Cache,
                Step::Call => Place::Call,
                // The last call used to be one that signals interrupt.
                Step::Exit => Place::Call,
                _ => Place::Engine,
            };
            let mut next = self.clone();
            let thread = &mut next.threads[at];
            match rule(part(self.ender, at as u64 + 1), place, false) {
                Reaction::Handle => {
                    (thread.taken, thread.blocked) = (true, true);
                    if place != Place::Engine {
                        thread.step = Step::Engine;
                    }
                }
                Reaction::Wait => thread.step = Step::Waits,
                Reaction::Later => thread.taken = true,
                Reaction::Ignore => {}
            }
            Some(next)
        }

        fn next(&self, rule: Rule) -> Vec<Self> {
            if self.over {
                return Vec::new();
            }
            let threads = 0..self.threads.len();
            let steps = threads.clone().flat_map(|at| self.steps(at));
            let sent = threads
                .clone()
                .filter_map(|at| self.signal(at, false, rule));
            let stopping = self
                .threads
                .iter()
                .position(|thread| thread.step == Step::Stop);
            let urgent = threads
                .filter(|&at| stopping.is_some_and(|ender| ender != at))
                .filter_map(|at| self.signal(at, true, rule));
            steps.chain(sent).chain(urgent).collect()
        }
    }

    /// Reachable worlds from which the process's end cannot be reached any more.
    fn stuck(threads: usize, ends: usize, rule: Rule) -> Vec<World> {
        let thread = |at| Thread {
            step: Step::Cache,
            blocked: false,
            taken: false,
            ends: at < ends,
        };
        let first = World {
            threads: (0..threads).map(thread).collect(),
            ender: 0,
            over: false,
        };
        let mut before: BTreeMap<World, Vec<World>> = BTreeMap::from([(first.clone(), Vec::new())]);
        let mut open = vec![first];
        while let Some(world) = open.pop() {
            for next in world.next(rule) {
                let known = before.contains_key(&next);
                before.entry(next.clone()).or_default().push(world.clone());
                if !known {
                    open.push(next);
                }
            }
        }
        let mut ends: BTreeSet<&World> = before.keys().filter(|world| world.over).collect();
        let mut open: Vec<&World> = ends.iter().copied().collect();
        while let Some(world) = open.pop() {
            for one in &before[world] {
                if ends.insert(one) {
                    open.push(one);
                }
            }
        }
        before
            .keys()
            .filter(|world| !ends.contains(world))
            .cloned()
            .collect()
    }

    #[test]
    fn a_process_ends_whatever_signals_arrive_at_every_step() {
        for (threads, ends) in [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2)] {
            let stuck = stuck(threads, ends, on_signal);
            assert!(stuck.is_empty(), "{threads}, {ends}: {:?}", stuck[0]);
        }
    }

    #[test]
    fn the_search_finds_an_ender_that_waits_and_threads_that_nothing_stops() {
        // The ender waits when a signal finds it in its last call, as it did before.
        let parks = |part, place, fault| match part {
            Part::Ends => on_signal(Part::Stopped, place, fault),
            part => on_signal(part, place, fault),
        };
        // Blocking alone would hide it: the rule is what a thread does whose signals are not blocked.
        let open = |rule: Rule| {
            let world = World {
                threads: vec![Thread {
                    step: Step::Exit,
                    blocked: false,
                    taken: false,
                    ends: true,
                }],
                ender: 1,
                over: false,
            };
            world
                .signal(0, false, rule)
                .map(|world| world.threads[0].step)
        };
        assert_eq!(open(parks), Some(Step::Waits));
        assert_eq!(open(on_signal), Some(Step::Exit));
        // A thread in a call is not stopped.
        let deaf = |part, place, fault| match (part, place) {
            (Part::Stopped, Place::Call) => Reaction::Ignore,
            (part, place) => on_signal(part, place, fault),
        };
        assert!(!stuck(2, 1, deaf).is_empty());
    }

    #[test]
    fn faults_are_handled_until_the_end() {
        for part in [Part::None, Part::Stopped, Part::Ends] {
            for place in [Place::Cache, Place::Call, Place::Engine] {
                assert_eq!(on_signal(part, place, true), Reaction::Handle);
            }
        }
    }
}
