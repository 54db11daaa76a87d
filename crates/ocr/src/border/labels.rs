//! Ranges and maps of labels, and the kinds of GUIDs.

use numaloc_tasks::error::Error;
use numaloc_tasks::objects::label::MapFunction;
use numaloc_tasks::objects::labels;
use numaloc_tasks::observe::replay;
use numaloc_tasks::state::Worker;

use super::abi::Guid;
use super::call::{Given, effect, fake, nothing, put, query};
use super::kinds;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrGuidRangeCreate(guid: *mut Guid, count: u64, _kind: u32) -> u8 {
    // SAFETY: ocr.h.
    let replayed = unsafe { fake(guid) };
    effect("ocrGuidRangeCreate", &[], replayed, |w| {
        let range = labels::create_range(w, count)?;
        // SAFETY: ocr.h.
        unsafe { put(guid, range) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrGuidFromIndex(guid: *mut Guid, range: Guid, at: u64) -> u8 {
    let given = [Given::Guid("range", range)];
    let replayed = |w: &mut Worker| {
        // The range itself may be one that the replay pretended to create.
        let label = labels::label(w, range, at).unwrap_or(replay::fake_guid());
        // SAFETY: ocr.h.
        unsafe { put(guid, label) };
        Ok(())
    };
    effect("ocrGuidFromIndex", &given, replayed, |w| {
        let label = labels::label(w, range, at)?;
        // SAFETY: ocr.h.
        unsafe { put(guid, label) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrGuidMapDestroy(guid: Guid) -> u8 {
    let given = [Given::Guid("range", guid)];
    effect("ocrGuidMapDestroy", &given, nothing, |w| {
        labels::destroy_range(w, guid)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrGuidMapCreate(
    guid: *mut Guid,
    param_count: u32,
    function: Option<MapFunction>,
    params: *const i64,
    count: u64,
    _kind: u32,
) -> u8 {
    let checked = || match function {
        Some(function) if param_count == 0 || !params.is_null() => Ok(function),
        _ => Err(Error::Invalid),
    };
    let replayed = |_: &mut Worker| {
        checked()?;
        // SAFETY: ocr.h.
        unsafe { put(guid, replay::fake_guid()) };
        Ok(())
    };
    effect("ocrGuidMapCreate", &[], replayed, |w| {
        let function = checked()?;
        let params = if param_count == 0 {
            Vec::new()
        } else {
            // SAFETY: ocr.h: that many, and not null.
            unsafe { std::slice::from_raw_parts(params, param_count as usize) }.to_vec()
        };
        let map = labels::create_map(w, count, function, params)?;
        // SAFETY: ocr.h.
        unsafe { put(guid, map) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrGuidFromLabel(guid: *mut Guid, map: Guid, tuple: *mut i64) -> u8 {
    let given = [Given::Guid("map", map)];
    let replayed = |w: &mut Worker| {
        // SAFETY: ocr.h: the tuple is what the map's function expects.
        let label = unsafe { labels::from_tuple(w, map, tuple) }.unwrap_or(replay::fake_guid());
        // SAFETY: ocr.h.
        unsafe { put(guid, label) };
        Ok(())
    };
    effect("ocrGuidFromLabel", &given, replayed, |w| {
        // SAFETY: ocr.h: the tuple is what the map's function expects.
        let label = unsafe { labels::from_tuple(w, map, tuple) }?;
        // SAFETY: ocr.h.
        unsafe { put(guid, label) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrGetGuidKind(kind: *mut u32, guid: Guid) -> u8 {
    query("ocrGetGuidKind", &[], |w| {
        // SAFETY: ocr.h.
        unsafe { put(kind, kinds::of(w, guid)) };
        Ok(())
    })
}
