//! Waiting inside a task.

use std::ffi::c_void;

use numaloc_tasks::objects::waiting;

use super::abi::Guid;
use super::call::{Given, effect, put, unfit};

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
    let given = [Given::Guid("event", event)];
    effect("ocrLegacyBlockProgress", &given, unfit, |w| {
        let (payload, data, bytes) = waiting::wait_and_hold(
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
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrWait(event: Guid) -> Guid {
    let mut payload = Guid::ERROR;
    effect("ocrWait", &[Given::Guid("event", event)], unfit, |w| {
        payload = waiting::wait(w, event, false, false)?;
        Ok(())
    });
    payload
}

#[unsafe(no_mangle)]
pub extern "C" fn ocrInformLegacyCodeBlocking() -> u8 {
    0
}
