//! Parses ELF programs and scripts for the loader: pure, and bounded by the bytes given.

/// Number of a file's first bytes that determine its kind.
pub const HEAD: usize = 256;

/// Kind of a file for `execve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An x86-64 program.
    Program,
    /// A program for another processor, or another mode of this one.
    OtherProgram,
    /// A script that names an interpreter.
    Script,
    /// Nothing that can be executed.
    Neither,
}

/// Kind of a file with these first bytes.
pub fn kind(head: &[u8]) -> Kind {
    if head.starts_with(b"#!") {
        return Kind::Script;
    }
    if !head.starts_with(b"\x7fELF") {
        return Kind::Neither;
    }
    const CLASS_64: u8 = 2;
    const X86_64: u16 = 62;
    let right = head.get(4) == Some(&CLASS_64) && u16_at(head, 18) == Some(X86_64);
    if right {
        Kind::Program
    } else {
        Kind::OtherProgram
    }
}

fn bytes_at<const N: usize>(file: &[u8], at: usize) -> Option<[u8; N]> {
    file.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(file: &[u8], at: usize) -> Option<u16> {
    bytes_at(file, at).map(u16::from_le_bytes)
}

fn u32_at(file: &[u8], at: usize) -> Option<u32> {
    bytes_at(file, at).map(u32::from_le_bytes)
}

fn u64_at(file: &[u8], at: usize) -> Option<u64> {
    bytes_at(file, at).map(u64::from_le_bytes)
}

/// A part of the file that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Address before relocation of the image.
    pub address: u64,
    /// Bytes in memory.
    pub memory_len: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub file_len: u64,
    /// Protection bits.
    pub prot: i32,
}

/// A program's headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The image is position-independent.
    pub movable: bool,
    /// Address of its first instruction.
    pub entry: u64,
    /// Offset of the program headers in the file.
    pub offset: u64,
    /// Number of program headers.
    pub count: u16,
    /// Mapped segments, in ascending order.
    pub segments: Vec<Segment>,
    /// Offset and length of the dynamic linker's name in the file.
    pub interpreter: Option<(u64, u64)>,
    /// The program needs an executable stack.
    pub executable_stack: bool,
}

/// Bytes of a program header.
pub const ENTRY: u64 = 56;

/// Offset and size of the program headers in the file.
pub fn header_range(head: &[u8]) -> Option<(u64, u64)> {
    if u16_at(head, 54)? != ENTRY as u16 {
        return None;
    }
    let offset = u64_at(head, 32)?;
    let len = u64::from(u16_at(head, 56)?) * ENTRY;
    offset.checked_add(len)?;
    Some((offset, len))
}

/// Parses the headers from the file's first bytes and the bytes of the program headers.
pub fn headers(head: &[u8], table: &[u8]) -> Option<Headers> {
    const LOAD: u32 = 1;
    const INTERPRETER: u32 = 3;
    const STACK: u32 = 0x6474_e551;
    const EXECUTABLE: u16 = 2;
    const SHARED: u16 = 3;
    let (offset, len) = header_range(head)?;
    let table = table.get(..len as usize)?;
    let movable = match u16_at(head, 16)? {
        EXECUTABLE => false,
        SHARED => true,
        _ => return None,
    };
    let mut headers = Headers {
        movable,
        entry: u64_at(head, 24)?,
        offset,
        count: u16_at(head, 56)?,
        segments: Vec::new(),
        interpreter: None,
        executable_stack: false,
    };
    for header in table.chunks_exact(ENTRY as usize) {
        let flags = u32_at(header, 4)? as i32;
        let segment = Segment {
            address: u64_at(header, 16)?,
            memory_len: u64_at(header, 40)?,
            offset: u64_at(header, 8)?,
            file_len: u64_at(header, 32)?,
            // Read is 4 here and 1 there, execute the reverse.
            prot: (flags >> 2 & 1) | (flags & 2) | (flags & 1) << 2,
        };
        match u32_at(header, 0)? {
            LOAD if segment.memory_len > 0 => {
                let end = segment.address.checked_add(segment.memory_len)?;
                let sound = segment.file_len <= segment.memory_len
                    && segment.address % 4096 == segment.offset % 4096
                    && end < 1 << 47;
                if !sound {
                    return None;
                }
                headers.segments.push(segment);
            }
            INTERPRETER => headers.interpreter = Some((segment.offset, segment.file_len)),
            STACK => headers.executable_stack = segment.prot & 4 != 0,
            _ => {}
        }
    }
    let ascending = headers.segments.is_sorted_by_key(|segment| segment.address);
    (ascending && !headers.segments.is_empty()).then_some(headers)
}

#[cfg(test)]
mod tests {
    use super::{Kind, header_range, headers, kind};

    #[test]
    fn a_script_begins_with_its_mark() {
        let head = b"#! /bin/sh -e  -u \necho\n";
        assert_eq!(kind(head), Kind::Script);
    }

    #[test]
    fn a_program_has_segments_and_an_interpreter() {
        let file = std::fs::read("/bin/sh").unwrap();
        assert_eq!(kind(&file), Kind::Program);
        let (offset, len) = header_range(&file).unwrap();
        let table = &file[offset as usize..(offset + len) as usize];
        let headers = headers(&file, table).unwrap();
        assert!(headers.segments.iter().any(|segment| segment.prot == 5));
        assert!(headers.interpreter.is_some());
    }

    #[test]
    fn broken_headers_are_refused() {
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let (offset, len) = header_range(&file).unwrap();
        let mut table = file[offset as usize..(offset + len) as usize].to_vec();
        assert_eq!(headers(&file[..60], &table), headers(&file, &table));
        assert_eq!(headers(&file[..50], &table), None);
        assert_eq!(headers(&file, &table[..len as usize - 1]), None);
        let load = (0..len as usize)
            .step_by(56)
            .find(|&at| table[at] == 1)
            .unwrap();
        table[load + 32..load + 40].fill(0xff);
        assert_eq!(headers(&file, &table), None);
        assert_eq!(kind(b"\x7fELF\x01"), Kind::OtherProgram);
        assert_eq!(kind(b""), Kind::Neither);
    }
}
