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
use std::ptr;

use crate::abi::{ChannelParams, Errno, EventParams, Guid, Result, event_type};
use crate::collective::Collective;
use crate::object::{Header, Kind, guid_of};
use crate::runtime::Runtime;
use crate::worker::{Delivery, Worker};
use crate::{edt, label};

/// A task or event slot that waits for an event.
#[derive(Clone, Copy)]
pub struct Waiter {
    pub(crate) to: Guid,
    pub(crate) slot: u32,
}

const INLINE: usize = 2;

/// An event. The most frequent types fit into 96 bytes.
#[repr(C)]
pub struct Event {
    header: Header,
    // The free list's link uses this space while the object is free.
    _link: usize,
    payload: Guid,
    /// LATCH: the count. COUNTED: dependences still expected.
    count: i64,
    first: [Waiter; INLINE],
    more: *mut Vec<Waiter>,
    extra: *mut Extra,
    waiters: u32,
    kind: u8,
    fired: bool,
}

enum Extra {
    Channel {
        limit: u32,
        data: VecDeque<Guid>,
        sinks: VecDeque<Waiter>,
    },
    Collective(Collective),
}

const _: () = assert!(size_of::<Event>() <= 96);

/// The type of a live event.
///
/// # Errors
/// EINVAL: no such event.
pub fn kind_of(w: &Worker, guid: Guid) -> Result<u32> {
    let event: *mut Event = w.rt.live(guid, Kind::Event, Errno::EINVAL)?.cast();
    // SAFETY: alive; the type never changes.
    Ok(u32::from(unsafe { (*event).kind }))
}

/// Creates an event.
///
/// # Errors
/// EINVAL for an unknown type or impossible parameters, ENOMEM.
pub fn create(w: &mut Worker, kind: u32, params: Option<&EventParams>) -> Result<Guid> {
    let mut count = 0;
    let mut extra = None;
    match kind {
        event_type::ONCE | event_type::IDEM | event_type::STICKY => {}
        event_type::LATCH => {
            // SAFETY: `count` is plain data; any bits are a number.
            count = params.map_or(0, |params| unsafe { params.count }) as i64;
        }
        event_type::COUNTED => {
            // SAFETY: as above. Without parameters, one dependence.
            count = params.map_or(1, |params| unsafe { params.count }) as i64;
            if count < 1 {
                return Err(Errno::EINVAL);
            }
        }
        event_type::CHANNEL => {
            let params = params.map_or(
                ChannelParams {
                    max_generations: u32::MAX,
                    satisfactions: 1,
                    dependences: 1,
                },
                // SAFETY: plain numbers.
                |params| unsafe { params.channel },
            );
            if params.satisfactions != 1 || params.dependences != 1 || params.max_generations == 0 {
                return Err(Errno::EINVAL);
            }
            extra = Some(Extra::Channel {
                limit: params.max_generations,
                data: VecDeque::new(),
                sinks: VecDeque::new(),
            });
        }
        event_type::COLLECTIVE => {
            // SAFETY: plain numbers.
            let params = unsafe { params.ok_or(Errno::EINVAL)?.collective };
            extra = Some(Extra::Collective(Collective::new(&params)?));
        }
        _ => return Err(Errno::EINVAL),
    }
    let event: *mut Event =
        w.rt.arena
            .allocate(&mut w.lists, size_of::<Event>())
            .ok_or(Errno::ENOMEM)?
            .cast();
    // SAFETY: fresh memory of that size; the header stays as it is.
    unsafe {
        (*event).payload = Guid::NULL;
        (*event).count = count;
        (*event).more = ptr::null_mut();
        (*event).extra = extra.map_or(ptr::null_mut(), |extra| Box::into_raw(Box::new(extra)));
        (*event).waiters = 0;
        (*event).kind = kind as u8;
        (*event).fired = false;
        (*event).header.begin(Kind::Event);
        Ok(guid_of(&(*event).header, w.rt.arena.offset(event.cast())))
    }
}

/// The memory of the event behind a GUID, not checked for being alive.
fn find(w: &Worker, guid: Guid) -> Result<*mut Event> {
    w.rt.object(guid).map(<*mut Header>::cast)
}

impl Event {
    fn push_waiter(&mut self, waiter: Waiter) {
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

    /// Sends the payload to all waiters.
    fn fire(&mut self, w: &mut Worker, from: Guid) {
        self.fired = true;
        let payload = self.payload;
        let waiting = std::mem::take(&mut self.waiters) as usize;
        for waiter in &self.first[..waiting.min(INLINE)] {
            w.outbox.push_back(Delivery {
                from,
                to: waiter.to,
                slot: waiter.slot,
                payload,
            });
        }
        if !self.more.is_null() {
            // SAFETY: made by `push_waiter`, taken once, under the event's lock.
            let more = unsafe { Box::from_raw(std::mem::replace(&mut self.more, ptr::null_mut())) };
            w.outbox.extend(more.iter().map(|waiter| Delivery {
                from,
                to: waiter.to,
                slot: waiter.slot,
                payload,
            }));
        }
    }

    fn drop_boxes(&mut self) {
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

/// Whether the GUID is that of a live event.
pub fn exists(w: &Worker, guid: Guid) -> bool {
    // SAFETY: memory of objects is always readable as a header.
    find(w, guid).is_ok_and(|event| unsafe { (*event).header.is(Kind::Event, guid) })
}

/// Whether the GUID is that of a live collective event.
pub fn is_collective(w: &Worker, guid: Guid) -> bool {
    // SAFETY: alive a moment ago; the kind of an event does not change.
    exists(w, guid)
        && find(w, guid)
            .is_ok_and(|event| unsafe { u32::from((*event).kind) } == event_type::COLLECTIVE)
}

/// Type and state of a live event, as text for a report.
pub fn state(event: *mut Event) -> String {
    // SAFETY: memory of objects is readable; the caller has seen it alive.
    let (kind, fired, count) = unsafe { ((*event).kind, (*event).fired, (*event).count) };
    let fired = if fired { "satisfied" } else { "not satisfied" };
    match u32::from(kind) {
        event_type::ONCE => format!("ONCE, {fired}"),
        event_type::IDEM => format!("IDEM, {fired}"),
        event_type::STICKY => format!("STICKY, {fired}"),
        event_type::LATCH => format!("LATCH, count {count}"),
        event_type::COUNTED => format!("COUNTED, {fired}, {count} dependences to come"),
        event_type::CHANNEL => "CHANNEL".to_owned(),
        _ => "COLLECTIVE".to_owned(),
    }
}

/// Whether the event behind a GUID or label exists and has fired.
pub fn has_fired(rt: &Runtime, guid: Guid) -> bool {
    let guid = if label::is_label(guid) {
        label::target(rt, guid).unwrap_or(Guid::NULL)
    } else {
        guid
    };
    rt.object(guid).is_ok_and(|header| {
        // SAFETY: memory of objects is always readable.
        unsafe { (*header).is(Kind::Event, guid) && (*header.cast::<Event>()).fired }
    })
}

/// Runs `body` with a live event under its lock; then frees the event if `body` returns true.
fn with<T>(
    w: &mut Worker,
    guid: Guid,
    body: impl FnOnce(&mut Worker, &mut Event) -> (Result<T>, bool),
) -> Result<T> {
    let event = find(w, guid)?;
    // SAFETY: memory of objects is always readable as a header, alive or not.
    let header = unsafe { &(*event).header };
    let lock = header.lock();
    if !header.is(Kind::Event, guid) {
        return Err(Errno::EINVAL);
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
    find(w, guid).is_ok_and(|event| unsafe { u32::from((*event).kind) } == event_type::LATCH)
}

/// Satisfies one slot of an event without delivering the resulting satisfactions.
fn satisfy_one(w: &mut Worker, guid: Guid, payload: Guid, slot: u32) -> Result<()> {
    if w.rt.recorder.is_some() {
        crate::record::event_satisfied(w, guid, slot_counts(w, guid));
    }
    with(w, guid, |w, event| {
        let twice = event.fired;
        match u32::from(event.kind) {
            event_type::LATCH => {
                if slot > 1 {
                    return (Err(Errno::EINVAL), false);
                }
                event.count += if slot == 1 { 1 } else { -1 };
                if event.count != 0 {
                    return (Ok(()), false);
                }
                event.fire(w, guid);
                (Ok(()), true)
            }
            _ if slot != 0 => (Err(Errno::EINVAL), false),
            event_type::ONCE => {
                event.payload = payload;
                event.fire(w, guid);
                (Ok(()), true)
            }
            event_type::IDEM if twice => (Ok(()), false),
            event_type::STICKY | event_type::COUNTED if twice => (Err(Errno::EINVAL), false),
            event_type::IDEM | event_type::STICKY => {
                event.payload = payload;
                event.fire(w, guid);
                (Ok(()), false)
            }
            event_type::COUNTED => {
                event.payload = payload;
                event.fire(w, guid);
                (Ok(()), event.count == 0)
            }
            // SAFETY: a channel always has its queues.
            _ => match unsafe { event.extra.as_mut() } {
                Some(Extra::Channel { limit, data, sinks }) => {
                    if let Some(sink) = sinks.pop_front() {
                        w.outbox.push_back(Delivery {
                            from: guid,
                            to: sink.to,
                            slot: sink.slot,
                            payload,
                        });
                    } else if data.len() as u64 >= u64::from(*limit) {
                        return (Err(Errno::EINVAL), false);
                    } else {
                        data.push_back(payload);
                    }
                    (Ok(()), false)
                }
                _ => (Err(Errno::EINVAL), false),
            },
        }
    })
}

/// Satisfies a slot of an event and delivers the resulting satisfactions.
///
/// # Errors
/// EINVAL: no such event (any more), no such slot, or satisfied before.
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
                    crate::stuck::describe(w.rt, guid)
                )
            },
        );
    }
}

/// Delivers everything in the worker's outbox, and what those deliveries fire.
pub fn deliver(w: &mut Worker) {
    if w.delivering || w.outbox.is_empty() {
        return;
    }
    w.delivering = true;
    while let Some(Delivery {
        from,
        to,
        slot,
        payload,
    }) = w.outbox.pop_front()
    {
        w.cause = from;
        let result = match edt::satisfy_slot(w, to, slot, payload) {
            Err(Errno::ENOENT) => satisfy_one(w, to, payload, slot),
            result => result,
        };
        w.cause = Guid::NULL;
        if result.is_err() {
            w.complain("an event that fired", || {
                format!(
                    "its dependence {} slot {slot} cannot be satisfied with {}: gone, no such slot, or \
                     satisfied before",
                    crate::stuck::describe(w.rt, to),
                    crate::stuck::describe(w.rt, payload)
                )
            });
        }
    }
    w.delivering = false;
}

/// Adds a dependence on an event: satisfied at once if the event has fired, else when it fires.
///
/// # Errors
/// EINVAL: no such event (any more), or too many dependences.
pub fn add_waiter(w: &mut Worker, guid: Guid, waiter: Waiter) -> Result<()> {
    let result = with(w, guid, |w, event| {
        let kind = u32::from(event.kind);
        if kind == event_type::COUNTED {
            event.count -= 1;
            if event.count < 0 {
                return (Err(Errno::EINVAL), false);
            }
        }
        // SAFETY: the queues are the event's, under its lock.
        match unsafe { event.extra.as_mut() } {
            Some(Extra::Channel { limit, data, sinks }) => {
                if let Some(payload) = data.pop_front() {
                    w.outbox.push_back(Delivery {
                        from: guid,
                        to: waiter.to,
                        slot: waiter.slot,
                        payload,
                    });
                } else if sinks.len() as u64 >= u64::from(*limit) {
                    return (Err(Errno::EINVAL), false);
                } else {
                    sinks.push_back(waiter);
                }
                return (Ok(()), false);
            }
            Some(Extra::Collective(_)) => return (Err(Errno::EINVAL), false),
            None => {}
        }
        if event.fired {
            w.outbox.push_back(Delivery {
                from: guid,
                to: waiter.to,
                slot: waiter.slot,
                payload: event.payload,
            });
            (Ok(()), kind == event_type::COUNTED && event.count == 0)
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
    if w.rt.recorder.is_some() {
        crate::record::event_satisfied(w, guid, true);
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
            return (Err(Errno::EINVAL), false);
        };
        let result = body(collective);
        ready = collective.complete();
        (result, false)
    });
    for (values, waiters) in ready {
        for waiter in waiters {
            // Each receiver owns its copy, as with received messages.
            let payload = crate::block::create_filled(w, &values)?;
            w.outbox.push_back(Delivery {
                from: guid,
                to: waiter.to,
                slot: waiter.slot,
                payload,
            });
        }
    }
    deliver(w);
    result
}

/// Destroys an event. Its waiters are not satisfied.
///
/// # Errors
/// EINVAL: no such event (any more).
pub fn destroy(w: &mut Worker, guid: Guid) -> Result<()> {
    let guid = label::resolve(w, guid)?;
    with(w, guid, |_, _| (Ok(()), true))
}

/// The payload of an event, if it has fired.
///
/// # Errors
/// EINVAL: no such event (any more).
pub fn payload(w: &mut Worker, guid: Guid) -> Result<Option<Guid>> {
    with(w, guid, |_, event| {
        (Ok(event.fired.then_some(event.payload)), false)
    })
}
