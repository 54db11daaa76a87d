//! Events, and dependences on them.

use std::ffi::c_void;
use std::ptr;

use numaloc_tasks::error::Error;
use numaloc_tasks::objects::{blocks, dependences, events, labelled, labels};
use numaloc_tasks::observe::replay;
use numaloc_tasks::state::Worker;

use super::abi::{COLLECTIVE, EventParams, Guid, new_event, occupied, property};
use super::call::{Given, effect, nothing};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrEventCreate(guid: *mut Guid, kind: u32, properties: u16) -> u8 {
    // SAFETY: ocr.h.
    unsafe { ocrEventCreateParams(guid, kind, properties, ptr::null()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrEventCreateParams(
    guid: *mut Guid,
    kind: u32,
    properties: u16,
    params: *const EventParams,
) -> u8 {
    // SAFETY: ocr.h.
    let (guid, params) = unsafe { (guid.as_mut(), params.as_ref()) };
    let Some(guid) = guid else {
        return effect("ocrEventCreate", &[], invalid, invalid);
    };
    let under_label = properties & property::LABELED != 0;
    let (label, created) = (*guid, ptr::from_mut(guid));
    let replayed = |_: &mut Worker| {
        if !under_label {
            // SAFETY: a reference a moment ago.
            unsafe { created.write(replay::fake_guid()) };
        }
        Ok(())
    };
    effect("ocrEventCreate", &[], replayed, |w| {
        if !under_label {
            let event = events::create(w, &new_event(kind, params)?)?;
            // SAFETY: as above.
            unsafe { created.write(event) };
            return Ok(());
        }
        // Every contributor creates the collective event; all these calls yield the same one.
        let shared = |w: &Worker, old| kind == COLLECTIVE && events::is_collective(w, old);
        labelled::create_under(w, label, occupied(properties), shared, |w| {
            events::create(w, &new_event(kind, params)?)
        })
    })
}

fn invalid(_: &mut Worker) -> Result<(), Error> {
    Err(Error::Invalid)
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrEventDestroy(guid: Guid) -> u8 {
    let given = [Given::Guid("event", guid)];
    effect("ocrEventDestroy", &given, nothing, |w| {
        events::destroy(w, guid)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrEventSatisfy(guid: Guid, data: Guid) -> u8 {
    ocrEventSatisfySlot(guid, data, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrEventSatisfySlot(guid: Guid, data: Guid, slot: u32) -> u8 {
    let given = [
        Given::Guid("event", guid),
        Given::Slot("slot", slot),
        Given::Guid("data", data),
    ];
    effect("ocrEventSatisfy", &given, nothing, |w| {
        let guid = labels::resolve(w, guid)?;
        let data = labels::resolve(w, data)?;
        events::satisfy(w, guid, data, slot)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrEventCollectiveSatisfySlot(
    guid: Guid,
    data: *const c_void,
    slot: u32,
) -> u8 {
    let given = [Given::Guid("event", guid), Given::Slot("slot", slot)];
    effect("ocrEventCollectiveSatisfySlot", &given, nothing, |w| {
        let guid = labels::resolve(w, guid)?;
        // SAFETY: ocr.h: as many values as the event was created for.
        unsafe { events::contribute(w, guid, slot, data.cast()) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrAddDependence(source: Guid, destination: Guid, slot: u32, mode: u32) -> u8 {
    let given = [
        Given::Guid("source", source),
        Given::Guid("destination", destination),
        Given::Slot("slot", slot),
    ];
    effect("ocrAddDependence", &given, nothing, |w| {
        dependences::add(w, source, destination, slot, mode)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrAddDependenceSlot(
    source: Guid,
    source_slot: u32,
    destination: Guid,
    slot: u32,
    mode: u32,
) -> u8 {
    let given = [
        Given::Guid("source", source),
        Given::Slot("source slot", source_slot),
        Given::Guid("destination", destination),
        Given::Slot("slot", slot),
    ];
    effect("ocrAddDependenceSlot", &given, nothing, |w| {
        match dependences::add_collective(w, source, source_slot, destination, slot, mode) {
            // Only collective events have more than one output.
            Err(_) if source_slot == 0 => dependences::add(w, source, destination, slot, mode),
            result => result,
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrAddDependenceByValue(
    source: Guid,
    destination: Guid,
    slot: u32,
    mode: u32,
) -> u8 {
    let given = [
        Given::Guid("source", source),
        Given::Guid("destination", destination),
        Given::Slot("slot", slot),
    ];
    effect("ocrAddDependenceByValue", &given, nothing, |w| {
        let source = labels::resolve(w, source)?;
        let copy = if source.is_null() {
            Guid::NULL
        } else {
            blocks::copy(w, source)?
        };
        dependences::add(w, copy, destination, slot, mode)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrGroupBegin() -> u8 {
    // A group lets a distributed runtime hand blocks over instead of copying; here it changes nothing.
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrGroupEnd() -> u8 {
    0
}
