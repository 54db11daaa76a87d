//! The program as a whole: start, shutdown, workers, storage of the current task.

use std::ffi::{CStr, c_char, c_int};

use numaloc_tasks::error::{Error, RunError};
use numaloc_tasks::observe::replay;
use numaloc_tasks::{Config, state};

use super::abi::{Dep, EINVAL, Guid};
use super::call::{effect, nothing, put, query};

#[unsafe(no_mangle)]
pub extern "C" fn ocrShutdown() {
    effect("ocrShutdown", &[], nothing, |w| {
        w.shut_down();
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrAbort(code: u8) {
    if numaloc_ocr_replaying() != 0 {
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
pub extern "C" fn ocrElsUserGet(offset: u8) -> Guid {
    let mut value = Guid::NULL;
    query("ocrElsUserGet", &[], |w| {
        value = w.stored(offset);
        Ok(())
    });
    value
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrElsUserSet(offset: u8, data: Guid) {
    query("ocrElsUserSet", &[], |w| w.store(offset, data));
}

#[unsafe(no_mangle)]
pub extern "C" fn currentEdtUserGet() -> Guid {
    let mut guid = Guid::NULL;
    query("currentEdtUserGet", &[], |w| {
        guid = w.current_task().unwrap_or(Guid::NULL);
        Ok(())
    });
    guid
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocrCurrentEdtGet(guid: *mut Guid) -> u8 {
    query("ocrCurrentEdtGet", &[], |w| {
        let current = w.current_task().ok_or(Error::Invalid)?;
        // SAFETY: ocr.h.
        unsafe { put(guid, current) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrNbWorkers() -> u64 {
    let mut workers = 0;
    query("ocrNbWorkers", &[], |w| {
        workers = w.workers() as u64;
        Ok(())
    });
    workers
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrCurrentWorkerGuid() -> Guid {
    let mut guid = Guid::NULL;
    query("ocrCurrentWorkerGuid", &[], |w| {
        guid = Guid::of_worker(w.index());
        Ok(())
    });
    guid
}

#[unsafe(no_mangle)]
pub extern "C" fn numaloc_ocr_replaying() -> u8 {
    u8::from(!state::replaying().is_null())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn numaloc_ocr_run(
    argc: c_int,
    argv: *mut *mut c_char,
    function: Option<unsafe extern "C" fn(u32, *mut u64, u32, *mut Dep) -> Guid>,
) -> c_int {
    let Some(function) = function else {
        return c_int::from(EINVAL);
    };
    // SAFETY: argc C strings at argv, as C promises main.
    let arguments: Vec<&[u8]> = (0..argc.max(0) as usize)
        .map(|at| unsafe { CStr::from_ptr(*argv.add(at)) }.to_bytes())
        .collect();
    let outcome = Config::from_variables(|name| std::env::var(name).ok())
        .map_err(RunError::from)
        // SAFETY: the program keeps to ocr.h.
        .and_then(|config| unsafe { numaloc_tasks::run(config, function, &arguments) });
    match outcome {
        Ok(outcome) => outcome.status,
        Err(why) => {
            eprintln!("numaloc_ocr: {why}");
            125
        }
    }
}
