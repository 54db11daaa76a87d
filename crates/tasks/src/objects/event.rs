//! Memory of events, and what can be read of them without a lock.

use std::collections::VecDeque;
use std::ptr;

use super::arena::Arena;
use super::collective::{Collective, CollectiveParams};
use super::delivery::{Delivery, Waiter};
use super::header::{Header, Kind};
use super::label;
use crate::error::{Error, Result};
use crate::guid::Guid;

/// `ocrEventTypes_t`.
pub mod kind {
    #![allow(missing_docs)] // See the table in [`super::super::events`].
    pub const ONCE: u8 = 1;
    pub const IDEM: u8 = 2;
    pub const STICKY: u8 = 3;
    pub const LATCH: u8 = 4;
    pub const COUNTED: u8 = 5;
    pub const CHANNEL: u8 = 6;
    pub const COLLECTIVE: u8 = 7;
}

/// The type of a new event, with its parameters.
#[derive(Clone, Copy, Debug)]
pub enum New {
    /// ONCE.
    Once,
    /// IDEM.
    Idem,
    /// STICKY.
    Sticky,
    /// LATCH.
    Latch {
        /// Increments minus decrements so far.
        count: i64,
    },
    /// COUNTED.
    Counted {
        /// Dependences that will be added; at least 1.
        dependences: i64,
    },
    /// CHANNEL.
    Channel {
        /// How far satisfactions or dependences may run ahead of the other; at least 1.
        limit: u32,
    },
    /// COLLECTIVE.
    Collective(CollectiveParams),
}

const INLINE: usize = 2;

/// An event. The most frequent types fit into 96 bytes.
#[repr(C)]
pub struct Event {
    pub(crate) header: Header,
    // The free list's link uses this space while the object is free.
    _link: usize,
    pub(crate) payload: Guid,
    /// LATCH: the count. COUNTED: dependences still expected.
    pub(crate) count: i64,
    first: [Waiter; INLINE],
    more: *mut Vec<Waiter>,
    pub(crate) extra: *mut Extra,
    waiters: u32,
    /// One of [`kind`]; never changes.
    pub(crate) kind: u8,
    pub(crate) fired: bool,
}

/// What few types of events have.
pub(crate) enum Extra {
    Channel {
        limit: u32,
        data: VecDeque<Guid>,
        sinks: VecDeque<Waiter>,
    },
    Collective(Collective),
}

const _: () = assert!(size_of::<Event>() <= 96);

impl Event {
    /// Sets up the memory of a new event.
    ///
    /// # Safety
    /// `event` is fresh memory from the arena, of this size.
    pub(crate) unsafe fn set_up(event: *mut Self, kind: u8, count: i64, extra: Option<Extra>) {
        // SAFETY: as the caller promises; the header stays as it is.
        unsafe {
            (*event).payload = Guid::NULL;
            (*event).count = count;
            (*event).more = ptr::null_mut();
            (*event).extra = extra.map_or(ptr::null_mut(), |extra| Box::into_raw(Box::new(extra)));
            (*event).waiters = 0;
            (*event).kind = kind;
            (*event).fired = false;
            (*event).header.begin(Kind::Event);
        }
    }

    /// Adds a task or event to satisfy when the event fires.
    pub(crate) fn push_waiter(&mut self, waiter: Waiter) {
        let at = self.waiters as usize;
        self.waiters += 1;
        if at < INLINE {
            self.first[at] = waiter;
        } else {
            if self.more.is_null() {
                self.more = Box::into_raw(Box::default());
            }
            // SAFETY: ours, under the event's lock.
            unsafe { (*self.more).push(waiter) };
        }
    }

    /// Puts satisfactions of all waiters into `outbox`; `from` is the event's own GUID.
    pub(crate) fn fire(&mut self, outbox: &mut VecDeque<Delivery>, from: Guid) {
        self.fired = true;
        let payload = self.payload;
        let waiting = std::mem::take(&mut self.waiters) as usize;
        for waiter in &self.first[..waiting.min(INLINE)] {
            outbox.push_back(waiter.delivery(from, payload));
        }
        if !self.more.is_null() {
            // SAFETY: made by `push_waiter`, taken once, under the event's lock.
            let more = unsafe { Box::from_raw(std::mem::replace(&mut self.more, ptr::null_mut())) };
            outbox.extend(more.iter().map(|waiter| waiter.delivery(from, payload)));
        }
    }

    /// Frees what the event has outside its own memory.
    pub(crate) fn drop_boxes(&mut self) {
        if !self.more.is_null() {
            // SAFETY: made by `push_waiter`, taken once.
            drop(unsafe { Box::from_raw(std::mem::replace(&mut self.more, ptr::null_mut())) });
        }
        if !self.extra.is_null() {
            // SAFETY: made by `create`, taken once.
            drop(unsafe { Box::from_raw(std::mem::replace(&mut self.extra, ptr::null_mut())) });
        }
    }
}

/// The memory of the event behind a GUID, not checked for being alive.
#[inline]
pub(crate) fn find(arena: &Arena, guid: Guid) -> Result<*mut Event> {
    arena.object(guid).map(<*mut Header>::cast)
}

/// The type of a live event, one of [`kind`].
///
/// # Errors
/// [`Error::Invalid`]: no such event.
#[inline]
pub(crate) fn kind_of(arena: &Arena, guid: Guid) -> Result<u8> {
    let event: *mut Event = arena.live(guid, Kind::Event, Error::Invalid)?.cast();
    // SAFETY: alive; the type never changes.
    Ok(unsafe { (*event).kind })
}

/// Type and state of a live event, as text for a report.
pub(crate) fn state(event: *mut Event) -> String {
    // SAFETY: memory of objects is readable; the caller has seen it alive.
    let (kind, fired, count) = unsafe { ((*event).kind, (*event).fired, (*event).count) };
    let fired = if fired { "satisfied" } else { "not satisfied" };
    match kind {
        kind::ONCE => format!("ONCE, {fired}"),
        kind::IDEM => format!("IDEM, {fired}"),
        kind::STICKY => format!("STICKY, {fired}"),
        kind::LATCH => format!("LATCH, count {count}"),
        kind::COUNTED => format!("COUNTED, {fired}, {count} dependences to come"),
        kind::CHANNEL => "CHANNEL".to_owned(),
        _ => "COLLECTIVE".to_owned(),
    }
}

/// Whether the event behind a GUID or label exists and has fired.
pub(crate) fn has_fired(arena: &Arena, guid: Guid) -> bool {
    let guid = if guid.is_label() {
        label::target(arena, guid).unwrap_or(Guid::NULL)
    } else {
        guid
    };
    arena.object(guid).is_ok_and(|header| {
        // SAFETY: memory of objects is always readable.
        unsafe { (*header).is(Kind::Event, guid) && (*header.cast::<Event>()).fired }
    })
}
