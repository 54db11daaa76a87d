//! Reads dense CSV and edge lists.

use std::io::BufRead;

use super::{Cells, Fault, Lines, MAX_CELLS, MAX_DENSE_TASKS, MAX_TASKS, amount};

/// Longest plausible cell in bytes, with its comma.
const CELL_BYTES: usize = 32;

/// What is between the numbers of a dense file: commas if the first row has one, else blanks and tabs as
/// `numpy.savetxt` writes them.
#[derive(Clone, Copy)]
enum Between {
    Commas,
    Blanks,
}

impl Between {
    fn of(row: &str) -> Self {
        match row.contains(',') {
            true => Self::Commas,
            false => Self::Blanks,
        }
    }

    fn cells(self, row: &str) -> impl Iterator<Item = &str> {
        let commas = matches!(self, Self::Commas).then(|| row.split(','));
        let blanks = matches!(self, Self::Blanks).then(|| row.split_whitespace());
        let commas = commas.into_iter().flatten();
        commas.chain(blanks.into_iter().flatten())
    }
}

/// Reads n lines of n numbers, and comments: lines that begin with `#`.
pub(super) fn dense(input: &mut impl BufRead) -> Result<(usize, Cells), Fault> {
    let mut lines = Lines::new(input, MAX_DENSE_TASKS * CELL_BYTES);
    let (mut tasks, mut row) = (0, 0);
    let mut cells = Cells::new();
    let (mut ended_at, mut between) = (None, None);
    while let Some((line, text)) = lines.next()? {
        if text.trim().is_empty() {
            ended_at.get_or_insert(line);
            continue;
        }
        if text.trim_start().starts_with('#') {
            continue;
        }
        if let Some(blank) = ended_at {
            return Err(Fault::at(blank, "empty, but more rows follow"));
        }
        let between = *between.get_or_insert_with(|| Between::of(text));
        let mut columns = 0;
        for cell in between.cells(text) {
            if columns >= MAX_DENSE_TASKS {
                return Err(
                    Fault::at(line, format!("more than {MAX_DENSE_TASKS} columns"))
                        .expected("larger matrices as MatrixMarket or an edge list"),
                );
            }
            let value = number(cell, line, columns)?;
            let value = amount(value, Some(line), row, columns)?;
            if value > 0.0 {
                cells.push((row, columns, value));
            }
            columns += 1;
        }
        if row == 0 {
            tasks = columns;
        }
        if columns != tasks {
            return Err(Fault::at(
                line,
                format!("{columns} columns, the first row has {tasks}"),
            )
            .expected("as many in every row"));
        }
        row += 1;
        if row > tasks {
            return Err(not_square(row, tasks, true));
        }
    }
    if row != tasks {
        return Err(not_square(row, tasks, false));
    }
    Ok((tasks, cells))
}

fn not_square(rows: usize, columns: usize, more: bool) -> Fault {
    let rows = format!("{}{rows}", if more { "at least " } else { "" });
    Fault::new(format!("{rows} rows of {columns} columns")).expected("a square matrix")
}

fn number(cell: &str, line: usize, column: usize) -> Result<f64, Fault> {
    let cell = cell.trim();
    cell.parse().map_err(|_| {
        let shown: String = cell.chars().take(24).collect();
        let fault = Fault::at(line, format!("column {} is {shown:?}", column + 1));
        let other = |c: &char| matches!(c, ';' | ',' | '\t' | ' ' | '|');
        match cell.chars().find(other) {
            Some(other) => fault.expected(format!(
                "numbers with commas between, or with blanks in all rows, not {other:?}"
            )),
            None => fault.expected("a number (a header line must go)"),
        }
    })
}

/// Reads `src dst [amount]` lines.
pub(super) fn edges(input: &mut impl BufRead) -> Result<(usize, Cells), Fault> {
    let mut lines = Lines::new(input, 4096);
    let mut tasks = 0;
    let mut cells = Cells::new();
    while let Some((line, text)) = lines.next()? {
        let text = text.split(['#', '%']).next().unwrap_or("");
        let mut words = text.split([' ', '\t', ',']).filter(|word| !word.is_empty());
        let Some(src) = words.next() else { continue };
        let src = task(src, line)?;
        let dst = words
            .next()
            .ok_or_else(|| Fault::at(line, "one number").expected("src dst [amount]"))?;
        let dst = task(dst, line)?;
        let value = match words.next() {
            None => 1.0,
            Some(word) => word.parse().map_err(|_| {
                let shown: String = word.chars().take(24).collect();
                Fault::at(line, format!("the amount is {shown:?}")).expected("a number")
            })?,
        };
        if words.next().is_some() {
            return Err(Fault::at(line, "more than three numbers").expected("src dst [amount]"));
        }
        tasks = tasks.max(src + 1).max(dst + 1);
        if cells.len() >= MAX_CELLS {
            return Err(Fault::at(line, format!("more than {MAX_CELLS} edges")));
        }
        cells.push((src, dst, amount(value, Some(line), src, dst)?));
    }
    Ok((tasks, cells))
}

fn task(word: &str, line: usize) -> Result<usize, Fault> {
    let known = word.parse().ok().filter(|&task: &usize| task < MAX_TASKS);
    known.ok_or_else(|| {
        let shown: String = word.chars().take(24).collect();
        Fault::at(line, format!("a task is {shown:?}"))
            .expected(format!("whole numbers from 0 to {}", MAX_TASKS - 1))
    })
}
