//! Reads and writes communication matrices in the formats of other tools.
//!
//! | format | holds | written by |
//! |---|---|---|
//! | CSV | n lines of n numbers, commas or blanks between, task 0 first; comments after `#` | `numpy.savetxt`, spreadsheets |
//! | CSV, reversed | the same, rows from the last task to the first, columns in order | numalize, EagerMap |
//! | NumPy `.npy` | one square array of whole or floating-point numbers | `numpy.save` |
//! | MatrixMarket | `coordinate` (sparse) or `array` (dense); real, integer or pattern; general or symmetric | scipy, MATLAB |
//! | edge list | one `src dst [amount]` per line, tasks from 0, `#` or `%` starts a comment | by hand, networkx |
//!
//! Repeated cells are summed; the diagonal is read and dropped. Rows are sources, columns destinations.
//! Files are untrusted: dense ones have at most [`MAX_DENSE_TASKS`] tasks, sparse ones
//! [`MAX_TASKS`], line lengths are limited, and no memory is allocated for sizes that only a header states.

mod csv;
mod market;
mod npy;
mod write;

use numaloc_model::CommMatrix;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::error::FormatError;

pub use write::write_matrix_to;

/// Largest dense matrix that is read: 8,192 tasks are 64 Mi cells, at most 1.5 GiB while reading.
pub const MAX_DENSE_TASKS: usize = 8192;
/// Largest sparse matrix that is read.
pub const MAX_TASKS: usize = 1 << 22;
/// Largest number of cells in a sparse file: 64 Mi, at most 1.5 GiB while reading.
pub const MAX_CELLS: usize = 1 << 26;

/// A file format of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixFormat {
    /// Dense text, comma-separated.
    Csv,
    /// NumPy array.
    Npy,
    /// MatrixMarket.
    MatrixMarket,
    /// `src dst [amount]` lines.
    Edges,
}

impl MatrixFormat {
    /// Every format.
    pub const ALL: [Self; 4] = [Self::Csv, Self::Npy, Self::MatrixMarket, Self::Edges];

    /// Name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Npy => "npy",
            Self::MatrixMarket => "mtx",
            Self::Edges => "edges",
        }
    }

    /// The format with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Endings of file names in lower case, the most common one first.
    #[must_use]
    pub fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Csv => &["csv"],
            Self::Npy => &["npy"],
            Self::MatrixMarket => &["mtx", "mm"],
            Self::Edges => &["edges", "edgelist", "el"],
        }
    }

    /// The format for the ending of a file name, CSV if it has no ending; `None` for an unknown ending.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        let Some(ending) = path.extension() else {
            return Some(Self::Csv);
        };
        let ending = ending.to_str()?.to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|format| format.endings().contains(&&*ending))
    }
}

/// What is wrong with the content of a file, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Line from 1, for text.
    pub line: Option<usize>,
    /// What was found. Lower case, no full stop.
    pub found: String,
    /// What was expected.
    pub expected: Option<String>,
}

impl Fault {
    fn new(found: impl Into<String>) -> Self {
        Self {
            line: None,
            found: found.into(),
            expected: None,
        }
    }

    fn at(line: usize, found: impl Into<String>) -> Self {
        Self {
            line: Some(line),
            ..Self::new(found)
        }
    }

    fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    fn io(error: &std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// Reads a matrix from a file.
///
/// # Errors
/// [`FormatError`] names the file, the place in it, what was found and what was expected.
pub fn read_matrix(
    path: &Path,
    format: MatrixFormat,
    reversed: bool,
) -> Result<CommMatrix, FormatError> {
    let io = |error| FormatError::io("read", path, error);
    let file = numaloc_files::input::open(path).map_err(io)?;
    // Opening a folder succeeds, reading it does not.
    if file.metadata().map_err(io)?.is_dir() {
        return Err(io(std::io::ErrorKind::IsADirectory.into()));
    }
    read_matrix_from(BufReader::new(file), format, reversed).map_err(|fault| {
        let place = fault
            .line
            .map_or("content".to_owned(), |line| format!("line {line}"));
        let whole = || format!("a communication matrix as {}", format.name());
        FormatError::corrupt(
            path,
            place,
            fault.found,
            fault.expected.unwrap_or_else(whole),
        )
    })
}

/// Reads a matrix from a reader; `reversed` reverses the order of rows (numalize, EagerMap).
///
/// # Errors
/// The [`Fault`], without a file name.
pub fn read_matrix_from(
    mut input: impl BufRead,
    format: MatrixFormat,
    reversed: bool,
) -> Result<CommMatrix, Fault> {
    let (tasks, mut cells) = match format {
        MatrixFormat::Csv => csv::dense(&mut input)?,
        MatrixFormat::Edges => csv::edges(&mut input)?,
        MatrixFormat::Npy => npy::read(&mut input)?,
        MatrixFormat::MatrixMarket => market::read(&mut input)?,
    };
    if tasks == 0 {
        return Err(Fault::new("the matrix is empty").expected("at least one task"));
    }
    if reversed {
        for (src, _, _) in &mut cells {
            *src = tasks - 1 - *src;
        }
    }
    CommMatrix::from_cells(tasks, cells).map_err(|error| Fault::new(error.to_string()))
}

/// Whether rows seem to be in reversed order: the diagonal is zero if they are reversed, and not as they are.
/// `as_read` is the matrix as read; its diagonal has been dropped, so this examines
/// the anti-diagonal.
#[must_use]
pub fn looks_reversed(matrix: &CommMatrix) -> bool {
    let n = matrix.threads();
    n > 2
        && matrix.stored_cells() > n
        && !matrix.is_symmetric()
        && (0..n).all(|row| matrix.get(row, n - 1 - row) == 0.0)
}

type Cells = Vec<(usize, usize, f64)>;

/// Checks one amount in a file.
fn amount(value: f64, line: Option<usize>, src: usize, dst: usize) -> Result<f64, Fault> {
    if value.is_finite() && value >= 0.0 {
        return Ok(value);
    }
    let fault = Fault::new(format!("cell ({src}, {dst}) is {value}"));
    Err(Fault {
        line,
        ..fault.expected("finite amounts of at least 0")
    })
}

/// Reads lines of limited length, numbered from 1, without line ends.
struct Lines<'a, R> {
    input: &'a mut R,
    longest: usize,
    number: usize,
    bytes: Vec<u8>,
}

impl<'a, R: BufRead> Lines<'a, R> {
    fn new(input: &'a mut R, longest: usize) -> Self {
        Self {
            input,
            longest,
            number: 0,
            bytes: Vec::new(),
        }
    }

    /// The next line, or `None` at the end.
    fn next(&mut self) -> Result<Option<(usize, &str)>, Fault> {
        self.bytes.clear();
        let limit = self.longest as u64 + 1;
        let mut limited = self.input.by_ref().take(limit);
        let read = limited
            .read_until(b'\n', &mut self.bytes)
            .map_err(|e| Fault::io(&e))?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        let line = self.number;
        if self.bytes.len() > self.longest {
            return Err(
                Fault::at(line, format!("longer than {} bytes", self.longest)).expected(format!(
                    "a dense matrix of at most {MAX_DENSE_TASKS} tasks, larger ones as \
                     MatrixMarket or an edge list"
                )),
            );
        }
        let bytes = self
            .bytes
            .strip_prefix(b"\xef\xbb\xbf")
            .unwrap_or(&self.bytes);
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Fault::at(line, "not text").expected("UTF-8 text"))?;
        Ok(Some((line, text.trim_end_matches(['\n', '\r']))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str, format: MatrixFormat) -> Result<CommMatrix, Fault> {
        read_matrix_from(text.as_bytes(), format, false)
    }

    #[test]
    fn a_file_name_determines_a_format_or_none() {
        let of = |name: &str| MatrixFormat::of_path(Path::new(name));
        for format in MatrixFormat::ALL {
            assert_eq!(format.endings()[0], format.name());
            for ending in format.endings() {
                assert_eq!(of(&format!("a.b/m.{ending}")), Some(format));
                assert_eq!(of(&format!("m.{}", ending.to_uppercase())), Some(format));
            }
        }
        for name in ["m", ".m", "/dev/stdout", "-"] {
            assert_eq!(of(name), Some(MatrixFormat::Csv), "{name}");
        }
        for name in ["m.txt", "m.csv.gz", "m."] {
            assert_eq!(of(name), None, "{name}");
        }
    }

    #[test]
    fn task_0_comes_first_and_reversed_rows_come_last() {
        let text = "0,1,2\n3,0,4\n5,6,0\n";
        let plain = read(text, MatrixFormat::Csv).unwrap();
        assert_eq!((plain.get(0, 1), plain.get(2, 0)), (1.0, 5.0));
        let file = "5,6,0\r\n3,0,4\r\n0,1,2\r\n\r\n";
        let turned = read_matrix_from(file.as_bytes(), MatrixFormat::Csv, true).unwrap();
        assert_eq!(turned, plain);
        assert!(looks_reversed(
            &read("5,6,0\n3,0,4\n0,1,2\n", MatrixFormat::Csv).unwrap()
        ));
        assert!(!looks_reversed(&plain));
    }

    #[test]
    fn dense_text_has_commas_or_blanks_and_comments() {
        let csv = |text: &str| read(text, MatrixFormat::Csv).unwrap();
        let commas = csv("0,1,2\n3,0,4\n5,6,0\n");
        assert_eq!(
            csv("# of ranks\n 0 1  2\n3\t0\t4\n# half\n5 6 0 \n\n"),
            commas
        );
        assert_eq!(csv("# a, b\n0 , 1, 2\n3,0 ,4\n5,6,0\n"), commas);
    }

    #[test]
    fn sparse_formats_read_the_same() {
        let market =
            "%%MatrixMarket matrix coordinate real symmetric\n% hello\n3 3 2\n2 1 7\n3 1 8\n";
        let market = read(market, MatrixFormat::MatrixMarket).unwrap();
        let edges = "# src dst amount\n% src dst\n0 1 7\n1,0,7\n0\t2 8\n2 0 8 # back\n";
        assert_eq!(read(edges, MatrixFormat::Edges).unwrap(), market);
        let array = "%%MatrixMarket matrix array integer general\n2 2\n0\n1\n2\n0\n";
        assert_eq!(
            read(array, MatrixFormat::MatrixMarket).unwrap().get(1, 0),
            1.0
        );
    }

    /// Asserts line and text of the fault of each text, in one format.
    fn assert_faults(format: MatrixFormat, cases: &[(&str, Option<usize>, &str)]) {
        for &(text, line, found) in cases {
            let fault = read(text, format).unwrap_err();
            assert_eq!(
                (fault.line, fault.found.as_str()),
                (line, found),
                "{format:?}"
            );
            assert!(!found.contains('\n'));
        }
    }

    #[test]
    fn errors_of_invalid_csv_matrices_are_one_line() {
        let cases = [
            ("", None, "the matrix is empty"),
            ("\n\n", None, "the matrix is empty"),
            ("0,1\n1,0\n1,1\n", None, "at least 3 rows of 2 columns"),
            ("0,1,2\n1,0,2\n", None, "2 rows of 3 columns"),
            ("0,1\n1\n", Some(2), "1 columns, the first row has 2"),
            ("0,NaN\n1,0\n", Some(1), "cell (0, 1) is NaN"),
            ("0,1\n-3,0\n", Some(2), "cell (1, 0) is -3"),
            ("0,inf\n1,0\n", Some(1), "cell (0, 1) is inf"),
            ("0;1\n1;0\n", Some(1), "column 1 is \"0;1\""),
            ("0 1\n1,0\n", Some(2), "column 1 is \"1,0\""),
            ("0,1\n1 0\n", Some(2), "column 1 is \"1 0\""),
            ("# only\n", None, "the matrix is empty"),
            ("a,b\n0,1\n", Some(1), "column 1 is \"a\""),
            ("0,1\n\n1,0\n", Some(2), "empty, but more rows follow"),
            ("0,\n1,0\n", Some(1), "column 2 is \"\""),
        ];
        assert_faults(MatrixFormat::Csv, &cases);
        let long = "1,".repeat(1_000_000) + "1";
        let many = "1,".repeat(9000) + "1";
        let cases = [
            (long.as_str(), Some(1), "longer than 262144 bytes"),
            (many.as_str(), Some(1), "more than 8192 columns"),
        ];
        assert_faults(MatrixFormat::Csv, &cases);
    }

    #[test]
    fn errors_of_invalid_edge_lists_are_one_line() {
        let cases = [
            ("0\n", Some(1), "one number"),
            ("0 1 2 3\n", Some(1), "more than three numbers"),
            ("0 99999999999 2\n", Some(1), "a task is \"99999999999\""),
            ("0 1 x\n", Some(1), "the amount is \"x\""),
        ];
        assert_faults(MatrixFormat::Edges, &cases);
    }

    #[test]
    fn errors_of_invalid_matrix_market_and_npy_files_are_one_line() {
        let market = |rest: &str, line: Option<usize>, found: &str| {
            let text = format!("%%MatrixMarket matrix coordinate real general\n{rest}");
            assert_faults(MatrixFormat::MatrixMarket, &[(&text, line, found)]);
        };
        market("2 3 1\n1 1 1\n", Some(2), "2 rows, 3 columns");
        let few = "1 entries, the size line announces 2";
        market("2 2 2\n1 2 1\n", None, few);
        market("2 2 1\n1 3 1\n", Some(3), "\"3\"");
        let many = "more than the 1 entries announced";
        market("2 2 1\n1 2 1\n2 1 1\n", Some(4), many);
        market("99999999 99999999 1\n", Some(2), "99999999 tasks");
        market("9 9 99999999999\n", Some(2), "99999999999 entries");
        let header = [("1 1 0\n", Some(1), "no MatrixMarket header")];
        assert_faults(MatrixFormat::MatrixMarket, &header);
        assert_faults(
            MatrixFormat::Npy,
            &[("hello world", None, "no NumPy magic")],
        );
    }

    #[test]
    fn files_that_cannot_be_read_are_named() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("missing.csv"), folder.path().to_owned()] {
            let error = read_matrix(&path, MatrixFormat::Csv, false)
                .unwrap_err()
                .to_string();
            assert!(error.contains(&path.display().to_string()) && !error.contains('\n'));
        }
    }

    #[test]
    fn npy_of_every_type_and_order() {
        let mut file = Vec::new();
        let dict = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 2), }\n";
        file.extend_from_slice(b"\x93NUMPY\x01\x00");
        file.extend_from_slice(&(dict.len() as u16).to_le_bytes());
        file.extend_from_slice(dict.as_bytes());
        // By column: C[0][0], C[1][0] = 258, C[0][1] = 3, C[1][1].
        file.extend_from_slice(&[0, 0, 1, 2, 0, 3, 0, 0]);
        let matrix = read_matrix_from(&file[..], MatrixFormat::Npy, false).unwrap();
        assert_eq!((matrix.get(1, 0), matrix.get(0, 1)), (258.0, 3.0));
        for cut in 0..file.len() {
            assert!(read_matrix_from(&file[..cut], MatrixFormat::Npy, false).is_err());
        }
        file.push(0);
        assert!(read_matrix_from(&file[..], MatrixFormat::Npy, false).is_err());
    }

    fn formats() -> impl Strategy<Value = MatrixFormat> {
        proptest::sample::select(&MatrixFormat::ALL[..])
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            n in 1usize..9,
            cells in proptest::collection::vec((0usize..9, 0usize..9, 0.0f64..1e12), 0..40),
            format in formats(),
        ) {
            let inside = cells.into_iter().filter(|&(a, b, _)| a < n && b < n);
            let matrix = CommMatrix::from_cells(n, inside).unwrap();
            let mut file = Vec::new();
            write_matrix_to(&mut file, &matrix, format).unwrap();
            prop_assert_eq!(read_matrix_from(&file[..], format, false).unwrap(), matrix);
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            format in formats(),
        ) {
            let _ = read_matrix_from(&bytes[..], format, false);
        }

        #[test]
        fn any_digits_and_separators_are_read_or_refused(
            text in "[0-9,. \\n\t#%e;-]{0,200}",
            format in formats(),
            header in any::<bool>(),
        ) {
            let head = "%%MatrixMarket matrix coordinate real symmetric\n";
            let text = if header { head.to_owned() + &text } else { text };
            let _ = read_matrix_from(text.as_bytes(), format, true);
        }

        #[test]
        fn a_damaged_npy_is_read_or_refused(at in 0usize..200, byte in any::<u8>()) {
            let matrix = CommMatrix::from_cells(3, [(0, 1, 2.0)]).unwrap();
            let mut file = Vec::new();
            write_matrix_to(&mut file, &matrix, MatrixFormat::Npy).unwrap();
            let at = at % file.len();
            file[at] = byte;
            let _ = read_matrix_from(&file[..], MatrixFormat::Npy, false);
        }
    }
}
