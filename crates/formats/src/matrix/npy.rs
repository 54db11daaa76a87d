//! Reads NumPy arrays, versions 1 to 3 of the format as documented in `numpy.lib.format`.

use std::io::Read;

use super::{Cells, Fault, MAX_DENSE_TASKS, amount};

/// Longest header in bytes. Headers are padded to 64 bytes; NumPy itself refuses more than 10,000 by default.
const MAX_HEADER_BYTES: usize = 10_000;

pub(super) fn read(input: &mut impl Read) -> Result<(usize, Cells), Fault> {
    let mut start = [0; 8];
    exact(input, &mut start, "the header")?;
    if &start[..6] != b"\x93NUMPY" {
        return Err(Fault::new("no NumPy magic").expected("a file of numpy.save"));
    }
    let length = match start[6] {
        1 => {
            let mut bytes = [0; 2];
            exact(input, &mut bytes, "the header")?;
            usize::from(u16::from_le_bytes(bytes))
        }
        2 | 3 => {
            let mut bytes = [0; 4];
            exact(input, &mut bytes, "the header")?;
            u32::from_le_bytes(bytes) as usize
        }
        version => {
            return Err(Fault::new(format!("version {version}")).expected("version 1, 2 or 3"));
        }
    };
    if length > MAX_HEADER_BYTES {
        return Err(Fault::new(format!("a header of {length} bytes")));
    }
    let mut header = vec![0; length];
    exact(input, &mut header, "the header")?;
    let header = String::from_utf8(header).map_err(|_| Fault::new("a header that is not text"))?;
    let (number, by_column, tasks) = parse(&header)?;

    let mut cells = Cells::new();
    let mut line = vec![0; tasks * number.bytes()];
    for outer in 0..tasks {
        exact(input, &mut line, "its data")?;
        for (inner, bytes) in line.chunks_exact(number.bytes()).enumerate() {
            let (src, dst) = if by_column {
                (inner, outer)
            } else {
                (outer, inner)
            };
            let value = amount(number.value(bytes), None, src, dst)?;
            if value > 0.0 {
                cells.push((src, dst, value));
            }
        }
    }
    if input.read(&mut [0]).map_err(|e| Fault::io(&e))? != 0 {
        return Err(Fault::new("more data than the header announces"));
    }
    Ok((tasks, cells))
}

fn exact(input: &mut impl Read, bytes: &mut [u8], what: &str) -> Result<(), Fault> {
    input.read_exact(bytes).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Fault::new(format!("the file ends within {what}")),
        _ => Fault::io(&error),
    })
}

/// Element type: kind, width in bytes, whether it is little endian.
#[derive(Clone, Copy)]
struct Number {
    kind: u8,
    width: usize,
    little: bool,
}

impl Number {
    fn bytes(self) -> usize {
        self.width
    }

    fn value(self, bytes: &[u8]) -> f64 {
        let mut word = [0; 8];
        for (at, &byte) in bytes.iter().enumerate() {
            word[if self.little { at } else { self.width - 1 - at }] = byte;
        }
        let raw = u64::from_le_bytes(word);
        match self.kind {
            b'f' if self.width == 4 => f64::from(f32::from_bits(raw as u32)),
            b'f' => f64::from_bits(raw),
            b'i' => {
                let unused = 64 - 8 * self.width;
                ((raw << unused) as i64 >> unused) as f64
            }
            _ => raw as f64,
        }
    }
}

/// Parses the three entries of the header's dictionary.
fn parse(header: &str) -> Result<(Number, bool, usize), Fault> {
    let after = |key: &str| {
        let quoted = [format!("'{key}'"), format!("\"{key}\"")];
        let found = quoted
            .iter()
            .find_map(|q| header.find(q.as_str()).map(|at| at + q.len()));
        found
            .map(|at| {
                header[at..]
                    .trim_start()
                    .trim_start_matches(':')
                    .trim_start()
            })
            .ok_or_else(|| Fault::new(format!("a header without {key}")))
    };
    let descr = after("descr")?;
    let name: String = descr
        .chars()
        .skip(1)
        .take_while(|c| !matches!(c, '\'' | '"' | ',' | '}'))
        .collect();
    let refuse = || {
        Fault::new(format!("elements of type {name:?}"))
            .expected("whole or floating-point numbers of 1 to 8 bytes (f4, f8, i4, u8, ...)")
    };
    let &[order, kind, width] = name.as_bytes() else {
        return Err(refuse());
    };
    let width = usize::from(width.wrapping_sub(b'0'));
    let known = match kind {
        b'f' => matches!(width, 4 | 8),
        b'i' | b'u' => matches!(width, 1 | 2 | 4 | 8),
        b'b' => width == 1,
        _ => false,
    };
    if !known || !matches!(order, b'<' | b'>' | b'|' | b'=') {
        return Err(refuse());
    }
    let by_column = after("fortran_order")?.starts_with("True");
    let shape = after("shape")?;
    let inside = shape
        .strip_prefix('(')
        .and_then(|s| s.split(')').next())
        .unwrap_or("");
    let sizes: Vec<&str> = inside
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .collect();
    let sizes: Option<Vec<usize>> = sizes.iter().map(|s| s.parse().ok()).collect();
    match sizes.as_deref() {
        Some(&[rows, columns]) if rows == columns && rows <= MAX_DENSE_TASKS => Ok((
            Number {
                kind,
                width,
                little: order != b'>',
            },
            by_column,
            rows,
        )),
        Some(&[rows, columns]) if rows == columns => Err(Fault::new(format!("{rows} tasks"))
            .expected(format!(
                "at most {MAX_DENSE_TASKS}, larger ones as MatrixMarket"
            ))),
        _ => Err(Fault::new(format!("an array of shape ({inside})")).expected("a square matrix")),
    }
}
