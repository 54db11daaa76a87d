//! The types of `include/ocr.h` in Rust. Layouts are asserted. Enumerations from C are plain integers until they are
//! checked; none is read as a Rust enum.

use numaloc_tasks::error::{Error, Result};
use numaloc_tasks::objects::collective::{self, CollectiveKind};
use numaloc_tasks::objects::event;
use numaloc_tasks::objects::labelled::Occupied;

pub use numaloc_tasks::Guid;
pub use numaloc_tasks::objects::block::mode;
pub use numaloc_tasks::objects::task::{Dep, EdtFunction};

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
    assert!(size_of::<Hint>() == 80 && std::mem::offset_of!(Hint, args) == 16);
    assert!(size_of::<EventParams>() == 32);
    assert!(std::mem::offset_of!(CollectiveParams, operator) == 16);
    assert!(std::mem::offset_of!(CollectiveParams, kind) == 20);
};

/// `ocrEventTypes_t` of collective events.
pub const COLLECTIVE: u32 = event::kind::COLLECTIVE as u32;

/// The event that `ocrEventTypes_t` and parameters stand for.
///
/// # Errors
/// [`Error::Invalid`]: no such type, or impossible parameters.
pub fn new_event(kind: u32, params: Option<&EventParams>) -> Result<event::New> {
    let kind = u8::try_from(kind).map_err(|_| Error::Invalid)?;
    // SAFETY: plain numbers; any bits are a number.
    let count = || params.map(|params| unsafe { params.count } as i64);
    Ok(match kind {
        event::kind::ONCE => event::New::Once,
        event::kind::IDEM => event::New::Idem,
        event::kind::STICKY => event::New::Sticky,
        event::kind::LATCH => event::New::Latch {
            count: count().unwrap_or(0),
        },
        event::kind::COUNTED => event::New::Counted {
            dependences: count().unwrap_or(1),
        },
        event::kind::CHANNEL => {
            // SAFETY: as above.
            let limit = match params.map(|params| unsafe { params.channel }) {
                None => u32::MAX,
                Some(channel) if channel.satisfactions == 1 && channel.dependences == 1 => {
                    channel.max_generations
                }
                Some(_) => return Err(Error::Invalid),
            };
            event::New::Channel { limit }
        }
        event::kind::COLLECTIVE => {
            // SAFETY: as above.
            let params = unsafe { params.ok_or(Error::Invalid)?.collective };
            event::New::Collective(collective::CollectiveParams {
                kind: match params.kind {
                    0 => CollectiveKind::Reduce,
                    1 => CollectiveKind::AllReduce,
                    2 => CollectiveKind::Broadcast,
                    _ => return Err(Error::Invalid),
                },
                operator: params.operator,
                values: params.values,
                contributors: params.contributors,
            })
        }
        _ => return Err(Error::Invalid),
    })
}

/// Properties of tasks, data blocks and labels.
pub mod property {
    pub const EDT_FINISH: u16 = 1;
    pub const EDT_OUTPUT_EVENT_VALID: u16 = 8;
    pub const DB_NO_ACQUIRE: u16 = 0x10;
    pub const LABELED: u16 = 0x100;
    pub const LABEL_CHECK: u16 = 0x300;
    pub const LABEL_BLOCK: u16 = 0x500;
}

/// What a creation with these properties does if an object exists under the label.
pub fn occupied(properties: u16) -> Occupied {
    if properties & property::LABEL_CHECK == property::LABEL_CHECK {
        Occupied::Fail
    } else if properties & property::LABEL_BLOCK == property::LABEL_BLOCK {
        Occupied::Wait
    } else {
        Occupied::Replace
    }
}

/// `OCR_EPERM`.
pub const EPERM: u8 = 1;
/// `OCR_ENOENT`.
pub const ENOENT: u8 = 2;
/// `OCR_EINVAL`.
pub const EINVAL: u8 = 22;

/// The number of an error in `ocr.h`, and its name if reports have it.
pub fn errno(error: Error) -> (u8, Option<&'static str>) {
    match error {
        Error::NotNow => (EPERM, Some("OCR_EPERM")),
        Error::NotATask => (ENOENT, None),
        Error::OutOfMemory => (12, Some("OCR_ENOMEM")),
        Error::NotHeld => (13, None),
        Error::Invalid => (EINVAL, Some("OCR_EINVAL")),
        Error::Exists => (100, None),
        Error::HeldByAnother => (101, Some("OCR_EACQ")),
        Error::Pending => (102, None),
    }
}
