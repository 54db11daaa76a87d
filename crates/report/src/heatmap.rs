//! A matrix in characters: one cell per thread pair, or per bin of threads where they do not fit.

use numaloc_model::CommMatrix;

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Shades as block characters; letters and signs of ASCII otherwise.
    pub unicode: bool,
    /// Escape sequences for colour (the caller strips them where they are not wanted).
    pub colour: bool,
}

const ASCII: [&str; 6] = [" ", ".", ":", "+", "#", "@"];
const BLOCKS: [&str; 6] = ["·", "░", "▒", "▓", "█", "█"];
/// Shades of the 256-colour table, from dark blue to bright yellow.
const COLOURS: [u8; 6] = [238, 24, 31, 72, 178, 226];

/// Draws a matrix: rows are the source (writer), columns the destination (reader), by the square root
/// of their amount. The map has at most `room` columns, and some for numbers.
#[must_use]
pub fn draw(matrix: &CommMatrix, room: usize, style: Style) -> String {
    draw_within(matrix, style, room)
}

/// Two matrices of the same size next to each other, in 80 columns.
#[must_use]
pub fn side_by_side(a: &CommMatrix, b: &CommMatrix, style: Style) -> String {
    const HALF: usize = 33;
    let plain = Style {
        colour: false,
        ..style
    };
    let (left, right) = (draw_within(a, style, HALF), draw_within(b, style, HALF));
    let widths = draw_within(a, plain, HALF);
    let mut out = String::new();
    for ((left, right), width) in left.lines().zip(right.lines()).zip(widths.lines()) {
        let pad = 40usize.saturating_sub(width.chars().count());
        out += &format!("{left}{:pad$}{right}\n", "");
    }
    out
}

fn draw_within(matrix: &CommMatrix, style: Style, room: usize) -> String {
    let threads = matrix.threads();
    if threads == 0 {
        return String::new();
    }
    let cell_width = if threads * 2 <= room { 2 } else { 1 };
    let bins = threads.min(room / cell_width);
    let bin_of = |thread: usize| thread * bins / threads;
    let first_of = |bin: usize| (bin * threads).div_ceil(bins);
    let mut sums = vec![0.0; bins * bins];
    for (src, dst, amount) in matrix.cells() {
        sums[bin_of(src) * bins + bin_of(dst)] += amount;
    }
    let max = sums.iter().copied().fold(0.0, f64::max);
    let label = (threads - 1).to_string().len();
    let mut out = String::new();
    // Column numbers every few cells.
    let step = (label + 2).div_ceil(cell_width).next_power_of_two().max(4);
    out += &" ".repeat(label + 3);
    for bin in (0..bins).step_by(step) {
        out += &format!("{:<width$}", first_of(bin), width = step * cell_width);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    for row in 0..bins {
        out += &format!("  {:>label$} ", first_of(row));
        for col in 0..bins {
            let level = level(sums[row * bins + col], max);
            let glyph = if style.unicode {
                BLOCKS[level]
            } else {
                ASCII[level]
            };
            if style.colour {
                out += &format!(
                    "\x1b[38;5;{}m{}\x1b[0m",
                    COLOURS[level],
                    glyph.repeat(cell_width)
                );
            } else {
                out += &glyph.repeat(cell_width);
            }
        }
        if !style.unicode {
            out.truncate(out.trim_end_matches(' ').len());
        }
        out.push('\n');
    }
    if bins < threads {
        out += &format!(
            "  (each cell adds up {}x{} threads)\n",
            threads.div_ceil(bins),
            threads.div_ceil(bins)
        );
    }
    out
}

/// Shade of a cell: 0 for zero, 1 to 5 by the square root, so that a tenth of the largest cell and a hundredth differ
/// and noise stays faint.
fn level(value: f64, max: f64) -> usize {
    if value <= 0.0 {
        return 0;
    }
    1 + (((value / max).sqrt() * 5.0) as usize).min(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(threads: usize) -> CommMatrix {
        CommMatrix::from_cells(threads, (0..threads).map(|t| (t, (t + 1) % threads, 100.0)))
            .unwrap()
    }

    #[test]
    fn a_ring_is_a_diagonal() {
        let ascii = Style {
            unicode: false,
            colour: false,
        };
        assert_eq!(
            draw(&ring(4), 72, ascii),
            "    0\n  0   @@\n  1     @@\n  2       @@\n  3 @@\n"
        );
    }

    #[test]
    fn every_size_fits_80_columns() {
        for threads in [1, 2, 36, 37, 72, 73, 512, 5000] {
            for unicode in [false, true] {
                let drawn = draw(
                    &ring(threads),
                    72,
                    Style {
                        unicode,
                        colour: false,
                    },
                );
                let widest = drawn
                    .lines()
                    .map(|line| line.chars().count())
                    .max()
                    .unwrap();
                assert!(widest <= 80, "{threads} threads: {widest} columns");
            }
        }
        assert!(
            draw(
                &CommMatrix::empty(0),
                72,
                Style {
                    unicode: true,
                    colour: true
                }
            )
            .is_empty()
        );
    }
}
