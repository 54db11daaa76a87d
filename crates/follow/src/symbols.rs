//! Functions of mapped files, by their symbols.

use std::fs::File;
use std::io::Read as _;
use std::ops::Range;

use object::read::ReadCache;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, ReadRef};

/// A file while it is read.
pub(crate) type Image<'a> = object::File<'a, &'a Content>;

/// Largest file that is read at once: a name takes two system calls otherwise.
const WHOLE: u64 = 32 << 20;

/// The content of a file.
pub(crate) enum Content {
    /// All of it.
    Whole(Vec<u8>),
    /// What has been asked for.
    Parts(ReadCache<File>),
}

impl Content {
    fn of(mut file: File) -> std::io::Result<Self> {
        let len = file.metadata()?.len();
        if len > WHOLE {
            return Ok(Self::Parts(ReadCache::new(file)));
        }
        let mut bytes = Vec::with_capacity(len as usize);
        file.read_to_end(&mut bytes)?;
        Ok(Self::Whole(bytes))
    }
}

impl<'a> ReadRef<'a> for &'a Content {
    fn len(self) -> Result<u64, ()> {
        match self {
            Content::Whole(bytes) => ReadRef::len(&**bytes),
            Content::Parts(parts) => ReadRef::len(parts),
        }
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        match self {
            Content::Whole(bytes) => bytes.read_bytes_at(offset, size),
            Content::Parts(parts) => parts.read_bytes_at(offset, size),
        }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        match self {
            Content::Whole(bytes) => bytes.read_bytes_at_until(range, delimiter),
            Content::Parts(parts) => parts.read_bytes_at_until(range, delimiter),
        }
    }
}

/// Whether a file of this base name is the frontend, which is mapped next to the program's files.
pub(crate) fn is_frontend(name: &str) -> bool {
    name.starts_with("qemu-") || name == "numaloc-native"
}

/// What `read` finds in a file, given the address in the file of its first byte in memory; nothing if the file cannot
/// be read.
pub(crate) fn in_file<T>(file: &str, read: impl FnOnce(&Image<'_>, u64) -> Vec<T>) -> Vec<T> {
    let Ok(content) = File::open(file).and_then(Content::of) else {
        return Vec::new();
    };
    let Ok(image) = object::File::parse(&content) else {
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
