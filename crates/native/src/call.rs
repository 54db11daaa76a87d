//! A call of an allocator, as a thread's state holds it: pure.

/// Most frames kept, innermost first.
const FRAMES: usize = 12;

/// A call of an allocator that has not returned.
#[derive(Clone, Copy)]
pub struct Call {
    /// Stack pointer after the return; 0 if there is no such call.
    pub rsp: u64,
    /// Bytes requested.
    pub length: u64,
    /// Where the address of the block will be stored; 0 if it is returned.
    pub result: u64,
    /// The function, then the return addresses, innermost first.
    pub frames: [u64; FRAMES],
    /// Number of these addresses.
    pub depth: usize,
}

impl Call {
    /// No call.
    pub const NONE: Self = Self {
        rsp: 0,
        length: 0,
        result: 0,
        frames: [0; FRAMES],
        depth: 0,
    };
}
