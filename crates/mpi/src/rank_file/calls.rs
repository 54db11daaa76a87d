//! Blocks of a rank file about time: events of messages, and sums by operation and call site.

use super::{u32_at, u64_at};

const EVENT: usize = 48;
const HEAD: usize = 40;
const SUM: usize = 56;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// A message was sent.
    Send,
    /// A call waited for the end of a send.
    SendWait,
    /// A receive was posted, and a call waited for it.
    Receive,
    /// A call waited for a message without receiving it.
    Probe,
    /// A collective was entered, and a call waited for it.
    Collective,
}

impl EventKind {
    const ALL: [Self; 5] = [
        Self::Send,
        Self::SendWait,
        Self::Receive,
        Self::Probe,
        Self::Collective,
    ];
}

/// One side of a message, or of a collective. Times are those of the host's monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Sender, receiver, communicator and tag as one number; for collectives the communicator.
    pub channel: u64,
    /// Number of the message in its channel, or of the collective in its communicator.
    pub sequence: u32,
    /// World rank of the partner; `None` for a collective that all ranks wait for.
    pub peer: Option<u32>,
    /// When it was sent, posted or entered.
    pub posted: u64,
    /// Start of the call that waited for it; `posted` if none did.
    pub begin: u64,
    /// End of that call.
    pub end: u64,
    /// Number of the call's row in [`Times::sums`].
    pub row: u32,
    /// What it is about.
    pub kind: EventKind,
    /// One message in two to this power was kept.
    pub level: u8,
}

/// Calls of one operation, communicator, call site and class of size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The operation, such as `MPI_Send`; empty if there was no room for it.
    pub operation: String,
    /// File and offset of the return address; `None` if there was no room for it.
    pub site: Option<(String, u64)>,
    /// Ranks of the communicator; 0 if the call names none.
    pub ranks: u32,
    /// Number of bits of the largest size in bytes.
    pub size_class: u32,
    /// Number of calls.
    pub calls: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time in these calls, ns.
    pub nanoseconds: u64,
    /// Number of times that these calls waited for a message or a collective.
    pub partners: u64,
}

/// Sums of time of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Messages without an event, for lack of room.
    pub untracked: u64,
    /// The sums.
    pub sums: Vec<Sum>,
}

/// The events of a block; `None` if it is not valid.
pub(super) fn events(payload: &[u8]) -> Option<Vec<Event>> {
    let events = payload.chunks(EVENT).map(|bytes| {
        if bytes.len() < EVENT {
            return None;
        }
        let kind = usize::from(bytes[44]).checked_sub(1)?;
        let peer = u32_at(bytes, 12);
        let (begin, end) = (u64_at(bytes, 24), u64_at(bytes, 32));
        (end >= begin && bytes[45] < 32).then_some(())?;
        Some(Event {
            channel: u64_at(bytes, 0),
            sequence: u32_at(bytes, 8),
            peer: (peer != u32::MAX).then_some(peer),
            posted: u64_at(bytes, 16),
            begin,
            end,
            row: u32_at(bytes, 40),
            kind: *EventKind::ALL.get(kind)?,
            level: bytes[45],
        })
    });
    events.collect()
}

/// The sums of a block; `None` if it is not valid.
pub(super) fn times(payload: &[u8]) -> Option<Times> {
    if payload.len() < HEAD {
        return None;
    }
    let numbers = [24, 28, 32, 36].map(|at| u32_at(payload, at) as usize);
    let [rows, operations, objects, text] = numbers;
    let end = HEAD.checked_add(rows.checked_mul(SUM)?)?;
    (end.checked_add(text)? == payload.len()).then_some(())?;
    let words: Vec<String> = payload[end..]
        .split(|&byte| byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    // A zero ends each word, also the last one.
    (words.len() == operations.checked_add(objects)?.checked_add(1)?).then_some(())?;
    let (operations, objects) = words.split_at(operations);
    let sums = payload[HEAD..end].chunks_exact(SUM).map(|bytes| {
        let object = u32_at(bytes, 8);
        let site = match object {
            u32::MAX => None,
            at if (at as usize) < objects.len() - 1 => {
                Some((objects[at as usize].clone(), u64_at(bytes, 0)))
            }
            _ => return None,
        };
        Some(Sum {
            operation: operations.get(u32_at(bytes, 12) as usize)?.clone(),
            site,
            ranks: u32_at(bytes, 16),
            size_class: u32_at(bytes, 20).min(64),
            calls: u64_at(bytes, 24),
            bytes: u64_at(bytes, 32),
            nanoseconds: u64_at(bytes, 40),
            partners: u64_at(bytes, 48),
        })
    });
    Some(Times {
        untracked: u64_at(payload, 16),
        sums: sums.collect::<Option<_>>()?,
    })
}
