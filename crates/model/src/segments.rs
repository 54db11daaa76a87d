//! Segments: the names that people use for the memory of well-known programs, such as `shared_buffers`, and the rules
//! by which objects get them.
//!
//! A segment is a name to display and to add up by. It is not part of an object's identity, so plans do not depend on
//! rules.

use crate::profile::ObjectKind;

/// A text in which `*` stands for any characters, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// The pattern that `text` states.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether it holds for the whole of `text`. O(length of the pattern x length of the text).
    #[must_use]
    pub fn holds(&self, text: &str) -> bool {
        let (pattern, text) = (self.0.as_bytes(), text.as_bytes());
        let (mut at, mut read) = (0, 0);
        // Where the last `*` is, and how much of the text it stands for at least.
        let mut star: Option<(usize, usize)> = None;
        while read < text.len() {
            if pattern.get(at) == Some(&b'*') {
                star = Some((at, read));
                at += 1;
            } else if pattern.get(at) == Some(&text[read]) {
                (at, read) = (at + 1, read + 1);
            } else if let Some((position, from)) = star {
                star = Some((position, from + 1));
                (at, read) = (position + 1, from + 1);
            } else {
                return false;
            }
        }
        pattern[at..].iter().all(|&byte| byte == b'*')
    }
}

/// Which objects are a segment. Every condition must hold; one without a value holds for all objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRule {
    /// The name of the segment.
    pub name: String,
    /// Programs and libraries, by file name, of which the object's process has loaded one.
    pub loaded: Vec<Pattern>,
    /// Kinds of memory.
    pub kinds: Vec<ObjectKind>,
    /// Names of objects: `[anon]`, `[shm]`, or the name of a mapped file.
    pub memory: Vec<Pattern>,
    /// Names of parts of objects: of allocated blocks (`malloc in FUNCTION`), of variables, and those that the program
    /// gives to anonymous memory. A rule with this condition is about parts.
    pub parts: Vec<Pattern>,
    /// Least size of the object or part, in bytes.
    pub at_least: u64,
    /// Greatest size of the object or part, in bytes.
    pub at_most: u64,
    /// Address at which the object ends at the latest.
    pub below: u64,
    /// Options of the recorded command line that state the size: `-Xmx` of `-Xmx4g`. The object is at most 1/32 and
    /// 4 MiB larger than the option states.
    pub options: Vec<String>,
    /// Whether only the largest of a process's objects for which the other conditions hold is the segment.
    pub is_largest: bool,
    /// Whether it only adds up: objects keep their own names.
    pub is_general: bool,
    /// What the program's own settings do with this memory, in a sentence.
    pub switch: Option<String>,
}

impl SegmentRule {
    /// A rule for all memory, which makes a segment of that name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            loaded: Vec::new(),
            kinds: Vec::new(),
            memory: Vec::new(),
            parts: Vec::new(),
            at_least: 0,
            at_most: u64::MAX,
            below: u64::MAX,
            options: Vec::new(),
            is_largest: false,
            is_general: false,
            switch: None,
        }
    }
}

/// A size such as `4096`, `64K`, `2m` or `1G` in bytes.
#[must_use]
pub fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.bytes().last()?.to_ascii_uppercase() {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift)
}

/// Whether one of the patterns holds for the text; without patterns, all texts.
#[must_use]
pub fn any_holds(patterns: &[Pattern], text: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.holds(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, expected) in [
            ("postgres", "postgres", true),
            ("postgres", "postgresql", false),
            ("libjvm.so*", "libjvm.so", true),
            ("*.gguf", "model.Q4.gguf", true),
            ("*.gguf", "model.gguf.part", false),
            ("*a*b*c", "xxaxxbxxabc", true),
            ("a*a", "a", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("PostgreSQL.*", "PostgreSQL.123", true),
        ] {
            assert_eq!(
                Pattern::new(pattern).holds(text),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn sizes_have_units() {
        let found = [
            "4096",
            "64K",
            "2m",
            "1G",
            "",
            "K",
            "-1",
            "99999999999G",
            "1 G",
            "1ä",
        ]
        .map(bytes);
        let expected = [Some(4096), Some(64 << 10), Some(2 << 20), Some(1 << 30)];
        assert_eq!(found[..4], expected);
        assert_eq!(found[4..], [None; 6]);
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = Pattern::new("*a".repeat(200) + "b");
        assert!(!pattern.holds(&"a".repeat(4000)));
    }
}
