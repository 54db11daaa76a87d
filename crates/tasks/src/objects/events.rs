//! Events: their types, when they fire and when they are destroyed.
//!
//! | type | fires | second satisfaction | destroyed |
//! |---|---|---|---|
//! | ONCE | when satisfied | stale GUID | when it fires |
//! | IDEM | when satisfied | ignored | by ocrEventDestroy |
//! | STICKY | when satisfied | OCR_EINVAL | by ocrEventDestroy |
//! | LATCH | when increments equal decrements | counts | when it fires |
//! | COUNTED | when satisfied | OCR_EINVAL | satisfied and `nbDeps` dependences served |
//! | CHANNEL | n-th satisfaction meets n-th dependence | next generation | by ocrEventDestroy |
//! | COLLECTIVE | all contributors' n-th contribution is there | next generation | by ocrEventDestroy |
//!
//! A dependence added to an event that has fired (and still exists) is satisfied at once. Firing does not recurse:
//! satisfactions are queued in the worker's outbox, so a chain of a million events needs no stack.

use std::collections::VecDeque;

use super::collective::Collective;
use super::delivery::{Delivery, Waiter};
use super::describe::describe;
use super::event::{self, Event, Extra, New, kind};
use super::header::Kind;
use super::{blocks, labels, slots};
use crate::error::{Error, Result};
use crate::guid::Guid;
use crate::state::Worker;

/// Creates an event.
///
/// # Errors
/// [`Error::Invalid`] for impossible parameters, [`Error::OutOfMemory`].
#[inline]
pub fn create(w: &mut Worker, new: &New) -> Result<Guid> {
    let (kind, count, extra) = match *new {
        New::Once => (kind::ONCE, 0, None),
        New::Idem => (kind::IDEM, 0, None),
        New::Sticky => (kind::STICKY, 0, None),
        New::Latch { count } => (kind::LATCH, count, None),
        New::Counted { dependences } if dependences < 1 => return Err(Error::Invalid),
        New::Counted { dependences } => (kind::COUNTED, dependences, None),
        New::Channel { limit: 0 } => return Err(Error::Invalid),
        New::Channel { limit } => {
            let extra = Extra::Channel {
                limit,
                data: VecDeque::new(),
                sinks: VecDeque::new(),
            };
            (kind::CHANNEL, 0, Some(extra))
        }
        New::Collective(params) => {
            let extra = Extra::Collective(Collective::new(&params)?);
            (kind::COLLECTIVE, 0, Some(extra))
        }
    };
    let event: *mut Event =
        w.rt.arena
            .allocate(&mut w.lists, size_of::<Event>())
            .ok_or(Error::OutOfMemory)?
            .cast();
    // SAFETY: fresh memory of that size.
    unsafe {
        Event::set_up(event, kind, count, extra);
        Ok(w.rt.arena.guid(event.cast()))
    }
}

/// The type of a live event, one of [`kind`].
///
/// # Errors
/// [`Error::Invalid`]: no such event.
#[inline]
pub fn kind_of(w: &Worker, guid: Guid) -> Result<u8> {
    event::kind_of(&w.rt.arena, guid)
}

/// Whether the GUID is that of a live event.
#[inline]
pub fn exists(w: &Worker, guid: Guid) -> bool {
    kind_of(w, guid).is_ok()
}

/// Whether the GUID is that of a live collective event.
pub fn is_collective(w: &Worker, guid: Guid) -> bool {
    kind_of(w, guid) == Ok(kind::COLLECTIVE)
}

/// Runs `body` with a live event under its lock; then frees the event if `body` returns true.
fn with<T>(
    w: &mut Worker,
    guid: Guid,
    body: impl FnOnce(&mut Worker, &mut Event) -> (Result<T>, bool),
) -> Result<T> {
    let event = event::find(&w.rt.arena, guid)?;
    // SAFETY: memory of objects is always readable as a header, alive or not.
    let header = unsafe { &(*event).header };
    let lock = header.lock();
    if !header.is(Kind::Event, guid) {
        return Err(Error::Invalid);
    }
    // SAFETY: alive, and ours while locked.
    let (result, gone) = body(w, unsafe { &mut *event });
    if gone {
        // SAFETY: as above; ends the event's life before releasing the lock.
        unsafe {
            (*event).drop_boxes();
            header.end();
        }
    }
    drop(lock);
    if gone {
        // SAFETY: its life ended under the lock, which other threads that wait for the lock will see.
        unsafe { w.rt.arena.release_ended(&mut w.lists, event.cast()) };
    }
    result
}

/// Whether the event fires only after several satisfactions.
fn slot_counts(w: &Worker, guid: Guid) -> bool {
    // SAFETY: memory of objects is readable; the kind of an event does not change.
    event::find(&w.rt.arena, guid).is_ok_and(|event| unsafe { (*event).kind } == kind::LATCH)
}

/// Satisfies one slot of an event without delivering the resulting satisfactions.
fn satisfy_one(w: &mut Worker, guid: Guid, payload: Guid, slot: u32) -> Result<()> {
    if let Some(observer) = &w.rt.observer {
        observer.event_satisfied(w, guid, slot_counts(w, guid));
    }
    with(w, guid, |w, event| {
        satisfy_locked(&mut w.outbox, event, guid, payload, slot)
    })
}

/// Satisfies one slot of a locked event. Returns the result, and whether the event's life ends.
fn satisfy_locked(
    outbox: &mut VecDeque<Delivery>,
    event: &mut Event,
    guid: Guid,
    payload: Guid,
    slot: u32,
) -> (Result<()>, bool) {
    let twice = event.fired;
    match event.kind {
        kind::LATCH => {
            if slot > 1 {
                return (Err(Error::Invalid), false);
            }
            event.count += if slot == 1 { 1 } else { -1 };
            if event.count != 0 {
                return (Ok(()), false);
            }
            event.fire(outbox, guid);
            (Ok(()), true)
        }
        _ if slot != 0 => (Err(Error::Invalid), false),
        kind::IDEM if twice => (Ok(()), false),
        kind::STICKY | kind::COUNTED if twice => (Err(Error::Invalid), false),
        kind::ONCE | kind::IDEM | kind::STICKY | kind::COUNTED => {
            event.payload = payload;
            event.fire(outbox, guid);
            let served = event.kind == kind::COUNTED && event.count == 0;
            (Ok(()), event.kind == kind::ONCE || served)
        }
        // SAFETY: a channel always has its queues.
        _ => match unsafe { event.extra.as_mut() } {
            Some(Extra::Channel { limit, data, sinks }) => {
                if let Some(sink) = sinks.pop_front() {
                    outbox.push_back(sink.delivery(guid, payload));
                } else if data.len() as u64 >= u64::from(*limit) {
                    return (Err(Error::Invalid), false);
                } else {
                    data.push_back(payload);
                }
                (Ok(()), false)
            }
            _ => (Err(Error::Invalid), false),
        },
    }
}

/// Satisfies a slot of an event and delivers the resulting satisfactions.
///
/// # Errors
/// [`Error::Invalid`]: no such event (any more), no such slot, or satisfied before.
#[inline]
pub fn satisfy(w: &mut Worker, guid: Guid, payload: Guid, slot: u32) -> Result<()> {
    let result = satisfy_one(w, guid, payload, slot);
    deliver(w);
    result
}

/// As [`satisfy`], for satisfactions that the runtime itself makes: errors are reported, not returned.
pub fn satisfy_quietly(w: &mut Worker, guid: Guid, payload: Guid, slot: u32) {
    if satisfy(w, guid, payload, slot).is_err() {
        w.complain(
            "an output event was satisfied by the end of its task",
            || {
                format!(
                    "{} was satisfied before, or is gone; add dependences on an output event \
                 before its task can run, and satisfy it nowhere else",
                    describe(w.rt, guid)
                )
            },
        );
    }
}

/// Delivers everything in the worker's outbox, and what those deliveries fire.
#[inline]
fn deliver(w: &mut Worker) {
    if !w.delivering && !w.outbox.is_empty() {
        deliver_all(w);
    }
}

fn deliver_all(w: &mut Worker) {
    w.delivering = true;
    while let Some(Delivery {
        from,
        to,
        slot,
        payload,
    }) = w.outbox.pop_front()
    {
        w.cause = from;
        let result = match slots::satisfy(w, to, slot, payload) {
            Err(Error::NotATask) => satisfy_one(w, to, payload, slot),
            result => result,
        };
        w.cause = Guid::NULL;
        if result.is_err() {
            w.complain("an event that fired", || {
                format!(
                    "its dependence {} slot {slot} cannot be satisfied with {}: gone, no such slot, or \
                     satisfied before",
                    describe(w.rt, to),
                    describe(w.rt, payload)
                )
            });
        }
    }
    w.delivering = false;
}

/// Adds a dependence on an event: satisfied at once if the event has fired, else when it fires.
///
/// # Errors
/// [`Error::Invalid`]: no such event (any more), or too many dependences.
pub fn add_waiter(w: &mut Worker, guid: Guid, waiter: Waiter) -> Result<()> {
    let result = with(w, guid, |w, event| {
        let of = event.kind;
        if of == kind::COUNTED {
            event.count -= 1;
            if event.count < 0 {
                return (Err(Error::Invalid), false);
            }
        }
        // SAFETY: the queues are the event's, under its lock.
        match unsafe { event.extra.as_mut() } {
            Some(Extra::Channel { limit, data, sinks }) => {
                if let Some(payload) = data.pop_front() {
                    w.outbox.push_back(waiter.delivery(guid, payload));
                } else if sinks.len() as u64 >= u64::from(*limit) {
                    return (Err(Error::Invalid), false);
                } else {
                    sinks.push_back(waiter);
                }
                return (Ok(()), false);
            }
            Some(Extra::Collective(_)) => return (Err(Error::Invalid), false),
            None => {}
        }
        if event.fired {
            w.outbox.push_back(waiter.delivery(guid, event.payload));
            (Ok(()), of == kind::COUNTED && event.count == 0)
        } else {
            event.push_waiter(waiter);
            (Ok(()), false)
        }
    });
    deliver(w);
    result
}

/// Adds a waiter to a contributor's slot of a collective event; it receives the result.
pub fn add_collective_waiter(w: &mut Worker, guid: Guid, from: u32, to: Waiter) -> Result<()> {
    collective(w, guid, |collective| collective.add_waiter(from, to))
}

/// Adds a contribution to a collective event.
///
/// # Safety
/// `data` holds as many values as the event's parameters say.
pub unsafe fn contribute(w: &mut Worker, guid: Guid, from: u32, data: *const u8) -> Result<()> {
    if let Some(observer) = &w.rt.observer {
        observer.event_satisfied(w, guid, true);
    }
    // SAFETY: the caller's promise.
    collective(w, guid, |collective| unsafe {
        collective.contribute(from, data)
    })
}

fn collective(
    w: &mut Worker,
    guid: Guid,
    body: impl FnOnce(&mut Collective) -> Result<()>,
) -> Result<()> {
    let mut ready = Vec::new();
    let result = with(w, guid, |_, event| {
        // SAFETY: the event's, under its lock.
        let Some(Extra::Collective(collective)) = (unsafe { event.extra.as_mut() }) else {
            return (Err(Error::Invalid), false);
        };
        let result = body(collective);
        ready = collective.complete();
        (result, false)
    });
    for (values, waiters) in ready {
        for waiter in waiters {
            // Each receiver owns its copy, as with received messages.
            let payload = blocks::create_filled(w, &values)?;
            w.outbox.push_back(waiter.delivery(guid, payload));
        }
    }
    deliver(w);
    result
}

/// Destroys an event. Its waiters are not satisfied.
///
/// # Errors
/// [`Error::Invalid`]: no such event (any more).
pub fn destroy(w: &mut Worker, guid: Guid) -> Result<()> {
    let guid = labels::resolve(w, guid)?;
    with(w, guid, |_, _| (Ok(()), true))
}

/// The payload of an event, if it has fired.
///
/// # Errors
/// [`Error::Invalid`]: no such event (any more).
pub fn payload(w: &mut Worker, guid: Guid) -> Result<Option<Guid>> {
    with(w, guid, |_, event| {
        (Ok(event.fired.then_some(event.payload)), false)
    })
}
