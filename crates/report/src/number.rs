//! Numbers as people write them: three digits that matter, and a unit.

/// `1234567` as `1.23 M`. Whole numbers below 10,000 stay as they are.
#[must_use]
pub fn count(value: f64) -> String {
    if value.abs() < 10_000.0 && value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    scaled(value, 1000.0, &["", " k", " M", " G", " T", " P", " E"])
}

/// `1536` as `1.50 KiB`.
#[must_use]
pub fn bytes(value: f64) -> String {
    if value.abs() < 1024.0 {
        return format!("{value:.0} B");
    }
    scaled(
        value,
        1024.0,
        &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"],
    )
}

/// A page size: whole units, `4 KiB`.
#[must_use]
pub fn page_size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 && b.is_multiple_of(1 << 30) => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

/// A share (0..=1) as `12.3 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.05 {
        return "<0.1 %".to_owned();
    }
    format!("{percent:.1} %")
}

/// Three digits that matter.
#[must_use]
pub fn plain(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else if value.abs() >= 0.1 {
        format!("{value:.3}")
    } else {
        format!("{value:.2e}")
    }
}

fn scaled(value: f64, base: f64, units: &[&str]) -> String {
    let mut scaled = value;
    let mut unit = 0;
    // 999.5 would print as 1000: step up before it does.
    while scaled.abs() >= base * 0.9995 && unit + 1 < units.len() {
        scaled /= base;
        unit += 1;
    }
    let digits = match scaled.abs() {
        s if s >= 99.95 => 0,
        s if s >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
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
            (plain(1875.0), plain(0.01234)),
            ("1875".into(), "1.23e-2".into())
        );
    }
}
