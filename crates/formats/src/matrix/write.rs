//! Writes matrices.

use numaloc_model::CommMatrix;
use std::io::{self, Write};

use super::MatrixFormat;

/// Writes a matrix. Numbers are written so that they are read back exactly.
///
/// # Errors
/// Those of `out`.
pub fn write_matrix_to(
    out: &mut impl Write,
    matrix: &CommMatrix,
    format: MatrixFormat,
) -> io::Result<()> {
    let n = matrix.threads();
    match format {
        MatrixFormat::Csv => {
            for row in 0..n {
                let mut dense = vec![0.0; n];
                matrix
                    .row(row)
                    .for_each(|(column, amount)| dense[column] = amount);
                for (column, amount) in dense.iter().enumerate() {
                    write!(out, "{}{amount}", if column > 0 { "," } else { "" })?;
                }
                writeln!(out)?;
            }
        }
        MatrixFormat::Edges => {
            // The last task is named even if it does not communicate, so that the number of tasks is preserved.
            writeln!(out, "# src dst amount; {n} tasks")?;
            for (src, dst, amount) in matrix.cells() {
                writeln!(out, "{src} {dst} {amount}")?;
            }
            if n > 0 {
                writeln!(out, "{} {} 0", n - 1, n - 1)?;
            }
        }
        MatrixFormat::MatrixMarket => {
            writeln!(out, "%%MatrixMarket matrix coordinate real general")?;
            writeln!(out, "{n} {n} {}", matrix.stored_cells())?;
            for (src, dst, amount) in matrix.cells() {
                writeln!(out, "{} {} {amount}", src + 1, dst + 1)?;
            }
        }
        MatrixFormat::Npy => {
            let dict = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({n}, {n}), }}");
            // Magic, version, length and dictionary, padded to 64 bytes and ended by a newline.
            let padding = 63 - (10 + dict.len()) % 64;
            let length = dict.len() + padding + 1;
            out.write_all(b"\x93NUMPY\x01\x00")?;
            out.write_all(&(length as u16).to_le_bytes())?;
            writeln!(out, "{dict}{}", " ".repeat(padding))?;
            for row in 0..n {
                let mut dense = vec![0.0; n];
                matrix
                    .row(row)
                    .for_each(|(column, amount)| dense[column] = amount);
                for amount in dense {
                    out.write_all(&f64::to_le_bytes(amount))?;
                }
            }
        }
    }
    Ok(())
}
