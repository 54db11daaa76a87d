//! The parser for `/proc/PID/maps` (proc(5)).

/// The file's text, for [`MapsLine::parse`] line by line. In a path that is not UTF-8, the bytes in question become
/// U+FFFD: such a path does not hide the other mappings.
#[must_use]
pub fn text(file: Vec<u8>) -> String {
    String::from_utf8(file)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// One mapping of a process, as the kernel lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapsLine<'a> {
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// `r`, `w`, `x` or `-` in this order, then `p` (private) or `s` (shared).
    pub rights: &'a str,
    /// Offset in the file in bytes.
    pub offset: u64,
    /// Major number of the file's device in the upper half, minor in the lower.
    pub device: u64,
    /// Inode of the file; 0 for anonymous memory.
    pub inode: u64,
    /// Path, including blanks, or a name such as `[stack]`; empty for anonymous memory. That of a removed file ends
    /// with ` (deleted)`.
    pub name: &'a str,
}

impl<'a> MapsLine<'a> {
    /// Parses a line; `None` if it is no mapping.
    #[must_use]
    pub fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        let (start, end) = fields.next()?.split_once('-')?;
        let rights = fields.next().filter(|rights| rights.len() == 4)?;
        let offset = fields.next()?;
        let (major, minor) = fields.next()?.split_once(':')?;
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            rights,
            offset: hex(offset)?,
            device: hex(major)? << 32 | hex(minor)?,
            inode: fields.next()?.parse().ok()?,
            name: fields.next().unwrap_or("").trim_start(),
        })
    }

    /// Whether it may be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.rights.as_bytes()[1] == b'w'
    }

    /// Whether it may be executed.
    #[must_use]
    pub fn is_executable(&self) -> bool {
        self.rights.as_bytes()[2] == b'x'
    }

    /// Whether stores are visible to other processes that map it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.rights.as_bytes()[3] == b's'
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_its_blanks() {
        let line = "7f00-7f10 r-xp 00001000 08:01 42                 /a b/c  d (deleted)";
        let found = MapsLine::parse(line).unwrap();
        assert_eq!(found.name, "/a b/c  d (deleted)");
        assert_eq!((found.start, found.end), (0x7f00, 0x7f10));
        assert_eq!((found.offset, found.inode), (0x1000, 42));
        assert_eq!(found.device, 8 << 32 | 1);
        assert!(found.is_executable() && !found.is_writable() && !found.is_shared());
    }

    #[test]
    fn a_path_that_is_not_utf8_does_not_hide_the_other_mappings() {
        let file = b"10-20 rw-p 0 08:01 42 /a\xff\n20-30 rw-p 0 00:00 0 [heap]\n";
        let text = text(file.to_vec());
        let names: Vec<_> = text
            .lines()
            .filter_map(|line| MapsLine::parse(line).map(|found| found.name))
            .collect();
        assert_eq!(names, ["/a\u{fffd}", "[heap]"]);
    }

    #[test]
    fn anonymous_memory_has_no_name_and_nonsense_is_nothing() {
        let found = MapsLine::parse("10-20 rw-s 00000000 00:00 0 ").unwrap();
        assert_eq!(found.name, "");
        assert!(found.is_writable() && found.is_shared());
        for line in ["", "nonsense", "10-20 rw 0 00:00 0", "10-20 rw-p 0 0000 0"] {
            assert_eq!(MapsLine::parse(line), None, "{line}");
        }
    }
}
