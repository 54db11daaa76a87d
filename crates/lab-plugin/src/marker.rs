//! The agent's commands to the plugin: 8-byte no-ops whose displacement encodes a command.
//!
//! `nopl DISP(%rax,%rax,1)` does nothing on any processor; DISP is `0x4e4c_0000 | command << 8 | argument`.
//! The agent's source (`crates/lab/guest/agent.c`) has the same table.

/// A command of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// Start counting.
    Start,
    /// Stop counting and write the results.
    Stop,
    /// From here on the agent accesses memory of this node.
    Probe(usize),
    /// End of [`Self::Probe`].
    ProbeEnd,
    /// The agent runs on the vCPU that has this number in the guest.
    OnCpu(usize),
    /// From here on the agent reads pages of code whose accesses are not to be counted.
    Exclude,
    /// End of [`Self::Exclude`].
    ExcludeEnd,
    /// The agent has just read the bytes of this instruction as data, from memory of this node.
    Code(usize),
    /// All probes are complete: determine the layout.
    Fit,
}

impl Marker {
    /// Decodes an instruction; `None` if it is no marker.
    pub fn decode(code: &[u8]) -> Option<Self> {
        let [0x0f, 0x1f, 0x84, 0x00, argument, command, 0x4c, 0x4e] = *code else {
            return None;
        };
        let argument = usize::from(argument);
        Some(match command {
            1 => Self::Start,
            2 => Self::Stop,
            3 => Self::Probe(argument),
            4 => Self::ProbeEnd,
            5 => Self::OnCpu(argument),
            6 => Self::Exclude,
            7 => Self::ExcludeEnd,
            8 => Self::Code(argument),
            9 => Self::Fit,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Marker;

    #[test]
    fn only_our_no_ops_are_markers() {
        let mut code = [0x0f, 0x1f, 0x84, 0x00, 7, 3, 0x4c, 0x4e];
        assert_eq!(Marker::decode(&code), Some(Marker::Probe(7)));
        code[5] = 77;
        assert_eq!(Marker::decode(&code), None);
        // The no-op with which compilers align loops.
        assert_eq!(Marker::decode(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]), None);
        assert_eq!(Marker::decode(&[0x0f, 0x01, 0xf8]), None);
    }
}
