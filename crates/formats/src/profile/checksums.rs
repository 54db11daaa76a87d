//! Checksums of a profile's files, stored in `meta.json`: length and CRC-32 of every table, and the CRC-32 of
//! `meta.json` itself.
//!
//! They detect accidental damage: a flipped bit, a truncated file, tables of two runs in one folder. An
//! attacker can compute them too; against that, every value that is read is checked.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::FormatError;

/// Placeholder for the checksum of `meta.json` while it is computed.
const BLANK: &str = "00000000";
/// The field as it is written.
const FIELD: &str = "\"checksum\": \"";
const AT_A_TIME: usize = 1 << 16;

/// Length and checksum of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sum {
    size_bytes: u64,
    /// CRC-32 (ISO-HDLC, as in zip), eight hexadecimal digits.
    crc32: String,
}

/// Checksums by file name, relative to the profile.
pub(super) type Sums = BTreeMap<String, Sum>;

/// Length and checksum of a regular file.
pub(super) fn of(path: &Path) -> Result<Sum, FormatError> {
    let fail = |error| FormatError::io("read", path, error);
    let mut file = numaloc_files::input::open_regular(path).map_err(fail)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; AT_A_TIME];
    let mut size_bytes = 0;
    loop {
        let read = file.read(&mut buffer).map_err(fail)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        size_bytes += read as u64;
    }
    Ok(Sum {
        size_bytes,
        crc32: format!("{:08x}", hasher.finalize()),
    })
}

/// Checks the file `name` of a profile if its `meta.json` has checksums. A file that is not listed there must not
/// exist.
pub(super) fn verify(folder: &Path, name: &str, sums: Option<&Sums>) -> Result<(), FormatError> {
    let Some(sums) = sums else { return Ok(()) };
    let path = folder.join(name);
    let Some(expected) = sums.get(name) else {
        return match path.symlink_metadata() {
            Err(_) => Ok(()),
            Ok(_) => Err(FormatError::corrupt(
                &path,
                "content",
                "a file that meta.json does not list",
                "only what numaloc wrote there",
            )),
        };
    };
    let found = of(&path)?;
    if found == *expected {
        return Ok(());
    }
    let shown = |sum: &Sum| format!("{} bytes with CRC-32 {}", sum.size_bytes, sum.crc32);
    Err(FormatError::corrupt(
        &path,
        "content",
        shown(&found),
        format!("{}, as listed in meta.json", shown(expected)),
    ))
}

/// Fills the checksum into the text of `meta.json`, whose field `checksum` is blank.
pub(super) fn seal(text: &str) -> String {
    let checksum = format!("{:08x}", crc32fast::hash(text.as_bytes()));
    match checksum_at(text) {
        Some(at) => format!("{}{checksum}{}", &text[..at], &text[at + BLANK.len()..]),
        None => text.to_owned(),
    }
}

/// The initial, blank value of the field `checksum`.
pub(super) fn blank() -> String {
    BLANK.to_owned()
}

/// Checks that `text` has the checksum `said`, if there is one.
pub(super) fn verify_meta(path: &Path, text: &str, said: &str) -> Result<(), FormatError> {
    let computed = checksum_at(text).map(|at| {
        let blanked = format!("{}{BLANK}{}", &text[..at], &text[at + BLANK.len()..]);
        format!("{:08x}", crc32fast::hash(blanked.as_bytes()))
    });
    if computed.as_deref() == Some(said) {
        return Ok(());
    }
    Err(FormatError::corrupt(
        path,
        "content",
        format!("CRC-32 {}", computed.as_deref().unwrap_or("of no field")),
        format!("{said:?}, as stated in its field checksum"),
    ))
}

/// Position of the checksum's eight digits: the last field of that name.
fn checksum_at(text: &str) -> Option<usize> {
    let at = text.rfind(FIELD)? + FIELD.len();
    text.is_char_boundary(at + BLANK.len()).then_some(at)
}
