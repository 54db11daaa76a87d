//! A table of a profile as columns, for tools that work on columns: no row is made, nothing is copied after decoding.
//!
//! The values are those of the file. What a [`Profile`](numaloc_model::Profile) promises of its rows, for example that
//! every thread number is that of a thread, is not checked here.

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Unsigned integers of 32 bits.
    U32(Vec<u32>),
    /// Unsigned integers.
    U64(Vec<u64>),
    /// Unsigned integers, where observed.
    MaybeU64(Vec<Option<u64>>),
    /// Floating-point numbers.
    F64(Vec<f64>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Texts.
    Text(Vec<String>),
    /// Texts, where known.
    MaybeText(Vec<Option<String>>),
    /// Words of a list.
    Word {
        /// Place of each row's word in the list.
        places: Vec<u8>,
        /// The list.
        words: Vec<&'static str>,
    },
}

/// Columns of a table by name, all of one length.
pub type Columns = Vec<(&'static str, Array)>;
