//! Decodes a sample's `data_src`: load or store, and which part of the memory system served the access.
//!
//! Bit fields of `union perf_mem_data_src` (linux/perf_event.h). Older kernels fill `mem_lvl` only, newer
//! ones `mem_lvl_num` with `mem_remote` and `mem_hops`; both are read, and the newer fields take precedence.

/// Load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A load, or a prefetch, which moves the line as a load does.
    Load,
    /// A store; a locked read-modify-write counts as one.
    Store,
    /// Not recorded (page faults, or a PMU without this field).
    Unknown,
}

/// The part of the memory system that served an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// First-level cache.
    L1,
    /// A line fill buffer: the line was already being fetched.
    FillBuffer,
    /// Second-level cache.
    L2,
    /// Third- or fourth-level cache of this package.
    L3,
    /// Another core's or package's cache.
    RemoteCache,
    /// Memory of this node.
    LocalMemory,
    /// Memory of another node.
    RemoteMemory,
    /// Device memory, uncached memory, or an unnamed cache.
    Other,
}

impl Level {
    /// Every level, nearest first.
    pub const ALL: [Self; 8] = [
        Self::L1,
        Self::FillBuffer,
        Self::L2,
        Self::L3,
        Self::RemoteCache,
        Self::LocalMemory,
        Self::RemoteMemory,
        Self::Other,
    ];

    /// The name in notes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::L1 => "L1",
            Self::FillBuffer => "fill buffer",
            Self::L2 => "L2",
            Self::L3 => "L3",
            Self::RemoteCache => "remote cache",
            Self::LocalMemory => "local memory",
            Self::RemoteMemory => "remote memory",
            Self::Other => "other",
        }
    }

    /// Whether the access went below the caches.
    #[must_use]
    pub fn is_memory(self) -> bool {
        matches!(self, Self::LocalMemory | Self::RemoteMemory)
    }
}

const OP_LOAD: u64 = 0x02;
const OP_STORE: u64 = 0x04;
const OP_PREFETCH: u64 = 0x08;
const OP_EXEC: u64 = 0x10;

const LEVEL_HIT: u64 = 0x02;

/// A decoded `data_src` word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSource(pub u64);

impl DataSource {
    fn field(self, shift: u32, bits: u32) -> u64 {
        (self.0 >> shift) & ((1 << bits) - 1)
    }

    /// Load or store.
    #[must_use]
    pub fn operation(self) -> Operation {
        let op = self.field(0, 5);
        if op & OP_STORE != 0 {
            Operation::Store
        } else if op & (OP_LOAD | OP_PREFETCH) != 0 {
            Operation::Load
        } else {
            Operation::Unknown
        }
    }

    /// Whether this is an instruction fetch, which is no data access.
    #[must_use]
    pub fn is_fetch(self) -> bool {
        self.field(0, 5) & (OP_EXEC | OP_LOAD | OP_STORE) == OP_EXEC
    }

    /// The level that served the access, if the event records it.
    #[must_use]
    pub fn level(self) -> Option<Level> {
        let remote = self.field(37, 1) != 0 || self.field(43, 3) != 0;
        let level = self.field(5, 14);
        match self.field(33, 4) {
            // A remote access that hit a cache was served by another core, whichever level is named.
            0x01..=0x04 | 0x0b if remote => return Some(Level::RemoteCache),
            0x01 => return Some(Level::L1),
            0x02 => return Some(Level::L2),
            0x03 | 0x04 => return Some(Level::L3),
            0x0c => return Some(Level::FillBuffer),
            0x09 => return Some(Level::RemoteMemory),
            // RAM and persistent memory. Intel also sets `mem_lvl` here, which distinguishes local from remote.
            0x0d | 0x0e if remote || level & 0x300 != 0 => return Some(Level::RemoteMemory),
            0x0d | 0x0e => return Some(Level::LocalMemory),
            0x08 | 0x0a | 0x0b => return Some(Level::Other),
            _ => {}
        }
        if level & LEVEL_HIT == 0 {
            return None;
        }
        [
            (0x008, Level::L1),
            (0x010, Level::FillBuffer),
            (0x020, Level::L2),
            (0x040, Level::L3),
            (0x080, Level::LocalMemory),
            (0x300, Level::RemoteMemory),
            (0xc00, Level::RemoteCache),
            (0x3000, Level::Other),
        ]
        .into_iter()
        .find(|(bits, _)| level & bits != 0)
        .map(|(_, level)| level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operation, `mem_lvl`, `mem_lvl_num` and the remote bit, as the kernel composes them.
    fn word(operation: u64, level: u64, number: u64, remote: u64) -> DataSource {
        DataSource(operation | level << 5 | number << 33 | remote << 37)
    }

    #[test]
    fn old_and_new_level_fields_are_read() {
        const HIT: u64 = 2;
        const MISS: u64 = 4;
        // Intel, both fields: L1, L3 miss to local and to remote memory, another package's cache.
        assert_eq!(word(2, HIT | 0x8, 1, 0).level(), Some(Level::L1));
        assert_eq!(
            word(2, HIT | 0x80, 0xd, 0).level(),
            Some(Level::LocalMemory)
        );
        assert_eq!(
            word(2, HIT | 0x100, 0xd, 1).level(),
            Some(Level::RemoteMemory)
        );
        assert_eq!(
            word(2, HIT | 0x400, 0xb, 1).level(),
            Some(Level::RemoteCache)
        );
        // Older kernels: no number.
        assert_eq!(word(2, HIT | 0x20, 0, 0).level(), Some(Level::L2));
        assert_eq!(word(2, HIT | 0x80, 0, 0).level(), Some(Level::LocalMemory));
        assert_eq!(word(2, MISS | 0x40, 0, 0).level(), None);
        // AMD IBS on newer kernels: number only.
        assert_eq!(word(2, 0, 0xd, 1).level(), Some(Level::RemoteMemory));
        assert_eq!(word(4, 0, 0xc, 0).level(), Some(Level::FillBuffer));
        // Page faults: everything "not available".
        assert_eq!(word(1, 1, 0xf, 0).level(), None);
    }

    #[test]
    fn loads_and_stores_are_distinguished() {
        assert_eq!(word(2, 0, 0, 0).operation(), Operation::Load);
        assert_eq!(word(8, 0, 0, 0).operation(), Operation::Load);
        assert_eq!(word(4, 0, 0, 0).operation(), Operation::Store);
        assert_eq!(word(6, 0, 0, 0).operation(), Operation::Store);
        assert_eq!(word(1, 0, 0, 0).operation(), Operation::Unknown);
    }

    #[test]
    fn a_remote_cache_is_not_a_local_level() {
        // lvl_num L3 with the remote bit: a line from another package.
        let word = 0x02 | (0x03 << 33) | (1 << 37);
        assert_eq!(DataSource(word).level(), Some(Level::RemoteCache));
    }

    #[test]
    fn an_instruction_fetch_is_no_data_access() {
        assert!(DataSource(0x10).is_fetch());
        assert!(!DataSource(0x12).is_fetch());
    }
}
