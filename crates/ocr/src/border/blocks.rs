//! Data blocks.

use std::ffi::c_void;
use std::ptr;

use numaloc_tasks::NO_NODE;
use numaloc_tasks::error::{Error, Result};
use numaloc_tasks::objects::{blocks, dependences, event, events, labelled, labels, tasks};
use numaloc_tasks::observe::replay;
use numaloc_tasks::state::Worker;

use super::abi::{Dep, EINVAL, Guid, Hint, mode, occupied, property};
use super::call::{Given, effect, fake, nothing, put, query};
use super::hint;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrDbCreate(
    guid: *mut Guid,
    address: *mut *mut c_void,
    size: u64,
    flags: u16,
    hint: *const Hint,
    _allocator: u32,
) -> u8 {
    let acquire = flags & property::DB_NO_ACQUIRE == 0;
    let replayed = |_: &mut Worker| {
        // SAFETY: ocr.h.
        unsafe {
            put(guid, replay::fake_guid());
            let data = if acquire {
                replay::scratch(size)?
            } else {
                ptr::null_mut()
            };
            put(address, data.cast());
        }
        Ok(())
    };
    effect("ocrDbCreate", &[], replayed, |w| {
        let new = blocks::New {
            size,
            acquire,
            // SAFETY: ocr.h.
            hinted: hint::block_node(unsafe { hint.as_ref() }, w.nodes()),
        };
        let mut data = ptr::null_mut();
        // SAFETY: ocr.h.
        unsafe {
            if flags & property::LABELED != 0 && !guid.is_null() {
                let create = |w: &mut Worker| {
                    let (created, memory) = blocks::create(w, &new)?;
                    data = memory;
                    Ok(created)
                };
                labelled::create_under(w, *guid, occupied(flags), |_, _| false, create)?;
            } else {
                let (created, memory) = blocks::create(w, &new)?;
                data = memory;
                put(guid, created);
            }
            if !acquire {
                data = ptr::null_mut();
            }
            put(address, data.cast());
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrDbRelease(guid: Guid) -> u8 {
    let given = [Given::Guid("data block", guid)];
    effect("ocrDbRelease", &given, nothing, |w| {
        blocks::release_early(w, guid)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrDbDestroy(guid: Guid) -> u8 {
    let given = [Given::Guid("data block", guid)];
    effect("ocrDbDestroy", &given, nothing, |w| {
        blocks::destroy(w, guid)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrDbGetSize(guid: Guid, size: *mut u64) -> u8 {
    query("ocrDbGetSize", &[Given::Guid("data block", guid)], |w| {
        let bytes = blocks::size_of_held(w, guid)?;
        // SAFETY: ocr.h.
        unsafe { put(size, bytes) };
        Ok(())
    })
}

/// The copy task: slot 0 is the destination, slot 1 the source; parameters are both offsets and the byte count.
unsafe extern "C" fn copy(_: u32, params: *mut u64, _: u32, slots: *mut Dep) -> Guid {
    // SAFETY: three parameters and two different blocks; offsets and byte count were checked against the block sizes.
    unsafe {
        let [to, from, bytes] = [0, 1, 2].map(|at| *params.add(at) as usize);
        let (destination, source) = (&*slots, &*slots.add(1));
        ptr::copy_nonoverlapping(
            source.ptr.cast::<u8>().add(from),
            destination.ptr.cast::<u8>().add(to),
            bytes,
        );
        destination.guid
    }
}

/// Fails unless the block has that many bytes from the offset on.
fn holds(w: &Worker, block: Guid, offset: u64, bytes: u64) -> Result<()> {
    let size = blocks::size(w, block)?;
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::OutOfMemory),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrDbCopy(
    destination: Guid,
    destination_offset: u64,
    source: Guid,
    source_offset: u64,
    bytes: u64,
    _copy_type: u64,
    completion: *mut Guid,
) -> u8 {
    let given = [
        Given::Guid("destination", destination),
        Given::Guid("source", source),
    ];
    // SAFETY: ocr.h.
    let replayed = unsafe { fake(completion) };
    effect("ocrDbCopy", &given, replayed, |w| {
        let to = labels::resolve(w, destination)?;
        let from = labels::resolve(w, source)?;
        holds(w, to, destination_offset, bytes)?;
        holds(w, from, source_offset, bytes)?;
        if to == from {
            return Err(Error::NotNow);
        }
        // SAFETY: a C string.
        let name = unsafe { tasks::name(w, copy, c"ocrDbCopy".as_ptr()) };
        let template = tasks::create_template(w, copy, 3, 2, name)?;
        // Sticky: the copy may be done before the caller adds its dependence, and a ONCE event would be gone by then.
        let output = if completion.is_null() {
            Guid::NULL
        } else {
            events::create(w, &event::New::Sticky)?
        };
        let new = tasks::New {
            template,
            paramc: 3,
            depc: 2,
            finish: false,
            hinted: NO_NODE,
            output,
            want_output: false,
        };
        let params = [destination_offset, source_offset, bytes];
        // SAFETY: three parameters; the slots are satisfied below, after the caller has the event.
        unsafe {
            let (task, guid, _) = tasks::create(w, &new, params.as_ptr())?;
            tasks::destroy_template(w, template)?;
            put(completion, output);
            tasks::start(w, task, guid, ptr::null())?;
            dependences::add(w, to, guid, 0, mode::RW)?;
            dependences::add(w, from, guid, 1, mode::RO)
        }
    })
}

/// Allocation inside blocks is not supported: blocks are created with NO_ALLOC, the only such allocator OCR names.
fn no_allocator() -> u8 {
    EINVAL
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrDbMalloc(_: Guid, _: u64, _: *mut *mut c_void) -> u8 {
    no_allocator()
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrDbMallocOffset(_: Guid, _: u64, _: *mut u64) -> u8 {
    no_allocator()
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrDbFree(_: Guid, _: *mut c_void) -> u8 {
    no_allocator()
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrDbFreeOffset(_: Guid, _: u64) -> u8 {
    no_allocator()
}
