//! Tasks and their templates.

use std::ffi::c_char;

use numaloc_tasks::error::{Error, Result};
use numaloc_tasks::objects::tasks::{self, PARAM_DEFAULT, PARAM_UNKNOWN};
use numaloc_tasks::objects::{labelled, labels};
use numaloc_tasks::observe::replay;
use numaloc_tasks::state::Worker;

use super::abi::{EdtFunction, Guid, Hint, occupied, property};
use super::call::{Given, effect, nothing, put};
use super::hint;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrEdtTemplateCreate_internal(
    guid: *mut Guid,
    function: Option<EdtFunction>,
    paramc: u32,
    depc: u32,
    name: *const c_char,
) -> u8 {
    let replayed = |_: &mut Worker| {
        function.ok_or(Error::Invalid)?;
        // SAFETY: ocr.h.
        unsafe { put(guid, replay::fake_guid()) };
        Ok(())
    };
    effect("ocrEdtTemplateCreate", &[], replayed, |w| {
        let function = function.ok_or(Error::Invalid)?;
        // SAFETY: ocr.h.
        unsafe {
            let name = tasks::name(w, function, name);
            put(
                guid,
                tasks::create_template(w, function, paramc, depc, name)?,
            );
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrEdtTemplateDestroy(guid: Guid) -> u8 {
    let given = [Given::Guid("template", guid)];
    effect("ocrEdtTemplateDestroy", &given, nothing, |w| {
        tasks::destroy_template(w, guid)
    })
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
    let output_valid = properties & property::EDT_OUTPUT_EVENT_VALID != 0;
    let replayed = |_: &mut Worker| {
        // SAFETY: ocr.h.
        unsafe {
            put(guid, replay::fake_guid());
            if !output_valid {
                put(output, replay::fake_guid());
            }
        }
        Ok(())
    };
    let given = [Given::Guid("template", template)];
    effect("ocrEdtCreate", &given, replayed, |w| {
        let given_output = output_valid && !output.is_null();
        let new = tasks::New {
            template,
            paramc,
            depc,
            finish: properties & property::EDT_FINISH != 0,
            // SAFETY: ocr.h.
            hinted: hint::task_node(unsafe { hint.as_ref() }, w.nodes()),
            output: if given_output {
                // SAFETY: ocr.h.
                labels::resolve(w, unsafe { *output })?
            } else {
                Guid::NULL
            },
            want_output: !output.is_null(),
        };
        // SAFETY: ocr.h: paramv has as many values as the task gets. It is null if and only if it gets none.
        let make = |w: &mut Worker| unsafe {
            if paramv.is_null() == has_params(w, &new)? {
                return Err(Error::Invalid);
            }
            tasks::create(w, &new, paramv)
        };
        let (edt, created, event) = if properties & property::LABELED != 0 && !guid.is_null() {
            let mut made = None;
            // SAFETY: ocr.h.
            let label = unsafe { *guid };
            let create = |w: &mut Worker| {
                let task = make(w)?;
                made = Some(task);
                Ok(task.1)
            };
            labelled::create_under(w, label, occupied(properties), |_, _| false, create)?;
            made.ok_or(Error::Invalid)?
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
        unsafe { tasks::start(w, edt, created, depv) }
    })
}

/// Whether a task gets parameters.
fn has_params(w: &Worker, new: &tasks::New) -> Result<bool> {
    Ok(match new.paramc {
        PARAM_DEFAULT | PARAM_UNKNOWN => tasks::template_paramc(w, new.template)? > 0,
        given => given > 0,
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrEdtDestroy(guid: Guid) -> u8 {
    let given = [Given::Guid("task", guid)];
    effect("ocrEdtDestroy", &given, nothing, |w| {
        tasks::destroy(w, guid)
    })
}
