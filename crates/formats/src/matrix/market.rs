//! Reads MatrixMarket files as described in <https://math.nist.gov/MatrixMarket/formats.html>.

use std::io::BufRead;

use super::{Cells, Fault, Lines, MAX_CELLS, MAX_DENSE_TASKS, MAX_TASKS, amount};

pub(super) fn read(input: &mut impl BufRead) -> Result<(usize, Cells), Fault> {
    let mut lines = Lines::new(input, 4096);
    let header = match lines.next()? {
        Some((_, text)) => text.to_ascii_lowercase(),
        None => return Err(Fault::new("the file is empty")),
    };
    let kind = Kind::of(&header)?;
    let (line, sizes) = loop {
        match lines.next()? {
            None => return Err(Fault::new("no size line")),
            Some((_, text)) if text.starts_with('%') || text.trim().is_empty() => {}
            Some((line, text)) => break (line, numbers(text, line)?),
        }
    };
    let (tasks, entries) = kind.size(&sizes, line)?;
    let mut cells = Cells::new();
    let mut seen = 0;
    // Column-major position of the next entry of an array.
    let (mut row, mut column) = (0, 0);
    while let Some((line, text)) = lines.next()? {
        if text.trim().is_empty() || text.starts_with('%') {
            continue;
        }
        seen += 1;
        if seen > entries {
            return Err(Fault::at(
                line,
                format!("more than the {entries} entries announced"),
            ));
        }
        let (src, dst, value) = if kind.sparse {
            entry(text, line, tasks, kind.pattern)?
        } else {
            let value = text.trim().parse().map_err(|_| bad(text, line))?;
            let at = (row, column, value);
            row += 1;
            if row == tasks {
                column += 1;
                row = if kind.symmetric { column } else { 0 };
            }
            at
        };
        let value = amount(value, Some(line), src, dst)?;
        if value > 0.0 {
            cells.push((src, dst, value));
            if kind.symmetric && src != dst {
                cells.push((dst, src, value));
            }
        }
    }
    if seen != entries {
        return Err(
            Fault::new(format!("{seen} entries, the size line announces {entries}"))
                .expected("a complete file"),
        );
    }
    Ok((tasks, cells))
}

/// What the header states.
struct Kind {
    /// Entries with their place, otherwise an array column by column.
    sparse: bool,
    /// Entries without an amount.
    pattern: bool,
    /// Entries of one triangle stand for both.
    symmetric: bool,
}

impl Kind {
    /// What a header in small letters states.
    fn of(header: &str) -> Result<Self, Fault> {
        let words: Vec<&str> = header.split_ascii_whitespace().collect();
        let &["%%matrixmarket", "matrix", shape, field, symmetry] = &words[..] else {
            return Err(Fault::at(1, "no MatrixMarket header")
                .expected("%%MatrixMarket matrix coordinate real general, or the like"));
        };
        let pattern = field == "pattern";
        if !matches!(shape, "coordinate" | "array")
            || !matches!(field, "real" | "integer" | "double" | "pattern")
            || !matches!(symmetry, "general" | "symmetric")
            || (pattern && shape == "array")
        {
            return Err(Fault::at(1, format!("{shape} {field} {symmetry}"))
                .expected("coordinate or array, real, integer or pattern, general or symmetric"));
        }
        Ok(Self {
            sparse: shape == "coordinate",
            pattern,
            symmetric: symmetry == "symmetric",
        })
    }

    /// Numbers of tasks and of entries by the size line, which is line `line`.
    fn size(&self, sizes: &[usize], line: usize) -> Result<(usize, usize), Fault> {
        let (tasks, entries) = match (sizes, self.sparse) {
            (&[rows, columns, entries], true) => (square(rows, columns, MAX_TASKS, line)?, entries),
            (&[rows, columns], false) => {
                let n = square(rows, columns, MAX_DENSE_TASKS, line)?;
                let triangle = n * (n + 1) / 2;
                (n, if self.symmetric { triangle } else { n * n })
            }
            _ => return Err(Fault::at(line, "not a size line").expected("rows columns [entries]")),
        };
        if entries > MAX_CELLS {
            let fault = Fault::at(line, format!("{entries} entries"));
            return Err(fault.expected(format!("at most {MAX_CELLS}")));
        }
        Ok((tasks, entries))
    }
}

fn entry(
    text: &str,
    line: usize,
    tasks: usize,
    pattern: bool,
) -> Result<(usize, usize, f64), Fault> {
    let words: Vec<&str> = text.split_ascii_whitespace().take(4).collect();
    let index = |word: &str| -> Result<usize, Fault> {
        let known = word.parse().ok().filter(|at| (1..=tasks).contains(at));
        known
            .map(|at: usize| at - 1)
            .ok_or_else(|| bad(word, line).expected(format!("rows and columns from 1 to {tasks}")))
    };
    match (&words[..], pattern) {
        (&[row, column], true) => Ok((index(row)?, index(column)?, 1.0)),
        (&[row, column, value], false) => {
            let value = value.parse().map_err(|_| bad(value, line))?;
            Ok((index(row)?, index(column)?, value))
        }
        _ => Err(bad(text, line).expected("row column value")),
    }
}

fn bad(text: &str, line: usize) -> Fault {
    let shown: String = text.trim().chars().take(24).collect();
    Fault::at(line, format!("{shown:?}")).expected("a number")
}

fn numbers(text: &str, line: usize) -> Result<Vec<usize>, Fault> {
    text.split_ascii_whitespace()
        .take(4)
        .map(|word| word.parse().map_err(|_| bad(word, line)))
        .collect()
}

fn square(rows: usize, columns: usize, most: usize, line: usize) -> Result<usize, Fault> {
    if rows != columns {
        return Err(
            Fault::at(line, format!("{rows} rows, {columns} columns")).expected("a square matrix")
        );
    }
    if rows > most {
        return Err(Fault::at(line, format!("{rows} tasks")).expected(format!("at most {most}")));
    }
    Ok(rows)
}
