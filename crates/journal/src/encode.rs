//! Encodes records: a kind byte, then LEB128 numbers and strings in the order of the record's fields.

use super::Record;

/// Writes LEB128 numbers and strings.
struct Encoder<'a>(&'a mut Vec<u8>);

impl Encoder<'_> {
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn numbers(&mut self, values: &[u64]) {
        for &value in values {
            self.number(value);
        }
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }
}

impl Record {
    /// Appends the record to a payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut to = Encoder(out);
        match self {
            Self::Process {
                version,
                pid,
                path,
                image,
                frontend,
                virtual_clock,
                line_shift,
                time_share_ppm,
                line_share_ppm,
                program,
            } => {
                to.numbers(&[1, *version, (*pid).into()]);
                to.text(path);
                to.number((*image).into());
                to.text(frontend);
                to.numbers(&[
                    (*virtual_clock).into(),
                    (*line_shift).into(),
                    (*time_share_ppm).into(),
                    (*line_share_ppm).into(),
                ]);
                to.text(program);
            }
            Self::ThreadStart {
                thread,
                path,
                tid,
                time,
                routine,
            } => {
                to.numbers(&[2, (*thread).into()]);
                to.text(path);
                to.numbers(&[(*tid).into(), *time, *routine]);
            }
            Self::ThreadTotals {
                thread,
                time,
                accesses,
                seen,
                read_bytes,
                write_bytes,
            } => to.numbers(&[
                3,
                (*thread).into(),
                *time,
                *accesses,
                *seen,
                *read_bytes,
                *write_bytes,
            ]),
            Self::Comm {
                thread,
                layer,
                start,
                length,
                cells,
            } => {
                to.numbers(&[4, (*thread).into(), (*layer).into(), *start, *length]);
                to.number(cells.len() as u64);
                for &(src, events, bytes) in cells {
                    to.numbers(&[src.into(), events, bytes]);
                }
            }
            Self::Pages {
                thread,
                start,
                length,
                cells,
            } => {
                to.numbers(&[5, (*thread).into(), *start, *length]);
                to.number(cells.len() as u64);
                let mut last = 0;
                for &(page, reads, writes) in cells {
                    to.numbers(&[page.wrapping_sub(last), reads, writes]);
                    last = page;
                }
            }
            Self::FirstTouch { thread, cells } => {
                to.numbers(&[6, (*thread).into(), cells.len() as u64]);
                for &(page, time) in cells {
                    to.numbers(&[page, time]);
                }
            }
            Self::Map {
                sequence,
                thread,
                address,
                length,
                protection,
                flags,
                file,
                offset,
                moved_from,
            } => {
                to.numbers(&[7, *sequence, (*thread).into(), *address, *length]);
                to.numbers(&[*protection, *flags]);
                to.text(file);
                to.numbers(&[*offset, *moved_from]);
            }
            Self::Unmap {
                sequence,
                address,
                length,
            } => to.numbers(&[8, *sequence, *address, *length]),
            Self::Break { sequence, address } => to.numbers(&[9, *sequence, *address]),
            Self::Stack {
                sequence,
                path,
                pointer,
            } => {
                to.numbers(&[10, *sequence]);
                to.text(path);
                to.number(*pointer);
            }
            Self::Image { file, start, end } => {
                to.number(11);
                to.text(file);
                to.numbers(&[*start, *end]);
            }
            Self::Note(text) => {
                to.number(12);
                to.text(text);
            }
            Self::Sharing(symbol) => {
                to.number(33);
                to.text(symbol);
            }
            Self::Reduced(text) => {
                to.number(17);
                to.text(text);
            }
            Self::End => to.number(13),
            Self::SharedLines(cells) => {
                to.numbers(&[15, cells.len() as u64]);
                for &(line, events, false_events) in cells {
                    to.numbers(&[line, events, false_events]);
                }
            }
            Self::Groups {
                thread,
                layer,
                src,
                counts,
            } => {
                to.numbers(&[16, (*thread).into(), (*layer).into(), (*src).into()]);
                to.number(counts.len() as u64);
                to.numbers(counts);
            }
            Self::Backing {
                sequence,
                address,
                length,
                object,
                offset,
            } => to.numbers(&[18, *sequence, *address, *length, (*object).into(), *offset]),
            Self::ThreadName { thread, name } => {
                to.numbers(&[32, (*thread).into()]);
                to.text(name);
            }
            Self::Site { site, frames } => {
                to.numbers(&[30, (*site).into(), frames.len() as u64]);
                to.numbers(frames);
            }
            Self::Block {
                sequence,
                thread,
                address,
                length,
                site,
            } => to.numbers(&[
                31,
                *sequence,
                (*thread).into(),
                *address,
                *length,
                (*site).into(),
            ]),
            Self::CrossProcessNumber { thread, number } => {
                to.numbers(&[19, (*thread).into(), (*number).into()]);
            }
            Self::Lines {
                thread,
                start,
                length,
                lines,
            } => {
                to.numbers(&[14, (*thread).into(), *start, *length]);
                to.number(lines.len() as u64);
                let mut last = 0;
                for &line in lines {
                    to.number(line.wrapping_sub(last));
                    last = line;
                }
            }
        }
    }
}
