//! Writes the numbers and strings that records consist of, and defines who receives them.

/// Receives the parts of a record, in the order of its bytes ([`crate::Record::visit`]).
pub trait Visitor {
    /// A number of the field `field`. A list is its length, then its numbers as they are written.
    fn number(&mut self, field: &'static str, value: u64);
    /// A string of the field `field`.
    fn text(&mut self, field: &'static str, text: &str);
}

/// Appends LEB128 numbers, and strings as length and bytes, to a payload.
pub(crate) struct Encoder<'a>(pub(crate) &'a mut Vec<u8>);

impl Encoder<'_> {
    pub(crate) fn leb128(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

impl Visitor for Encoder<'_> {
    fn number(&mut self, _: &'static str, value: u64) {
        self.leb128(value);
    }

    fn text(&mut self, _: &'static str, text: &str) {
        self.leb128(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }
}
