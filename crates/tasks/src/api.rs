//! The C interface, one function per call, documented in `include/ocr.h`. This module checks pointers and converts
//! numbers to types; the other modules implement the calls.
//!
//! During a replay of a profiling run ([`crate::replay`]), calls have no effect.
#![allow(clippy::missing_safety_doc)] // One contract for all of them: ocr.h.
#![allow(missing_docs)] // Documented once, in ocr.h.

mod more;

pub use more::*;

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::{Dep, EdtFunction, Errno, EventParams, Guid, Hint, Result, event_type, property};
use crate::config::Config;
use crate::object::{affinity_guid, worker_guid};
use crate::worker::{NO_NODE, Worker, current};
use crate::{block, edt, event, hint, label, legacy, replay, runtime, stuck};

/// Runs `body` with this thread's worker; returns an OCR error code, 0 for success.
#[inline]
fn call(name: &str, body: impl FnOnce(&mut Worker) -> Result<()>) -> u8 {
    call_with(name, &[], body)
}

/// An argument of a call, for error reports.
#[derive(Clone, Copy)]
enum Given {
    Guid(&'static str, Guid),
    Slot(&'static str, u32),
}

/// As [`call`], for calls whose error reports include their arguments.
#[inline]
fn call_with(name: &str, given: &[Given], body: impl FnOnce(&mut Worker) -> Result<()>) -> u8 {
    let w = current();
    if w.is_null() {
        return Errno::EPERM.0;
    }
    // SAFETY: this thread's worker; a task's code runs only while no reference to it is held.
    let w = unsafe { &mut *w };
    match body(w) {
        Ok(()) => 0,
        Err(error) => failed(w, name, given, error),
    }
}

#[cold]
fn failed(w: &Worker, name: &str, given: &[Given], error: Errno) -> u8 {
    if error != Errno::EGUIDEXISTS && error != Errno::EPEND {
        w.complain(name, || {
            let why = match error {
                Errno::EINVAL => {
                    "OCR_EINVAL: something it was given is gone (stale GUID), of the wrong kind, out \
                     of range, or was satisfied or connected before"
                }
                Errno::ENOMEM => "OCR_ENOMEM: out of memory",
                Errno::EPERM => "OCR_EPERM: not now",
                Errno::EACQ => "OCR_EACQ: another task holds the block in a mode that excludes this one",
                _ => "failed",
            };
            let given: Vec<String> = given
                .iter()
                .map(|given| match given {
                    Given::Guid(what, guid) => format!("{what} {}", stuck::describe(w.rt, *guid)),
                    Given::Slot(what, slot) => format!("{what} {slot}"),
                })
                .collect();
            if given.is_empty() {
                format!("{why} (error {})", error.0)
            } else {
                format!("{}: {why} (error {})", given.join(", "), error.0)
            }
        });
    }
    error.0
}

/// Writes an optional out-parameter.
///
/// # Safety
/// `to` is null or writable.
unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write(value) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrEdtTemplateCreate_internal(
    guid: *mut Guid,
    function: Option<EdtFunction>,
    paramc: u32,
    depc: u32,
    name: *const c_char,
) -> u8 {
    call("ocrEdtTemplateCreate", |w| {
        let function = function.ok_or(Errno::EINVAL)?;
        if replay::active() {
            // SAFETY: ocr.h.
            unsafe { put(guid, replay::fake_guid()) };
            return Ok(());
        }
        // SAFETY: ocr.h.
        unsafe {
            let name = runtime::name_number(w, function, name);
            put(guid, edt::create_template(w, function, paramc, depc, name)?);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrEdtTemplateDestroy(guid: Guid) -> u8 {
    call_with(
        "ocrEdtTemplateDestroy",
        &[Given::Guid("template", guid)],
        |w| {
            if replay::active() {
                return Ok(());
            }
            edt::destroy_template(w, guid)
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrEdtCreate(
    guid: *mut Guid,
    template: Guid,
    paramc: u32,
    paramv: *const u64,
    depc: u32,
    depv: *const Guid,
    properties: u16,
    hint: *const Hint,
    output: *mut Guid,
) -> u8 {
    call_with("ocrEdtCreate", &[Given::Guid("template", template)], |w| {
        if replay::active() {
            // SAFETY: ocr.h.
            unsafe {
                put(guid, replay::fake_guid());
                if properties & property::EDT_OUTPUT_EVENT_VALID == 0 {
                    put(output, replay::fake_guid());
                }
            }
            return Ok(());
        }
        let given_output = properties & property::EDT_OUTPUT_EVENT_VALID != 0 && !output.is_null();
        let new = edt::New {
            template,
            paramc,
            depc,
            finish: properties & property::EDT_FINISH != 0,
            // SAFETY: ocr.h.
            hinted: hint::task_node(unsafe { hint.as_ref() }, w.rt.machine.nodes()),
            output: if given_output {
                // SAFETY: ocr.h.
                label::resolve(w, unsafe { *output })?
            } else {
                Guid::NULL
            },
            want_output: !output.is_null(),
        };
        // SAFETY: ocr.h: paramv has as many values as the task gets. If it is null it must get none.
        let make = |w: &mut Worker| unsafe {
            if paramv.is_null() && edt_has_params(w, &new)? {
                return Err(Errno::EINVAL);
            }
            edt::create(w, &new, paramv)
        };
        let (edt, created, event) = if properties & property::LABELED != 0 && !guid.is_null() {
            let mut made = None;
            // SAFETY: ocr.h.
            let label = unsafe { *guid };
            label::create_under(
                w,
                label,
                properties,
                |_, _| false,
                |w| {
                    let task = make(w)?;
                    made = Some(task);
                    Ok(task.1)
                },
            )?;
            made.ok_or(Errno::EINVAL)?
        } else {
            let task = make(w)?;
            // SAFETY: ocr.h.
            unsafe { put(guid, task.1) };
            task
        };
        if !given_output {
            // SAFETY: ocr.h. Written before the task can run, because the task itself may read it.
            unsafe { put(output, event) };
        }
        // SAFETY: just created; ocr.h: depv has as many GUIDs as the task has slots.
        unsafe { edt::start(w, edt, created, depv) }
    })
}

fn edt_has_params(w: &Worker, new: &edt::New) -> Result<bool> {
    Ok(match new.paramc {
        crate::abi::PARAM_DEFAULT | crate::abi::PARAM_UNKNOWN => {
            edt::template_paramc(w, new.template)? > 0
        }
        given => given > 0,
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrEdtDestroy(guid: Guid) -> u8 {
    call_with("ocrEdtDestroy", &[Given::Guid("task", guid)], |w| {
        if replay::active() {
            return Ok(());
        }
        edt::destroy(w, guid)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrEventCreate(guid: *mut Guid, kind: u32, properties: u16) -> u8 {
    // SAFETY: ocr.h.
    unsafe { ocrEventCreateParams(guid, kind, properties, std::ptr::null()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrEventCreateParams(
    guid: *mut Guid,
    kind: u32,
    properties: u16,
    params: *const EventParams,
) -> u8 {
    call("ocrEventCreate", |w| {
        // SAFETY: ocr.h.
        unsafe {
            if guid.is_null() {
                return Err(Errno::EINVAL);
            }
            if properties & property::LABELED != 0 {
                if replay::active() {
                    return Ok(());
                }
                // Every contributor creates the collective event; all these calls yield the same one.
                let shared = |w: &Worker, old| {
                    kind == event_type::COLLECTIVE && event::is_collective(w, old)
                };
                return label::create_under(w, *guid, properties, shared, |w| {
                    event::create(w, kind, params.as_ref())
                });
            }
            *guid = if replay::active() {
                replay::fake_guid()
            } else {
                event::create(w, kind, params.as_ref())?
            };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrEventDestroy(guid: Guid) -> u8 {
    call_with("ocrEventDestroy", &[Given::Guid("event", guid)], |w| {
        if replay::active() {
            return Ok(());
        }
        event::destroy(w, guid)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrEventSatisfy(guid: Guid, data: Guid) -> u8 {
    ocrEventSatisfySlot(guid, data, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrEventSatisfySlot(guid: Guid, data: Guid, slot: u32) -> u8 {
    call_with(
        "ocrEventSatisfy",
        &[
            Given::Guid("event", guid),
            Given::Slot("slot", slot),
            Given::Guid("data", data),
        ],
        |w| {
            if replay::active() {
                return Ok(());
            }
            let guid = label::resolve(w, guid)?;
            let data = label::resolve(w, data)?;
            event::satisfy(w, guid, data, slot)
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrEventCollectiveSatisfySlot(
    guid: Guid,
    data: *const c_void,
    slot: u32,
) -> u8 {
    call_with(
        "ocrEventCollectiveSatisfySlot",
        &[Given::Guid("event", guid), Given::Slot("slot", slot)],
        |w| {
            if replay::active() {
                return Ok(());
            }
            let guid = label::resolve(w, guid)?;
            // SAFETY: ocr.h: as many values as the event was created for.
            unsafe { event::contribute(w, guid, slot, data.cast()) }
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrAddDependence(source: Guid, destination: Guid, slot: u32, mode: u32) -> u8 {
    call_with(
        "ocrAddDependence",
        &[
            Given::Guid("source", source),
            Given::Guid("destination", destination),
            Given::Slot("slot", slot),
        ],
        |w| {
            if replay::active() {
                return Ok(());
            }
            edt::add_dependence(w, source, destination, slot, mode)
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrAddDependenceSlot(
    source: Guid,
    source_slot: u32,
    destination: Guid,
    slot: u32,
    mode: u32,
) -> u8 {
    call_with(
        "ocrAddDependenceSlot",
        &[
            Given::Guid("source", source),
            Given::Slot("source slot", source_slot),
            Given::Guid("destination", destination),
            Given::Slot("slot", slot),
        ],
        |w| {
            if replay::active() {
                return Ok(());
            }
            match edt::add_collective_dependence(w, source, source_slot, destination, slot, mode) {
                // Only collective events have more than one output.
                Err(_) if source_slot == 0 => {
                    edt::add_dependence(w, source, destination, slot, mode)
                }
                result => result,
            }
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrAddDependenceByValue(
    source: Guid,
    destination: Guid,
    slot: u32,
    mode: u32,
) -> u8 {
    call_with(
        "ocrAddDependenceByValue",
        &[
            Given::Guid("source", source),
            Given::Guid("destination", destination),
            Given::Slot("slot", slot),
        ],
        |w| {
            if replay::active() {
                return Ok(());
            }
            let source = label::resolve(w, source)?;
            let copy = if source.is_null() {
                Guid::NULL
            } else {
                block::copy(w, source)?
            };
            edt::add_dependence(w, copy, destination, slot, mode)
        },
    )
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

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrDbCreate(
    guid: *mut Guid,
    address: *mut *mut c_void,
    size: u64,
    flags: u16,
    hint: *const Hint,
    _allocator: u32,
) -> u8 {
    call("ocrDbCreate", |w| {
        let acquire = flags & property::DB_NO_ACQUIRE == 0;
        // SAFETY: ocr.h.
        unsafe {
            if replay::active() {
                put(guid, replay::fake_guid());
                let data = if acquire {
                    replay::scratch(size)?
                } else {
                    std::ptr::null_mut()
                };
                put(address, data.cast());
                return Ok(());
            }
            let new = block::New {
                size,
                flags,
                hinted: hint::block_node(hint.as_ref(), w.rt.machine.nodes()),
            };
            let mut data = std::ptr::null_mut();
            if flags & property::LABELED != 0 && !guid.is_null() {
                label::create_under(
                    w,
                    *guid,
                    flags,
                    |_, _| false,
                    |w| {
                        let (created, memory) = block::create(w, &new)?;
                        data = memory;
                        Ok(created)
                    },
                )?;
            } else {
                let (created, memory) = block::create(w, &new)?;
                data = memory;
                put(guid, created);
            }
            put(
                address,
                if acquire {
                    data.cast()
                } else {
                    std::ptr::null_mut()
                },
            );
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrDbRelease(guid: Guid) -> u8 {
    call_with("ocrDbRelease", &[Given::Guid("data block", guid)], |w| {
        if replay::active() {
            return Ok(());
        }
        block::release_early(w, guid)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrDbGetSize(guid: Guid, size: *mut u64) -> u8 {
    call_with("ocrDbGetSize", &[Given::Guid("data block", guid)], |w| {
        let guid = label::resolve(w, guid)?;
        let block = block::find(w, guid)?;
        if !block::held_by_current(w).contains(&guid) {
            return Err(Errno::EACCES);
        }
        // SAFETY: ocr.h.
        unsafe { put(size, block::size_of_live(block)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrElsUserGet(offset: u8) -> Guid {
    let mut value = Guid::NULL;
    call("ocrElsUserGet", |w| {
        let storage = w.storage.iter().find(|(edt, _)| *edt == w.current);
        value = storage.map_or(Guid::NULL, |(_, values)| values[usize::from(offset)]);
        Ok(())
    });
    value
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrElsUserSet(offset: u8, data: Guid) {
    call("ocrElsUserSet", |w| {
        if w.current.is_null() {
            return Err(Errno::EPERM);
        }
        let known = w.storage.iter().position(|(edt, _)| *edt == w.current);
        let at = known.unwrap_or_else(|| {
            w.storage.push((w.current, Box::new([Guid::NULL; 256])));
            w.storage.len() - 1
        });
        w.storage[at].1[usize::from(offset)] = data;
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn currentEdtUserGet() -> Guid {
    let mut guid = Guid::NULL;
    call("currentEdtUserGet", |w| {
        if !w.current.is_null() {
            guid = edt::guid(w.rt, w.current);
        }
        Ok(())
    });
    guid
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrNbWorkers() -> u64 {
    let mut workers = 0;
    call("ocrNbWorkers", |w| {
        workers = w.rt.workers.len() as u64;
        Ok(())
    });
    workers
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrCurrentWorkerGuid() -> Guid {
    let mut guid = Guid::NULL;
    call("ocrCurrentWorkerGuid", |w| {
        guid = worker_guid(w.index);
        Ok(())
    });
    guid
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrInformLegacyCodeBlocking() -> u8 {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrDbDestroy(guid: Guid) -> u8 {
    call_with("ocrDbDestroy", &[Given::Guid("data block", guid)], |w| {
        if replay::active() {
            return Ok(());
        }
        block::destroy(w, guid)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrShutdown() {
    call("ocrShutdown", |w| {
        if !replay::active() {
            w.rt.shutdown
                .store(true, std::sync::atomic::Ordering::SeqCst);
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrAbort(code: u8) {
    if replay::active() {
        replay::unfit();
        return;
    }
    // SAFETY: flushes the C streams and ends the process without stopping other threads first.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::_exit(c_int::from(code));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrGuidRangeCreate(guid: *mut Guid, count: u64, _kind: u32) -> u8 {
    call("ocrGuidRangeCreate", |w| {
        let range = if replay::active() {
            replay::fake_guid()
        } else {
            label::create_range(w, count)?
        };
        // SAFETY: ocr.h.
        unsafe { put(guid, range) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrGuidFromIndex(guid: *mut Guid, range: Guid, at: u64) -> u8 {
    call_with("ocrGuidFromIndex", &[Given::Guid("range", range)], |w| {
        let label = match label::label(w, range, at) {
            Err(_) if replay::active() => replay::fake_guid(),
            label => label?,
        };
        // SAFETY: ocr.h.
        unsafe { put(guid, label) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrGuidMapDestroy(guid: Guid) -> u8 {
    call_with("ocrGuidMapDestroy", &[Given::Guid("range", guid)], |w| {
        if replay::active() {
            return Ok(());
        }
        label::destroy_range(w, guid)
    })
}

const AFFINITY_PD: u32 = 1;

fn affinities(w: &Worker, kind: u32) -> u64 {
    if kind == AFFINITY_PD {
        w.rt.machine.nodes() as u64
    } else {
        1
    }
}

fn affinity(w: &Worker, kind: u32, at: u64) -> Guid {
    affinity_guid(if kind == AFFINITY_PD {
        at as u16
    } else {
        w.node
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrAffinityCount(kind: u32, count: *mut u64) -> u8 {
    call("ocrAffinityCount", |w| {
        // SAFETY: ocr.h.
        unsafe { put(count, affinities(w, kind)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrAffinityGet(kind: u32, count: *mut u64, out: *mut Guid) -> u8 {
    call("ocrAffinityGet", |w| {
        if count.is_null() || out.is_null() {
            return Err(Errno::EINVAL);
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
    call("ocrAffinityGetAt", |w| {
        if at >= affinities(w, kind) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: ocr.h.
        unsafe { put(out, affinity(w, kind, at)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrAffinityGetCurrent(out: *mut Guid) -> u8 {
    call("ocrAffinityGetCurrent", |w| {
        // SAFETY: ocr.h.
        unsafe { put(out, affinity_guid(w.node)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrAffinityQuery(guid: Guid, count: *mut u64, out: *mut Guid) -> u8 {
    call_with("ocrAffinityQuery", &[Given::Guid("object", guid)], |w| {
        if count.is_null() || out.is_null() {
            return Err(Errno::EINVAL);
        }
        let node = if guid.is_null() {
            w.node
        } else {
            let guid = label::resolve(w, guid)?;
            match block::find(w, guid) {
                // SAFETY: alive.
                Ok(block) => unsafe { crate::plan::node_of(&*block) }.unwrap_or(w.node),
                Err(_) => edt::node_of(w, guid).unwrap_or(w.node),
            }
        };
        // SAFETY: ocr.h.
        unsafe {
            if *count > 0 {
                *count = 1;
                *out = affinity_guid(node);
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
        return Errno::EINVAL.0;
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
        return Errno::EINVAL.0;
    };
    match hint::index(hint, property) {
        Ok(at) => {
            body(hint, at);
            0
        }
        Err(error) => error.0,
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
        0 if !set => Errno::ENOENT.0,
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
    call_with("ocrSetHint", &[Given::Guid("object", guid)], |w| {
        // SAFETY: ocr.h.
        let hint = unsafe { hint.as_ref() }.ok_or(Errno::EINVAL)?;
        if replay::active() {
            return Ok(());
        }
        let nodes = w.rt.machine.nodes();
        let node = hint::task_node(Some(hint), nodes);
        if let Ok(template) = edt::template(w, guid) {
            // SAFETY: alive.
            unsafe { (*template).hinted = node };
        } else if node != NO_NODE {
            // Tasks are placed when they are created; a later hint only affects tasks that are not ready yet.
            let guid = label::resolve(w, guid)?;
            edt::set_node(w, guid, node)?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrGetHint(guid: Guid, hint: *mut Hint) -> u8 {
    call_with("ocrGetHint", &[Given::Guid("object", guid)], |w| {
        // SAFETY: ocr.h.
        let hint = unsafe { hint.as_mut() }.ok_or(Errno::EINVAL)?;
        let guid = label::resolve(w, guid)?;
        if let Ok(block) = block::find(w, guid) {
            // SAFETY: alive.
            let node = unsafe { crate::plan::node_of(&*block) };
            hint::add_node(hint, node.unwrap_or(NO_NODE));
        } else if let Ok(template) = edt::template(w, guid) {
            // SAFETY: alive.
            hint::add_node(hint, unsafe { (*template).hinted });
        } else {
            let node = edt::node_of(w, guid).ok_or(Errno::EINVAL)?;
            hint::add_node(hint, node);
        }
        Ok(())
    })
}

const WAIT_FOR_CREATE: u16 = 1;
const CHECK: u16 = 4;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrLegacyBlockProgress(
    event: Guid,
    guid: *mut Guid,
    result: *mut *mut c_void,
    size: *mut u64,
    properties: u16,
) -> u8 {
    call_with(
        "ocrLegacyBlockProgress",
        &[Given::Guid("event", event)],
        |w| {
            if replay::active() {
                replay::unfit();
                return Err(Errno::EPERM);
            }
            let (payload, data, bytes) = legacy::wait_and_hold(
                w,
                event,
                properties & WAIT_FOR_CREATE != 0,
                properties & CHECK != 0,
            )?;
            // SAFETY: ocr.h.
            unsafe {
                put(guid, payload);
                put(result, data.cast());
                put(size, bytes);
            }
            Ok(())
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrWait(event: Guid) -> Guid {
    let mut payload = Guid::ERROR;
    if replay::active() {
        replay::unfit();
        return payload;
    }
    call_with("ocrWait", &[Given::Guid("event", event)], |w| {
        payload = legacy::wait(w, event, false, false)?;
        Ok(())
    });
    payload
}

#[unsafe(no_mangle)]
pub extern "C" fn numaloc_ocr_replaying() -> u8 {
    u8::from(replay::active())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn numaloc_ocr_run(
    argc: c_int,
    argv: *mut *mut c_char,
    function: Option<unsafe extern "C" fn(u32, *mut u64, u32, *mut Dep) -> Guid>,
) -> c_int {
    let Some(function) = function else {
        return c_int::from(Errno::EINVAL.0);
    };
    // SAFETY: argc C strings at argv, as C promises main.
    let arguments: Vec<&[u8]> = (0..argc.max(0) as usize)
        .map(|at| unsafe { CStr::from_ptr(*argv.add(at)) }.to_bytes())
        .collect();
    let outcome = Config::from_variables(|name| std::env::var(name).ok())
        // SAFETY: the program keeps to ocr.h.
        .and_then(|config| unsafe { runtime::run(config, function, &arguments) });
    match outcome {
        Ok(outcome) => outcome.status,
        Err(why) => {
            eprintln!("numaloc_ocr: {why}");
            125
        }
    }
}
