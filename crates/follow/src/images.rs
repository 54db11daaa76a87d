//! The images that are mapped for a program before its first instruction: its own file and its loader.

use numaloc_journal::Record;
use numaloc_trace::Engine;

use crate::memory;

/// Records what has been mapped for the program, just before its first instruction at `entry`.
pub fn record(engine: &Engine, entry: u64) {
    let program = engine.config().program.to_string_lossy();
    let mut images: Vec<(String, u64, u64)> = Vec::new();
    for mapped in memory::mappings() {
        match images.last_mut() {
            Some((file, _, end)) if *file == mapped.file && mapped.start - *end < 1 << 30 => {
                *end = mapped.end;
            }
            _ if mapped.file.starts_with('/') => {
                images.push((mapped.file, mapped.start, mapped.end));
            }
            _ => {}
        }
    }
    // The loader may be mapped twice, for the frontend and for the program: the program's contains the entry.
    for (file, start, end) in images {
        if *file == *program || (start..end).contains(&entry) {
            engine.write(&Record::Image { file, start, end });
        }
    }
}
