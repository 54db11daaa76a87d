//! Detects communication in samples: a table of recently sampled lines and the threads that accessed them.
//!
//! ComDetective (Sasongko et al., SC'19), which CMLB (section III-A1) uses for recording: a sampled access to a
//! line that was recently in another thread's sample is communication if one of the two is a store.
//! ComDetective publishes one access per slot of a small bulletin board and arms debug registers for the rest. Here
//! profiles are made after the run, so the board holds every line, and a stated window replaces the debug registers'
//! "until the next trap" as the meaning of "recently". The weight of a communication event is the later
//! sample's period, as in ComDetective.
//!
//! Cost: O([`READERS`]) per sample; at most [`MAX_LINES`] lines (60 MB), of which the oldest are dropped first.

use std::collections::HashMap;

/// Threads stored per line; the one whose access is oldest is dropped first.
pub const READERS: usize = 8;
/// Lines stored. When the table is full, lines outside the window are dropped, then the oldest half.
pub const MAX_LINES: usize = 1 << 18;

/// The last sampled access of a thread to a line.
#[derive(Clone, Copy, Debug)]
struct Touch {
    thread: u32,
    time: u64,
    slice: u32,
    store: bool,
}

/// What one access adds to the layers for one other thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relation {
    /// The thread that touched the line before.
    pub other: u32,
    /// One of the two accesses is a store, within the window (ComDetective, CMLB).
    pub sampled_line: bool,
    /// The other thread was the last to store, within the window, and this access is a load.
    pub write_read: bool,
    /// First access of this thread in a slice in which the other thread accessed the line too (OPT).
    pub shared_line: bool,
}

/// A sampled access to a line.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The line: address divided by line size, made unique across address spaces by the caller.
    pub line: u64,
    /// The thread.
    pub thread: u32,
    /// Time in ns.
    pub time: u64,
    /// The slice.
    pub slice: u32,
    /// Whether it is known to be a load.
    pub load: bool,
    /// Whether it is known to be a store.
    pub store: bool,
}

/// The table of recently sampled lines.
#[derive(Debug)]
pub struct Board {
    lines: HashMap<u64, Vec<Touch>>,
    window_ns: u64,
    max_lines: usize,
    dropped_lines: u64,
}

impl Board {
    /// Two accesses communicate if they are at most `window_ns` ns apart.
    #[must_use]
    pub fn new(window_ns: u64) -> Self {
        Self {
            lines: HashMap::new(),
            window_ns,
            max_lines: MAX_LINES,
            dropped_lines: 0,
        }
    }

    /// Number of lines dropped inside their window because the table was full.
    #[must_use]
    pub fn dropped_lines(&self) -> u64 {
        self.dropped_lines
    }

    /// Halves all slice numbers, after slices were merged in pairs.
    pub fn halve_slices(&mut self) {
        for touch in self.lines.values_mut().flatten() {
            touch.slice /= 2;
        }
    }

    /// Adds an access and appends to `relations` its relations to other threads' accesses.
    pub fn touch(&mut self, access: Access, relations: &mut Vec<Relation>) {
        if self.lines.len() >= self.max_lines && !self.lines.contains_key(&access.line) {
            self.make_room(access.time);
        }
        let touches = self.lines.entry(access.line).or_default();
        let own = touches.iter().position(|t| t.thread == access.thread);
        let new_in_slice = own.is_none_or(|at| touches[at].slice != access.slice);
        let last_store = touches
            .iter()
            .filter(|touch| touch.store)
            .max_by_key(|touch| touch.time)
            .map(|touch| touch.thread);
        for touch in touches.iter().filter(|t| t.thread != access.thread) {
            let near = access.time.saturating_sub(touch.time) <= self.window_ns;
            let relation = Relation {
                other: touch.thread,
                sampled_line: near && (touch.store || access.store),
                write_read: near && access.load && last_store == Some(touch.thread),
                shared_line: new_in_slice && touch.slice == access.slice,
            };
            if relation.sampled_line || relation.write_read || relation.shared_line {
                relations.push(relation);
            }
        }
        let touch = Touch {
            thread: access.thread,
            time: access.time,
            slice: access.slice,
            store: access.store,
        };
        match own {
            // A load by the storing thread keeps the store: other threads still read its value.
            Some(at) => {
                let store = touches[at].store && !access.store;
                touches[at] = Touch {
                    store: touch.store || store,
                    ..touch
                };
            }
            None if touches.len() < READERS => touches.push(touch),
            None => {
                let oldest = (0..touches.len())
                    .min_by_key(|&at| touches[at].time)
                    .expect("a full list");
                touches[oldest] = touch;
            }
        }
    }

    fn make_room(&mut self, now: u64) {
        let latest = |touches: &[Touch]| touches.iter().map(|t| t.time).max().unwrap_or(0);
        let window = self.window_ns;
        self.lines
            .retain(|_, touches| now.saturating_sub(latest(touches)) <= window);
        if self.lines.len() < self.max_lines / 2 {
            return;
        }
        let mut times: Vec<(u64, u64)> = self
            .lines
            .iter()
            .map(|(&line, touches)| (latest(touches), line))
            .collect();
        times.sort_unstable();
        for &(_, line) in &times[..times.len() / 2] {
            self.lines.remove(&line);
            self.dropped_lines += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(line: u64, thread: u32, time: u64, store: bool) -> Access {
        Access {
            line,
            thread,
            time,
            slice: (time / 1000) as u32,
            load: !store,
            store,
        }
    }

    fn touch(board: &mut Board, access: Access) -> Vec<Relation> {
        let mut relations = Vec::new();
        board.touch(access, &mut relations);
        relations
    }

    #[test]
    fn one_of_the_two_must_store() {
        let mut board = Board::new(500);
        assert!(touch(&mut board, access(1, 0, 10, false)).is_empty());
        // Load after load: only the line shared in the slice.
        let relations = touch(&mut board, access(1, 1, 20, false));
        assert_eq!(relations.len(), 1);
        assert!(relations[0].shared_line && !relations[0].sampled_line && !relations[0].write_read);
        // Thread 2 stores after both have loaded: communication with both, but nothing has been read yet.
        let relations = touch(&mut board, access(1, 2, 30, true));
        assert_eq!(relations.len(), 2);
        assert!(relations.iter().all(|m| m.sampled_line && !m.write_read));
        // Thread 0 loads: it reads what thread 2 wrote.
        let relations = touch(&mut board, access(1, 0, 40, false));
        assert_eq!(
            relations,
            [Relation {
                other: 2,
                sampled_line: true,
                write_read: true,
                shared_line: false
            }]
        );
    }

    #[test]
    fn only_the_last_store_is_read() {
        let mut board = Board::new(500);
        touch(&mut board, access(1, 0, 10, true));
        touch(&mut board, access(1, 1, 20, true));
        let relations = touch(&mut board, access(1, 2, 30, false));
        let readers: Vec<u32> = relations
            .iter()
            .filter(|m| m.write_read)
            .map(|m| m.other)
            .collect();
        assert_eq!(readers, [1]);
        assert_eq!(relations.iter().filter(|m| m.sampled_line).count(), 2);
    }

    #[test]
    fn the_window_ends() {
        let mut board = Board::new(500);
        touch(&mut board, access(1, 0, 0, true));
        assert!(!touch(&mut board, access(1, 1, 500, false)).is_empty());
        touch(&mut board, access(2, 0, 0, true));
        // Another slice and 501 ns later: nothing.
        let late = Access {
            slice: 9,
            ..access(2, 1, 501, false)
        };
        assert!(touch(&mut board, late).is_empty());
    }

    #[test]
    fn a_full_board_drops_the_oldest_lines_and_counts_them() {
        let mut board = Board::new(1 << 40);
        board.max_lines = 8;
        for line in 0..9 {
            touch(&mut board, access(line, 0, line, true));
        }
        assert_eq!(board.dropped_lines(), 4);
        assert!(touch(&mut board, access(0, 1, 10, false)).is_empty());
        assert_eq!(touch(&mut board, access(8, 1, 11, false)).len(), 1);
    }
}
