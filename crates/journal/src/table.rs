//! The macro `records!`, which makes everything about records from one table: the enum, its bytes in both directions,
//! the visitor, and the layout for the documentation.

/// A kind of record, for the documentation.
#[derive(Clone, Copy, Debug)]
pub struct RecordLayout {
    /// The byte that a record begins with.
    pub kind: u8,
    /// Name of the record.
    pub name: &'static str,
    /// What it says.
    pub about: &'static str,
    /// Its fields, in the order of the bytes.
    pub fields: &'static [FieldLayout],
}

/// A field of a record, for the documentation.
#[derive(Clone, Copy, Debug)]
pub struct FieldLayout {
    /// Name of the field.
    pub name: &'static str,
    /// How it is written.
    pub bytes: &'static str,
    /// What it says.
    pub about: &'static str,
}

/// Declares the records of a journal. Each line of the table is
///
/// ```text
/// KIND Name { field: Type as Bytes, ... };     a record with named fields
/// KIND Name(field: Type as Bytes);             a record of one field, whose name is for the documentation
/// KIND Name;                                   a record without fields
/// ```
///
/// where `KIND` is the first byte and `Bytes` a way of writing fields ([`crate::field`]). The order of the fields is
/// that of their bytes.
macro_rules! records {
    ($(
        $(#[doc = $about:literal])+
        $kind:literal $name:ident
        $({ $($(#[doc = $doc:literal])+ $field:ident: $type:ty as $bytes:ty),* $(,)? })?
        $(($(#[doc = $one_doc:literal])+ $one:ident: $one_type:ty as $one_bytes:ty))?;
    )*) => {
        /// A record.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Record {
            $(
                $(#[doc = $about])+
                $name
                $({ $($(#[doc = $doc])+ $field: $type,)* })?
                $(($(#[doc = $one_doc])+ $one_type))?,
            )*
        }

        /// Every kind of record, in the order of the table.
        pub const LAYOUT: &[RecordLayout] = &[$(
            RecordLayout {
                kind: $kind,
                name: stringify!($name),
                about: concat!($($about),+),
                fields: &[
                    $($(FieldLayout {
                        name: stringify!($field),
                        bytes: <$bytes as Field<$type>>::BYTES,
                        about: concat!($($doc),+),
                    },)*)?
                    $(FieldLayout {
                        name: stringify!($one),
                        bytes: <$one_bytes as Field<$one_type>>::BYTES,
                        about: concat!($($one_doc),+),
                    },)?
                ],
            },
        )*];

        impl Record {
            /// The byte that the record begins with.
            #[must_use]
            pub fn kind(&self) -> u8 {
                match self {
                    $(records!(@any $name $({ $($field)* })? $(($one))?) => $kind,)*
                }
            }

            /// Passes the record's fields, in the order of their bytes, to `to`.
            pub fn visit(&self, to: &mut impl Visitor) {
                match self {
                    $(
                        Self::$name $({ $($field,)* })? $(($one))? => {
                            $($(<$bytes as Field<$type>>::visit($field, stringify!($field), to);)*)?
                            $(<$one_bytes as Field<$one_type>>::visit($one, stringify!($one), to);)?
                        }
                    )*
                }
            }

            /// Decodes the next record; `None` for anything that no writer produces.
            pub(crate) fn decode(from: &mut Decoder<'_>) -> Option<Self> {
                Some(match from.number()? {
                    $(
                        $kind => Self::$name
                            $({ $($field: <$bytes as Field<$type>>::decode(from)?,)* })?
                            $((<$one_bytes as Field<$one_type>>::decode(from)?))?,
                    )*
                    _ => return None,
                })
            }
        }
    };
    (@any $name:ident { $($field:ident)* }) => { Self::$name { .. } };
    (@any $name:ident ($one:ident)) => { Self::$name(_) };
    (@any $name:ident) => { Self::$name };
}

pub(crate) use records;
