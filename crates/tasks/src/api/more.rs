//! Calls of the reference implementation that few programs use: label maps, GUID kinds, copies between data blocks,
//! allocation inside data blocks.

use std::ffi::c_void;

use super::{Given, call, call_with, put};
use crate::abi::{Dep, Errno, Guid, Result, event_type, mode};
use crate::edt;
use crate::label::{self, MapFunction};
use crate::worker::{NO_NODE, Worker};
use crate::{block, event, kinds, replay};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrGuidMapCreate(
    guid: *mut Guid,
    param_count: u32,
    function: Option<MapFunction>,
    params: *const i64,
    count: u64,
    _kind: u32,
) -> u8 {
    call("ocrGuidMapCreate", |w| {
        let function = function.ok_or(Errno::EINVAL)?;
        if params.is_null() && param_count > 0 {
            return Err(Errno::EINVAL);
        }
        let map = if replay::active() {
            replay::fake_guid()
        } else {
            let params = if param_count == 0 {
                Vec::new()
            } else {
                // SAFETY: ocr.h: that many, and not null.
                unsafe { std::slice::from_raw_parts(params, param_count as usize) }.to_vec()
            };
            label::create_map(w, count, function, params)?
        };
        // SAFETY: ocr.h.
        unsafe { put(guid, map) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrGuidFromLabel(guid: *mut Guid, map: Guid, tuple: *mut i64) -> u8 {
    call_with("ocrGuidFromLabel", &[Given::Guid("map", map)], |w| {
        // SAFETY: ocr.h: the tuple is what the map's function expects.
        let label = match unsafe { label::from_tuple(w, map, tuple) } {
            Err(_) if replay::active() => replay::fake_guid(),
            label => label?,
        };
        // SAFETY: ocr.h.
        unsafe { put(guid, label) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrGetGuidKind(kind: *mut u32, guid: Guid) -> u8 {
    call("ocrGetGuidKind", |w| {
        // SAFETY: ocr.h.
        unsafe { put(kind, kinds::of(w, guid)) };
        Ok(())
    })
}

/// The copy task: slot 0 is the destination, slot 1 the source; parameters are both offsets and the byte count.
unsafe extern "C" fn copy(_: u32, params: *mut u64, _: u32, slots: *mut Dep) -> Guid {
    // SAFETY: three parameters and two different blocks; offsets and byte count were checked against the block sizes.
    unsafe {
        let [to, from, bytes] = [0, 1, 2].map(|at| *params.add(at) as usize);
        let (destination, source) = (&*slots, &*slots.add(1));
        std::ptr::copy_nonoverlapping(
            source.ptr.cast::<u8>().add(from),
            destination.ptr.cast::<u8>().add(to),
            bytes,
        );
        destination.guid
    }
}

fn holds(w: &Worker, block: Guid, offset: u64, bytes: u64) -> Result<()> {
    let size = block::size_of_live(block::find(w, block)?);
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Errno::ENOMEM),
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
    call_with("ocrDbCopy", &given, |w| {
        if replay::active() {
            // SAFETY: ocr.h.
            unsafe { put(completion, replay::fake_guid()) };
            return Ok(());
        }
        let (to, from) = (label::resolve(w, destination)?, label::resolve(w, source)?);
        holds(w, to, destination_offset, bytes)?;
        holds(w, from, source_offset, bytes)?;
        if to == from {
            return Err(Errno::EPERM);
        }
        let name = w.rt.names.number("ocrDbCopy");
        let template = edt::create_template(w, copy, 3, 2, name)?;
        // Sticky: the copy may be done before the caller adds its dependence, and a ONCE event would be gone by then.
        let output = if completion.is_null() {
            Guid::NULL
        } else {
            event::create(w, event_type::STICKY, None)?
        };
        let new = edt::New {
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
            let (task, guid, _) = edt::create(w, &new, params.as_ptr())?;
            edt::destroy_template(w, template)?;
            put(completion, output);
            edt::start(w, task, guid, std::ptr::null())?;
            edt::add_dependence(w, to, guid, 0, mode::RW)?;
            edt::add_dependence(w, from, guid, 1, mode::RO)
        }
    })
}

/// Allocation inside blocks is not supported: blocks are created with NO_ALLOC, the only such allocator OCR names.
fn no_allocator() -> u8 {
    Errno::EINVAL.0
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
