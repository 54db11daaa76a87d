//! How the guest's agent talks to the plugin: 8-byte no-ops with a telling displacement.
//!
//! `nopl DISP(%rax,%rax,1)` does nothing on any processor; DISP is `0x4e4c_0000 | command << 8 | argument`.
//! The agent's source (`crates/lab/guest/agent.c`) has the same table.

/// What the agent says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// Count from here.
    Start,
    /// Counting is over; write the results.
    Stop,
    /// What I touch now is memory of this node.
    Probe(usize),
    /// No longer.
    ProbeEnd,
    /// I run on the vCPU that the guest numbers so.
    OnCpu(usize),
    /// The pages I read now hold code whose accesses are not to be counted.
    Exclude,
    /// No longer.
    ExcludeEnd,
    /// I have just read these very bytes as data, from memory of this node.
    Code(usize),
    /// All probes are done: make the layout.
    Fit,
}

impl Marker {
    /// The marker an instruction is, if it is one.
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
        // The no-op compilers align loops with.
        assert_eq!(Marker::decode(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]), None);
        assert_eq!(Marker::decode(&[0x0f, 0x01, 0xf8]), None);
    }
}
