//! Affinities and hints.

use numaloc_tasks::NO_NODE;
use numaloc_tasks::error::Error;
use numaloc_tasks::objects::{blocks, labels, tasks};
use numaloc_tasks::state::Worker;

use super::abi::{EINVAL, ENOENT, Guid, Hint, errno};
use super::call::{Given, effect, put, query};
use super::hint;

const AFFINITY_PD: u32 = 1;

fn affinities(w: &Worker, kind: u32) -> u64 {
    if kind == AFFINITY_PD {
        w.nodes() as u64
    } else {
        1
    }
}

fn affinity(w: &Worker, kind: u32, at: u64) -> Guid {
    Guid::of_affinity(if kind == AFFINITY_PD {
        at as u16
    } else {
        w.node()
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrAffinityCount(kind: u32, count: *mut u64) -> u8 {
    query("ocrAffinityCount", &[], |w| {
        // SAFETY: ocr.h.
        unsafe { put(count, affinities(w, kind)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrAffinityGet(kind: u32, count: *mut u64, out: *mut Guid) -> u8 {
    query("ocrAffinityGet", &[], |w| {
        if count.is_null() || out.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: ocr.h: room for *count GUIDs.
        unsafe {
            *count = (*count).min(affinities(w, kind));
            for at in 0..*count {
                out.add(at as usize).write(affinity(w, kind, at));
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrAffinityGetAt(kind: u32, at: u64, out: *mut Guid) -> u8 {
    query("ocrAffinityGetAt", &[], |w| {
        if at >= affinities(w, kind) {
            return Err(Error::Invalid);
        }
        // SAFETY: ocr.h.
        unsafe { put(out, affinity(w, kind, at)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrAffinityGetCurrent(out: *mut Guid) -> u8 {
    query("ocrAffinityGetCurrent", &[], |w| {
        // SAFETY: ocr.h.
        unsafe { put(out, Guid::of_affinity(w.node())) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrAffinityQuery(guid: Guid, count: *mut u64, out: *mut Guid) -> u8 {
    query("ocrAffinityQuery", &[Given::Guid("object", guid)], |w| {
        if count.is_null() || out.is_null() {
            return Err(Error::Invalid);
        }
        let node = if guid.is_null() {
            w.node()
        } else {
            let guid = labels::resolve(w, guid)?;
            match blocks::node_of(w, guid) {
                Ok(node) => node.unwrap_or(w.node()),
                Err(_) => tasks::node_of(w, guid).unwrap_or(w.node()),
            }
        };
        // SAFETY: ocr.h.
        unsafe {
            if *count > 0 {
                *count = 1;
                *out = Guid::of_affinity(node);
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrAffinityToHintValue(affinity: Guid) -> u64 {
    affinity.0 as u64
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrHintInit(hint: *mut Hint, kind: u32) -> u8 {
    if hint.is_null() || kind > 4 {
        return EINVAL;
    }
    // SAFETY: ocr.h.
    unsafe {
        hint.write(Hint {
            kind,
            ..Hint::default()
        })
    };
    0
}

/// Runs `body` with a hint and the index of one of its properties.
unsafe fn with_hint(hint: *mut Hint, property: u32, body: impl FnOnce(&mut Hint, usize)) -> u8 {
    // SAFETY: ocr.h.
    let Some(hint) = (unsafe { hint.as_mut() }) else {
        return EINVAL;
    };
    match hint::index(hint, property) {
        Ok(at) => {
            body(hint, at);
            0
        }
        Err(error) => errno(error).0,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrHintSetValue(hint: *mut Hint, property: u32, value: u64) -> u8 {
    // SAFETY: ocr.h.
    unsafe {
        with_hint(hint, property, |hint, at| {
            hint.mask |= 1 << at;
            hint.args[at] = value;
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrHintUnsetValue(hint: *mut Hint, property: u32) -> u8 {
    // SAFETY: ocr.h.
    unsafe { with_hint(hint, property, |hint, at| hint.mask &= !(1 << at)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrHintGetValue(hint: *mut Hint, property: u32, value: *mut u64) -> u8 {
    let mut set = false;
    // SAFETY: ocr.h.
    let status = unsafe {
        with_hint(hint, property, |hint, at| {
            set = hint.mask & (1 << at) != 0;
            if set {
                put(value, hint.args[at]);
            }
        })
    };
    match status {
        0 if !set => ENOENT,
        status => status,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrSetHintValue(hint: *mut Hint, property: u32, value: u64) -> u8 {
    // SAFETY: ocr.h.
    unsafe { ocrHintSetValue(hint, property, value) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrUnsetHintValue(hint: *mut Hint, property: u32) -> u8 {
    // SAFETY: ocr.h.
    unsafe { ocrHintUnsetValue(hint, property) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrGetHintValue(hint: *mut Hint, property: u32, value: *mut u64) -> u8 {
    // SAFETY: ocr.h.
    unsafe { ocrHintGetValue(hint, property, value) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrSetHint(guid: Guid, hint: *const Hint) -> u8 {
    // SAFETY: ocr.h.
    let hint = unsafe { hint.as_ref() };
    let checked = || hint.ok_or(Error::Invalid);
    let given = [Given::Guid("object", guid)];
    let replayed = |_: &mut Worker| checked().map(|_| ());
    effect("ocrSetHint", &given, replayed, |w| {
        let node = hint::task_node(Some(checked()?), w.nodes());
        if tasks::set_template_node(w, guid, node).is_ok() || node == NO_NODE {
            return Ok(());
        }
        // Tasks are placed when they are created; a later hint only affects tasks that are not ready yet.
        let guid = labels::resolve(w, guid)?;
        tasks::set_node(w, guid, node)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrGetHint(guid: Guid, hint: *mut Hint) -> u8 {
    query("ocrGetHint", &[Given::Guid("object", guid)], |w| {
        // SAFETY: ocr.h.
        let hint = unsafe { hint.as_mut() }.ok_or(Error::Invalid)?;
        let guid = labels::resolve(w, guid)?;
        let node = if let Ok(node) = blocks::node_of(w, guid) {
            node.unwrap_or(NO_NODE)
        } else if let Ok(node) = tasks::template_node(w, guid) {
            node
        } else {
            tasks::node_of(w, guid).ok_or(Error::Invalid)?
        };
        hint::add_node(hint, node);
        Ok(())
    })
}
