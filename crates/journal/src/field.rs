//! The ways in which fields of records are written: for each its bytes, the values that are accepted, and a sentence
//! for the documentation.

use crate::decode::Decoder;
use crate::encode::Visitor;
use numaloc_model::SiteKind;

/// A way of writing fields of type `T`.
pub(crate) trait Field<T> {
    /// The bytes, for the documentation.
    const BYTES: &'static str;
    /// Passes the parts of `value`, in the order of the bytes, to `to`.
    fn visit(value: &T, field: &'static str, to: &mut impl Visitor);
    /// Reads a value; `None` for one that no writer produces.
    fn decode(from: &mut Decoder<'_>) -> Option<T>;
}

/// A number that fits its type.
pub(crate) struct Number;

impl<T: Copy + Into<u64> + TryFrom<u64>> Field<T> for Number {
    const BYTES: &'static str = "number";

    fn visit(value: &T, field: &'static str, to: &mut impl Visitor) {
        to.number(field, (*value).into());
    }

    fn decode(from: &mut Decoder<'_>) -> Option<T> {
        from.number()?.try_into().ok()
    }
}

/// A number that is not 0.
pub(crate) struct Positive;

impl Field<u64> for Positive {
    const BYTES: &'static str = "number, at least 1";

    fn visit(value: &u64, field: &'static str, to: &mut impl Visitor) {
        to.number(field, *value);
    }

    fn decode(from: &mut Decoder<'_>) -> Option<u64> {
        from.number().filter(|&number| number > 0)
    }
}

/// A truth value.
pub(crate) struct Flag;

impl Field<bool> for Flag {
    const BYTES: &'static str = "number, 0 for no";

    fn visit(value: &bool, field: &'static str, to: &mut impl Visitor) {
        to.number(field, u64::from(*value));
    }

    fn decode(from: &mut Decoder<'_>) -> Option<bool> {
        Some(from.number()? != 0)
    }
}

/// A binary logarithm of a size in bytes.
pub(crate) struct Shift;

impl Field<u32> for Shift {
    const BYTES: &'static str = "number, below 20";

    fn visit(value: &u32, field: &'static str, to: &mut impl Visitor) {
        to.number(field, u64::from(*value));
    }

    fn decode(from: &mut Decoder<'_>) -> Option<u32> {
        let shift: u32 = Number::decode(from)?;
        (shift < 20).then_some(shift)
    }
}

/// A share in millionths, which is not 0.
pub(crate) struct Share;

impl Field<u32> for Share {
    const BYTES: &'static str = "number, 1 to 1,000,000";

    fn visit(value: &u32, field: &'static str, to: &mut impl Visitor) {
        to.number(field, u64::from(*value));
    }

    fn decode(from: &mut Decoder<'_>) -> Option<u32> {
        let share: u32 = Number::decode(from)?;
        (1..=1_000_000).contains(&share).then_some(share)
    }
}

/// A string.
pub(crate) struct Text;

impl Field<String> for Text {
    const BYTES: &'static str = "string";

    fn visit(value: &String, field: &'static str, to: &mut impl Visitor) {
        to.text(field, value);
    }

    fn decode(from: &mut Decoder<'_>) -> Option<String> {
        from.text()
    }
}

/// A list of numbers.
pub(crate) struct Numbers;

impl Field<Vec<u64>> for Numbers {
    const BYTES: &'static str = "list of numbers";

    fn visit(value: &Vec<u64>, field: &'static str, to: &mut impl Visitor) {
        to.number(field, value.len() as u64);
        value.iter().for_each(|&number| to.number(field, number));
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Vec<u64>> {
        from.list(Decoder::number)
    }
}

/// A list of numbers, written as differences.
pub(crate) struct Differences;

impl Field<Vec<u64>> for Differences {
    const BYTES: &'static str =
        "list of numbers, each as its difference from the one before (modulo 2^64)";

    fn visit(value: &Vec<u64>, field: &'static str, to: &mut impl Visitor) {
        to.number(field, value.len() as u64);
        let mut last = 0;
        for &number in value {
            to.number(field, number.wrapping_sub(last));
            last = number;
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Vec<u64>> {
        let mut last = 0u64;
        from.list(|from| {
            last = last.wrapping_add(from.number()?);
            Some(last)
        })
    }
}

/// A list of three numbers each.
pub(crate) struct Triples;

impl<T: Copy + Into<u64> + TryFrom<u64>> Field<Vec<(T, u64, u64)>> for Triples {
    const BYTES: &'static str = "list of three numbers each";

    fn visit(value: &Vec<(T, u64, u64)>, field: &'static str, to: &mut impl Visitor) {
        to.number(field, value.len() as u64);
        for &(first, second, third) in value {
            to.number(field, first.into());
            to.number(field, second);
            to.number(field, third);
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Vec<(T, u64, u64)>> {
        from.list(|from| {
            let first = from.number()?.try_into().ok()?;
            Some((first, from.number()?, from.number()?))
        })
    }
}

/// Counts by page.
pub(crate) struct PageCounts;

impl Field<Vec<(u64, u64, u64)>> for PageCounts {
    const BYTES: &'static str = "list of three numbers each; the page as its difference from the one before, below 2^40 in sum";

    fn visit(value: &Vec<(u64, u64, u64)>, field: &'static str, to: &mut impl Visitor) {
        to.number(field, value.len() as u64);
        let mut last = 0;
        for &(page, reads, writes) in value {
            to.number(field, page.wrapping_sub(last));
            to.number(field, reads);
            to.number(field, writes);
            last = page;
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Vec<(u64, u64, u64)>> {
        let mut last = 0u64;
        from.list(|from| Some((from.page(&mut last)?, from.number()?, from.number()?)))
    }
}

/// Times by page.
pub(crate) struct PageTimes;

impl Field<Vec<(u64, u64)>> for PageTimes {
    const BYTES: &'static str = "list of two numbers each; the page below 2^40";

    fn visit(value: &Vec<(u64, u64)>, field: &'static str, to: &mut impl Visitor) {
        to.number(field, value.len() as u64);
        for &(page, time) in value {
            to.number(field, page);
            to.number(field, time);
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Vec<(u64, u64)>> {
        from.list(|from| Some((from.page(&mut 0)?, from.number()?)))
    }
}

/// Samples with the same kind, threads, page and places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteCount {
    /// What was sampled.
    pub kind: SiteKind,
    /// The writer of what was read, by its number as in `Comm`; for other kinds the thread itself.
    pub other: u32,
    /// Page, of 4 KiB.
    pub page: u64,
    /// Address of the instruction, 0 if unknown.
    pub place: u64,
    /// Address of the instruction by which the other thread wrote, 0 if unknown.
    pub other_place: u64,
    /// Number of samples.
    pub samples: u64,
    /// Events or accesses for which they stand.
    pub amount: u64,
}

/// A list of samples.
pub(crate) struct SiteCounts;

impl Field<Vec<SiteCount>> for SiteCounts {
    const BYTES: &'static str = "list of seven numbers each; the page below 2^40, samples and what they stand for at least 1";

    fn visit(value: &Vec<SiteCount>, field: &'static str, to: &mut impl Visitor) {
        to.number(field, value.len() as u64);
        for count in value {
            let kind = SiteKind::ALL.iter().position(|kind| *kind == count.kind);
            to.number(field, kind.unwrap_or(0) as u64);
            to.number(field, count.other.into());
            for number in [
                count.page,
                count.place,
                count.other_place,
                count.samples,
                count.amount,
            ] {
                to.number(field, number);
            }
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Vec<SiteCount>> {
        from.list(|from| {
            Some(SiteCount {
                kind: *SiteKind::ALL.get(usize::try_from(from.number()?).ok()?)?,
                other: from.number()?.try_into().ok()?,
                page: from.page(&mut 0)?,
                place: from.number()?,
                other_place: from.number()?,
                samples: Positive::decode(from)?,
                amount: Positive::decode(from)?,
            })
        })
    }
}

/// One access in a sample, and the interval between two synchronisations of its thread in which it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessSample {
    /// First byte.
    pub address: u64,
    /// Bytes, at most 255.
    pub size: u8,
    /// Kind of access.
    pub kind: AccessKind,
    /// Time of the access.
    pub time: u64,
    /// Accesses of the thread until then.
    pub accesses: u64,
    /// Time of the thread's last synchronisation before it, at most `time`.
    pub since: u64,
    /// Time of the next one, at least `time`.
    pub until: u64,
    /// Word at which the interval began, 0 if it is the thread's beginning.
    pub guard: u64,
    /// Whether the thread has stored to that word an odd number of times since it last synchronised elsewhere.
    pub odd: bool,
    /// Whether the interval ended at the same word.
    pub closed: bool,
    /// Address of the instruction, 0 if unknown.
    pub place: u64,
    /// Accesses for which the sample stands.
    pub amount: u64,
}

/// Kind of a sampled access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessKind {
    /// A load.
    Load,
    /// A store.
    Store,
    /// The store of an atomic instruction; these are sampled by themselves.
    Atomic,
}

impl AccessKind {
    const ALL: [Self; 3] = [Self::Load, Self::Store, Self::Atomic];
}

/// A list of sampled accesses.
pub(crate) struct AccessSamples;

impl Field<Vec<AccessSample>> for AccessSamples {
    const BYTES: &'static str = "list of nine numbers each: address; size, kind, oddness and end in 8, 2, 1 and 1 bits; \
        time and the thread's accesses as their differences from those before (modulo 2^64); time since the last synchronisation; time until the \
        next; its word as the difference from the address (modulo 2^64); place; accesses, at least 1";

    fn visit(value: &Vec<AccessSample>, field: &'static str, to: &mut impl Visitor) {
        to.number(field, value.len() as u64);
        let (mut last, mut accesses) = (0u64, 0u64);
        for sample in value {
            let flags = u64::from(sample.size)
                | (sample.kind as u64) << 8
                | u64::from(sample.odd) << 10
                | u64::from(sample.closed) << 11;
            for number in [
                sample.address,
                flags,
                sample.time.wrapping_sub(last),
                sample.accesses.wrapping_sub(accesses),
                sample.time.saturating_sub(sample.since),
                sample.until.saturating_sub(sample.time),
                sample.guard.wrapping_sub(sample.address),
                sample.place,
                sample.amount,
            ] {
                to.number(field, number);
            }
            (last, accesses) = (sample.time, sample.accesses);
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Vec<AccessSample>> {
        let (mut last, mut accesses) = (0u64, 0u64);
        from.list(|from| {
            let address = from.number()?;
            let flags = from.number().filter(|&flags| flags < 1 << 12)?;
            last = last.wrapping_add(from.number()?);
            accesses = accesses.wrapping_add(from.number()?);
            Some(AccessSample {
                address,
                size: flags as u8,
                kind: *AccessKind::ALL.get((flags >> 8 & 3) as usize)?,
                time: last,
                accesses,
                since: last.checked_sub(from.number()?)?,
                until: last.checked_add(from.number()?)?,
                guard: address.wrapping_add(from.number()?),
                odd: flags >> 10 & 1 == 1,
                closed: flags >> 11 == 1,
                place: from.number()?,
                amount: Positive::decode(from)?,
            })
        })
    }
}
