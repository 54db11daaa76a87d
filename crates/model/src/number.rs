//! Formats numbers for users: three significant digits and a unit.
//!
//! An empty sum of floating-point numbers is -0 in Rust, and small negative values round to it. All fractions
//! are formatted here, so that no zero is printed with a sign.

use crate::comm::Layer;
use crate::profile::Amount;

/// `value` with `digits` digits after the point; a value that rounds to zero has no sign.
#[must_use]
pub fn fixed(value: f64, digits: usize) -> String {
    without_sign_of_zero(format!("{value:.digits$}"))
}

/// A change: always with a sign, unless it rounds to zero.
#[must_use]
pub fn signed(value: f64, digits: usize) -> String {
    without_sign_of_zero(format!("{value:+.digits$}"))
}

fn without_sign_of_zero(text: String) -> String {
    match text.strip_prefix(['-', '+']) {
        Some(digits) if digits.bytes().all(|b| b == b'0' || b == b'.') => digits.to_owned(),
        _ => text,
    }
}

/// `1234567` as `1.23 M`. Whole numbers below 10,000 are printed in full.
#[must_use]
pub fn count(value: f64) -> String {
    if value.abs() < 10_000.0 && value.fract() == 0.0 {
        return fixed(value, 0);
    }
    scaled(value, 1000.0, &["", " k", " M", " G", " T", " P", " E"])
}

/// `1536` as `1.50 KiB`.
#[must_use]
pub fn bytes(value: f64) -> String {
    if value.abs() < 1024.0 {
        return fixed(value, 0) + " B";
    }
    scaled(
        value,
        1024.0,
        &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"],
    )
}

/// The formatter for amounts of a layer's communication on an axis: bytes for messages, events for memory.
#[must_use]
pub fn amount(layer: Layer) -> fn(f64) -> String {
    match Amount::of_layer(layer) {
        Amount::Bytes => bytes,
        Amount::Events => count,
    }
}

/// An amount of a layer's communication with its unit.
#[must_use]
pub fn weighed(layer: Layer, value: f64) -> String {
    match Amount::of_layer(layer) {
        Amount::Bytes => bytes(value),
        Amount::Events => format!("{} events", count(value)),
    }
}

/// A page size in whole units: `4 KiB`.
#[must_use]
pub fn page_size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 && b.is_multiple_of(1 << 30) => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

/// An amount with its noun, which takes an `s` in the plural: `1 thread`, `8 threads`.
#[must_use]
pub fn plural(amount: usize, noun: &str) -> String {
    format!("{amount} {noun}{}", if amount == 1 { "" } else { "s" })
}

/// A time in the largest unit in which it is whole: `10000000` ns as `10 ms`.
#[must_use]
pub fn duration(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "µs")];
    let whole = units
        .iter()
        .find(|(unit, _)| ns > 0 && ns.is_multiple_of(*unit));
    match whole {
        Some((unit, name)) => format!("{} {name}", ns / unit),
        None => format!("{ns} ns"),
    }
}

/// A share (0..=1) as `12.3 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.05 {
        return "<0.1 %".to_owned();
    }
    fixed(percent, 1) + " %"
}

/// A share (0..=1) as `12 %`.
#[must_use]
pub fn whole_percent(share: f64) -> String {
    fixed(share * 100.0, 0) + " %"
}

/// Three significant digits.
#[must_use]
pub fn plain(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value.abs() >= 100.0 {
        fixed(value, 0)
    } else if value.abs() >= 10.0 {
        fixed(value, 1)
    } else if value.abs() >= 0.1 {
        fixed(value, 3)
    } else {
        format!("{value:.2e}")
    }
}

fn scaled(value: f64, base: f64, units: &[&str]) -> String {
    let mut scaled = value;
    let mut unit = 0;
    // 999.5 would be printed as 1000: use the next unit instead.
    while scaled.abs() >= base * 0.9995 && unit + 1 < units.len() {
        scaled /= base;
        unit += 1;
    }
    let digits = match scaled.abs() {
        s if s >= 99.95 => 0,
        s if s >= 9.995 => 1,
        _ => 2,
    };
    fixed(scaled, digits) + units[unit]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_has_no_sign() {
        let nothing = std::iter::empty::<f64>().sum::<f64>();
        assert!(nothing.is_sign_negative(), "-0, as the test requires");
        assert_eq!(fixed(nothing, 3), "0.000");
        assert_eq!(
            (fixed(-0.04, 1), fixed(-0.06, 1)),
            ("0.0".into(), "-0.1".into())
        );
        assert_eq!(
            (signed(-0.04, 1), signed(0.04, 1)),
            ("0.0".into(), "0.0".into())
        );
        assert_eq!(
            (signed(2.0, 0), signed(-10.0, 0)),
            ("+2".into(), "-10".into())
        );
        assert_eq!(
            (percent(nothing), whole_percent(nothing)),
            ("0.0 %".into(), "0 %".into())
        );
        assert_eq!(
            (count(nothing), bytes(nothing), plain(nothing)),
            ("0".into(), "0 B".into(), "0".into())
        );
    }

    #[test]
    fn numbers_have_three_significant_digits_and_a_unit() {
        assert_eq!(count(9999.0), "9999");
        assert_eq!(count(999_999.0), "1.00 M");
        assert_eq!(count(12_345.0), "12.3 k");
        assert_eq!(count(2.5), "2.50");
        assert_eq!(bytes(1536.0), "1.50 KiB");
        assert_eq!(bytes(12.0), "12 B");
        assert_eq!(page_size(2 << 20), "2 MiB");
        assert_eq!(percent(0.123), "12.3 %");
        assert_eq!(percent(0.0001), "<0.1 %");
        assert_eq!(
            (plural(1, "thread"), plural(0, "thread")),
            ("1 thread".into(), "0 threads".into())
        );
        assert_eq!(duration(10_000_000), "10 ms");
        assert_eq!(duration(1_500_000), "1500 µs");
        assert_eq!((duration(7), duration(0)), ("7 ns".into(), "0 ns".into()));
        assert_eq!(duration(2_000_000_000), "2 s");
        assert_eq!(
            (plain(1875.0), plain(0.01234)),
            ("1875".into(), "1.23e-2".into())
        );
    }
}
