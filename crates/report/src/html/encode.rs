//! Compact encoding of matrices that a browser decodes quickly.
//!
//! Cells are quantised to 16 bits on a logarithmic scale between the smallest and the largest cell: an
//! error of at most 0.05 % over fifteen orders of magnitude, finer than what is shown. A matrix
//! is written dense (n x n values) or sparse (index and value), whichever is shorter, in Base64.

use numaloc_model::CommMatrix;
use serde_json::{Value, json};

/// Maximum number of rows; with more threads, neighbours are added up in bins.
pub(crate) const SIDE: usize = 512;

/// Encodes a matrix, binned to `bins` rows.
pub(crate) fn matrix(matrix: &CommMatrix, bins: usize) -> Value {
    let threads = matrix.threads().max(1);
    let mut binned = vec![0.0f64; bins * bins];
    for (src, dst, amount) in matrix.cells() {
        binned[(src * bins / threads) * bins + dst * bins / threads] += amount;
    }
    let mut coded = cells(&binned);
    coded["total"] = json!(matrix.total());
    coded
}

/// Encodes the cells of a table, row by row; none is below 0.
pub(crate) fn cells(cells: &[f64]) -> Value {
    let filled = || cells.iter().copied().filter(|&v| v > 0.0);
    let max = filled().fold(0.0, f64::max);
    let min = filled().fold(f64::INFINITY, f64::min).min(max);
    let span = (max / min).ln();
    let code = |v: f64| -> u16 {
        if v <= 0.0 {
            0
        } else if span > 0.0 {
            1 + ((v / min).ln() / span * 65534.0).round() as u16
        } else {
            65535
        }
    };
    let stored = filled().count();
    let dense = cells.len() * 2 <= stored * 6;
    let mut raw = Vec::new();
    for (at, &v) in cells.iter().enumerate() {
        if dense {
            raw.extend_from_slice(&code(v).to_le_bytes());
        } else if v > 0.0 {
            raw.extend_from_slice(&(at as u32).to_le_bytes());
            raw.extend_from_slice(&code(v).to_le_bytes());
        }
    }
    json!({
        "max": max,
        "min": if max > 0.0 { min } else { 0.0 },
        "dense": dense,
        "cells": base64(&raw),
    })
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().enumerate().fold(0u32, |word, (at, &byte)| {
            word | u32::from(byte) << (16 - 8 * at)
        });
        for digit in 0..4 {
            if digit <= chunk.len() {
                out.push(DIGITS[(word >> (18 - 6 * digit) & 63) as usize] as char);
            } else {
                out.push('=');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_rfc_4648() {
        let known = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, coded) in known {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn dense_and_sparse_are_chosen_by_length() {
        let one = CommMatrix::from_cells(8, [(0, 1, 5.0)]).unwrap();
        let coded = matrix(&one, 8);
        assert_eq!(
            (&coded["dense"], &coded["max"]),
            (&json!(false), &json!(5.0))
        );
        // Index 1, code 65535: 01 00 00 00 ff ff.
        assert_eq!(coded["cells"], "AQAAAP//");
        let full: Vec<f64> = (0..16).map(f64::from).collect();
        let coded = matrix(&CommMatrix::from_dense(4, &full).unwrap(), 4);
        assert_eq!(coded["dense"], json!(true));
    }
}
