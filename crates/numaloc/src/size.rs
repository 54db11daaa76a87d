//! Sizes in bytes, as options and files give them.

/// A text that is no size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a size such as 4096, 64K, 2M or 1G")]
pub struct NotASize;

/// A size such as `4K`, `2M` or `1G`, in bytes, for clap.
pub(crate) fn byte_size(given: &str) -> Result<u64, NotASize> {
    let number = given.trim_end_matches(['B', 'b']).trim_end_matches('i');
    let shift = match number.bytes().last() {
        Some(b'K' | b'k') => 10,
        Some(b'M' | b'm') => 20,
        Some(b'G' | b'g') => 30,
        _ => 0,
    };
    let digits = if shift > 0 {
        &number[..number.len() - 1]
    } else {
        given
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or(NotASize)
}
