//! Template names, interned as small numbers.
//!
//! A template's name is the function expression in the program: `ocrEdtTemplateCreate(&t, workEdt, 0, 1)` makes
//! `workEdt`, which identifies the function in every run. An expression (`table[i]`, `x.function`) does not, so such a
//! template's name includes the function's offset in its file: `table[i]@a.out+0x1139`.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, OnceLock};

use crate::objects::task::EdtFunction;

/// Number of names that can be read without a lock.
const PUBLISHED: usize = 1024;

/// Interned names, shared by all workers.
pub struct Names {
    table: Mutex<Table>,
    /// A copy of the first names for the crash handler, which must not lock.
    published: [OnceLock<String>; PUBLISHED],
}

#[derive(Default)]
struct Table {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            table: Mutex::default(),
            published: [const { OnceLock::new() }; PUBLISHED],
        }
    }
}

impl Names {
    /// The number of a name, interned on first use.
    pub fn number(&self, name: &str) -> u32 {
        let mut table = self.table.lock().expect("no panic while locked");
        if let Some(&number) = table.numbers.get(name) {
            return number;
        }
        let number = table.names.len() as u32;
        table.names.push(name.to_owned());
        if let Some(published) = self.published.get(number as usize) {
            let _ = published.set(name.to_owned());
        }
        table.numbers.insert(name.to_owned(), number);
        number
    }

    /// The name of a number.
    pub fn name(&self, number: u32) -> String {
        let table = self.table.lock().expect("no panic while locked");
        table
            .names
            .get(number as usize)
            .cloned()
            .unwrap_or_else(|| "?".to_owned())
    }

    /// The name of a number, without a lock.
    pub fn published(&self, number: u32) -> &str {
        let name = self.published.get(number as usize);
        name.and_then(OnceLock::get).map_or("?", String::as_str)
    }
}

/// A worker's recently used names, by function and name pointer.
pub struct Cache(Box<[(usize, usize, u32); 64]>);

impl Default for Cache {
    fn default() -> Self {
        Self(Box::new([(0, 0, 0); 64]))
    }
}

impl Cache {
    /// The number of the name of a template with that function and (C string, may be null) name.
    ///
    /// # Safety
    /// `name` is null or a C string.
    pub unsafe fn number(
        &mut self,
        names: &Names,
        function: EdtFunction,
        name: *const c_char,
    ) -> u32 {
        let key = (function as usize, name as usize);
        let slot = &mut self.0[(key.0 >> 4 ^ key.1) % 64];
        if (slot.0, slot.1) == key {
            return slot.2;
        }
        let written = if name.is_null() {
            String::new()
        } else {
            // SAFETY: the caller's promise.
            unsafe { CStr::from_ptr(name) }
                .to_string_lossy()
                .into_owned()
        };
        let number = names.number(&template_name(&written, function));
        *slot = (key.0, key.1, number);
        number
    }
}

/// The name of a template of which the program says `written`.
fn template_name(written: &str, function: EdtFunction) -> String {
    let plain = written.strip_prefix('&').unwrap_or(written).trim();
    let is_identifier = !plain.is_empty()
        && plain.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !plain.starts_with(|c: char| c.is_ascii_digit());
    if is_identifier {
        return plain.to_owned();
    }
    // Names must not contain the separators of our files.
    let plain: String = plain
        .chars()
        .map(|c| {
            if c.is_ascii_graphic() && c != ',' && c != '"' {
                c
            } else {
                '_'
            }
        })
        .collect();
    format!("{plain}@{}", location(function))
}

/// File and offset of a function: the same in every run of a program.
fn location(function: EdtFunction) -> String {
    // SAFETY: `info` is plain data that dladdr fills in.
    let info = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(function as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return "?".to_owned();
        }
        info
    };
    // SAFETY: dladdr gave a C string.
    let file = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy();
    let file = file.rsplit('/').next().unwrap_or("?");
    format!("{file}+{:#x}", function as usize - info.dli_fbase as usize)
}
