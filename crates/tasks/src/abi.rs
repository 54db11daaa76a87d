//! The types of `include/ocr.h` in Rust. Layouts are asserted. Enumerations from C are plain integers until they are
//! checked; none is read as a Rust enum.

use std::ffi::c_void;

/// `ocrGuid_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Guid(pub i64);

impl Guid {
    /// `NULL_GUID`.
    pub const NULL: Self = Self(0);
    /// `ERROR_GUID`.
    pub const ERROR: Self = Self(-1);
    /// `UNINITIALIZED_GUID`.
    pub const UNINITIALIZED: Self = Self(-2);

    /// Whether this is `NULL_GUID`.
    #[must_use]
    pub fn is_null(self) -> bool {
        self.0 == 0
    }
}

/// `ocrEdtDep_t`. The runtime stores a slot's state in what is padding for C.
#[repr(C)]
#[derive(Debug)]
pub struct Dep {
    /// The data block, or `NULL_GUID`.
    pub guid: Guid,
    /// Its memory, or null.
    pub ptr: *mut c_void,
    /// `ocrDbAccessMode_t`.
    pub mode: u32,
    /// Slot state; padding in C.
    pub(crate) state: std::sync::atomic::AtomicU32,
}

/// `ocrEdt_t`.
pub type EdtFunction = unsafe extern "C" fn(u32, *mut u64, u32, *mut Dep) -> Guid;

/// `ocrHint_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint {
    /// `ocrHintType_t`.
    pub kind: u32,
    /// Which of `args` are set.
    pub mask: u64,
    /// Values, by property minus the type's start minus 1.
    pub args: [u64; 8],
}

/// `ocrEventParams_t`: a union; which part counts depends on the event's type.
#[repr(C)]
#[derive(Clone, Copy)]
pub union EventParams {
    /// `EVENT_LATCH.counter` and `EVENT_COUNTED.nbDeps`.
    pub count: u64,
    /// `EVENT_CHANNEL`.
    pub channel: ChannelParams,
    /// `EVENT_COLLECTIVE`.
    pub collective: CollectiveParams,
}

/// `EVENT_CHANNEL`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ChannelParams {
    /// How far one side may run ahead.
    pub max_generations: u32,
    /// Satisfactions per generation; 1.
    pub satisfactions: u32,
    /// Dependences per generation; 1.
    pub dependences: u32,
}

/// `EVENT_COLLECTIVE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CollectiveParams {
    /// Generations that may be pending at a time; not limited here.
    pub max_generations: u32,
    /// Contributors.
    pub contributors: u32,
    /// Contributors on a policy domain; unused in shared memory.
    pub contributors_here: u32,
    /// Values in a contribution.
    pub values: u16,
    /// Tree arity; unused in shared memory.
    pub arity: u16,
    /// `redOp_t`.
    pub operator: u16,
    /// `collectiveType_t`.
    pub kind: u32,
    /// Unused.
    pub reuse_block: u8,
}

const _: () = {
    assert!(size_of::<Guid>() == 8);
    assert!(size_of::<Dep>() == 24 && std::mem::offset_of!(Dep, mode) == 16);
    assert!(size_of::<Hint>() == 80 && std::mem::offset_of!(Hint, args) == 16);
    assert!(size_of::<EventParams>() == 32);
    assert!(std::mem::offset_of!(CollectiveParams, operator) == 16);
    assert!(std::mem::offset_of!(CollectiveParams, kind) == 20);
};

/// `ocrDbAccessMode_t`.
pub mod mode {
    #![allow(missing_docs)]
    pub const NULL: u32 = 0;
    pub const CONST: u32 = 1;
    pub const RW: u32 = 2;
    pub const EW: u32 = 4;
    pub const RO: u32 = 8;
}

/// `ocrEventTypes_t`.
pub mod event_type {
    #![allow(missing_docs)]
    pub const ONCE: u32 = 1;
    pub const IDEM: u32 = 2;
    pub const STICKY: u32 = 3;
    pub const LATCH: u32 = 4;
    pub const COUNTED: u32 = 5;
    pub const CHANNEL: u32 = 6;
    pub const COLLECTIVE: u32 = 7;
}

/// Properties of tasks, data blocks and labels.
pub mod property {
    #![allow(missing_docs)]
    pub const EDT_FINISH: u16 = 1;
    pub const EDT_OUTPUT_EVENT_VALID: u16 = 8;
    pub const DB_NO_ACQUIRE: u16 = 0x10;
    pub const LABELED: u16 = 0x100;
    pub const LABEL_CHECK: u16 = 0x300;
    pub const LABEL_BLOCK: u16 = 0x500;
}

/// `EDT_PARAM_UNK`.
pub const PARAM_UNKNOWN: u32 = u32::MAX;
/// `EDT_PARAM_DEF`.
pub const PARAM_DEFAULT: u32 = u32::MAX - 1;

/// An OCR error code; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u8);

#[allow(missing_docs)]
impl Errno {
    pub const EPERM: Self = Self(1);
    pub const ENOENT: Self = Self(2);
    pub const ENOMEM: Self = Self(12);
    pub const EACCES: Self = Self(13);
    pub const EINVAL: Self = Self(22);
    pub const EGUIDEXISTS: Self = Self(100);
    pub const EACQ: Self = Self(101);
    pub const EPEND: Self = Self(102);
}

/// The result of most calls.
pub type Result<T> = std::result::Result<T, Errno>;
