//! Functions of mapped files, by their symbols.

use std::fs::File;
use std::ops::Range;

use object::read::ReadCache;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, ReadRef};

/// A file while it is read.
pub(crate) type Image<'a> = object::File<'a, &'a Content>;

/// Bytes that are read at once around a name: each takes two system calls otherwise.
const BLOCK: u64 = 64 << 10;

/// The content of a file: what has been read of it.
pub(crate) struct Content {
    read: ReadCache<File>,
}

impl Content {
    /// The rest of a block of the file from an offset on, which lies in the file.
    fn block_from(&self, offset: u64) -> Result<&[u8], ()> {
        let begin = offset / BLOCK * BLOCK;
        let size = ReadRef::len(&self.read)?.saturating_sub(begin).min(BLOCK);
        let block = self.read.read_bytes_at(begin, size)?;
        block.get((offset - begin) as usize..).ok_or(())
    }
}

impl<'a> ReadRef<'a> for &'a Content {
    fn len(self) -> Result<u64, ()> {
        ReadRef::len(&self.read)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.read.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let most = range.end.saturating_sub(range.start) as usize;
        let block = self.block_from(range.start)?;
        let block = &block[..block.len().min(most)];
        match block.iter().position(|&byte| byte == delimiter) {
            Some(end) => Ok(&block[..end]),
            None => self.read.read_bytes_at_until(range, delimiter),
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
    let Ok(open) = File::open(file) else {
        return Vec::new();
    };
    let content = Content {
        read: ReadCache::new(open),
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
