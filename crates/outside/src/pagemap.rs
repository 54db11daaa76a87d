//! Which pages of a process are in memory: by the call `PAGEMAP_SCAN` (Linux 6.7), which passes over what is not there,
//! else by `/proc/PID/pagemap`, page by page.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Bytes of the kernel's smallest page, by which pages are listed.
pub const PAGE: u64 = 4096;
/// `PAGE_IS_PRESENT`.
const PRESENT: u64 = 1 << 3;
/// Ranges that one call returns at most.
const RANGES: usize = 512;
/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u64 = 3 << 30 | (size_of::<Scan>() as u64) << 16 | 0x66 << 8 | 16;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// The page map of a process.
#[derive(Debug)]
pub struct PageMap {
    file: File,
    can_scan: bool,
}

impl PageMap {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(pid: i32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/pagemap"))?;
        Ok(Self {
            file,
            can_scan: true,
        })
    }

    /// The ranges of `range` that are in memory, ascending.
    ///
    /// # Errors
    /// The kernel's: the process has ended.
    pub fn present(&mut self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        if self.can_scan {
            match self.scan(range.clone()) {
                Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => self.can_scan = false,
                found => return found,
            }
        }
        self.read(range)
    }

    fn scan(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let mut regions = [Region::default(); RANGES];
        let (mut found, mut start) = (Vec::new(), range.start);
        while start < range.end {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                start,
                end: range.end,
                vec: regions.as_mut_ptr() as u64,
                vec_len: RANGES as u64,
                category_mask: PRESENT,
                return_mask: PRESENT,
                ..Scan::default()
            };
            // SAFETY: `scan` is the structure of this call, of the size it states; it names `regions`, which has
            // `vec_len` entries and is used by nothing else during the call.
            let count =
                unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut scan) };
            let Ok(count) = usize::try_from(count) else {
                return Err(io::Error::last_os_error());
            };
            let regions = regions.iter().take(count);
            found.extend(regions.map(|region| region.start..region.end));
            if scan.walk_end <= start {
                break;
            }
            start = scan.walk_end;
        }
        Ok(found)
    }

    fn read(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut entries = vec![0; 64 << 10];
        let mut page = range.start / PAGE;
        while page < range.end / PAGE {
            let most = (range.end / PAGE - page).min(entries.len() as u64 / 8) as usize;
            let got = self.file.read_at(&mut entries[..most * 8], page * 8)? / 8;
            if got == 0 {
                break;
            }
            for entry in entries[..got * 8].chunks_exact(8) {
                // The highest byte holds the mark of a page in memory.
                if entry[if cfg!(target_endian = "big") { 0 } else { 7 }] >> 7 == 1 {
                    match found.last_mut() {
                        Some(last) if last.end == page * PAGE => last.end += PAGE,
                        _ => found.push(page * PAGE..(page + 1) * PAGE),
                    }
                }
                page += 1;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_were_written_are_present_and_others_are_not() {
        let mut memory = vec![0_u8; 64 * PAGE as usize];
        let start = (memory.as_ptr() as u64).next_multiple_of(PAGE);
        let first = (start - memory.as_ptr() as u64) as usize;
        for page in [3, 4, 9] {
            memory[first + page * PAGE as usize] = 1;
        }
        std::hint::black_box(&mut memory);
        let range = start..start + 60 * PAGE;
        let mut map = PageMap::open(std::process::id() as i32).unwrap();
        let scanned = map.present(range.clone()).unwrap();
        let read = map.read(range).unwrap();
        let total = |found: &[Range<u64>]| {
            found
                .iter()
                .map(|range| range.end - range.start)
                .sum::<u64>()
        };
        assert_eq!(scanned, read);
        let has = |page: u64| {
            read.iter()
                .any(|range| range.contains(&(start + page * PAGE)))
        };
        assert!(has(3) && has(4) && has(9), "{read:?}");
        // Huge pages bring more than was written.
        assert!(total(&read) >= 3 * PAGE);
        assert!(PageMap::open(0).is_err());
    }
}
