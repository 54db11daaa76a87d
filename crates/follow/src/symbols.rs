//! Functions of mapped files, by their symbols.

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use crate::memory::Content;

/// A file while it is read.
pub(crate) type Image<'a> = object::File<'a>;

/// Whether a file of this base name is the frontend, which is mapped next to the program's files.
pub(crate) fn is_frontend(name: &str) -> bool {
    name.starts_with("qemu-") || name == "numaloc-native"
}

/// What `read` finds in a file, given the address in the file of its first byte in memory; nothing if the file cannot
/// be read.
pub(crate) fn in_file<T>(file: &str, read: impl FnOnce(&Image<'_>, u64) -> Vec<T>) -> Vec<T> {
    let Some(content) = Content::of(file) else {
        return Vec::new();
    };
    let Ok(image) = object::File::parse(&*content) else {
        return Vec::new();
    };
    let first = image.segments().map(|segment| segment.address()).min();
    read(&image, first.unwrap_or(0) & !4095)
}

/// The defined symbols that `classify` accepts, by offset from `first`.
pub(crate) fn functions<T>(
    image: &Image<'_>,
    first: u64,
    classify: impl Fn(&str) -> Option<T>,
) -> Vec<(u64, T)> {
    image
        .symbols()
        .chain(image.dynamic_symbols())
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| {
            let function = classify(symbol.name().ok()?)?;
            Some((symbol.address().wrapping_sub(first), function))
        })
        .collect()
}
