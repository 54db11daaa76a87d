//! Memory policies of threads and areas, as `set_mempolicy` and `mbind` set them.

/// A memory policy's mode (`MPOL_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `MPOL_PREFERRED`: the first node of the mask while it has memory.
    Preferred,
    /// `MPOL_BIND`: only nodes of the mask, the nearest first.
    Bind,
    /// `MPOL_INTERLEAVE`: pages alternately on the nodes of the mask.
    Interleave,
    /// `MPOL_LOCAL`: the node of the thread, even where its own policy is another one.
    Local,
    /// `MPOL_PREFERRED_MANY`: nodes of the mask while they have memory, the nearest first.
    PreferredMany,
    /// `MPOL_WEIGHTED_INTERLEAVE`: pages on the nodes of the mask by their weights.
    Weighted,
}

/// A memory policy that a program set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its mode.
    pub mode: Mode,
    /// The nodes, by OS index; those from 64 on are left out.
    pub nodes: u64,
    /// `set_mempolicy_home_node`: the node from which the nearest one is counted.
    pub home: Option<u8>,
}

impl Policy {
    /// The policy of a mode's number, with flags, and a mask of nodes; `None` for the default policy and unknown modes.
    #[must_use]
    pub fn of(mode: u64, nodes: u64) -> Option<Self> {
        /// `MPOL_F_STATIC_NODES`, `MPOL_F_RELATIVE_NODES`, `MPOL_F_NUMA_BALANCING`.
        const FLAGS: u64 = 1 << 15 | 1 << 14 | 1 << 13;
        let mode = match mode & !FLAGS & 0xffff_ffff {
            1 if nodes == 0 => Mode::Local,
            1 => Mode::Preferred,
            2 => Mode::Bind,
            3 => Mode::Interleave,
            4 => Mode::Local,
            5 => Mode::PreferredMany,
            6 => Mode::Weighted,
            _ => return None,
        };
        Some(Self {
            mode,
            nodes: if mode == Mode::Local { 0 } else { nodes },
            home: None,
        })
    }

    /// The mode's number, as in `MPOL_*`.
    #[must_use]
    pub fn number(&self) -> u8 {
        match self.mode {
            Mode::Preferred => 1,
            Mode::Bind => 2,
            Mode::Interleave => 3,
            Mode::Local => 4,
            Mode::PreferredMany => 5,
            Mode::Weighted => 6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_the_kernel_without_their_flags() {
        for number in 1..=6 {
            let policy = Policy::of(number | 1 << 15 | 1 << 14, 3).unwrap();
            assert_eq!(u64::from(policy.number()), number);
        }
        assert_eq!(Policy::of(0, 3), None);
        assert_eq!(Policy::of(7, 3), None);
        assert_eq!(Policy::of(1, 0).map(|p| p.mode), Some(Mode::Local));
    }
}
