//! Names and sentences that are longer than their room: cut where they say least.

/// Minimum width of a memory name, in characters.
const NAME: usize = 24;
/// How many of these show the beginning of the name when its source location is long.
const NAME_BEGIN: usize = 8;

/// A memory name in `room` characters, at least 24. The cut is before the source location at the end:
/// `malloc in make_g... (stencil.c:41)`.
#[must_use]
pub fn cut_name(name: &str, room: usize) -> String {
    let room = room.max(NAME);
    let place = match name.rfind(" (") {
        Some(at) if name.ends_with(')') => name[at..].chars().count(),
        _ => return middle_cut(name, room),
    };
    cut_before(name, room, place.min(room - NAME_BEGIN - 3))
}

/// The text, with its middle left out if it is longer than `room`.
#[must_use]
pub fn middle_cut(text: &str, room: usize) -> String {
    let room = room.max(5);
    cut_before(text, room, (room - 3).div_ceil(2))
}

/// The text, cut to `room` characters if it is longer: its last `back` characters and as many of its first as fit.
fn cut_before(text: &str, room: usize, back: usize) -> String {
    let length = text.chars().count();
    if length <= room {
        return text.to_owned();
    }
    let head: String = text.chars().take(room - 3 - back).collect();
    let tail: String = text.chars().skip(length - back).collect();
    format!("{head}...{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_name_keeps_its_begin_and_the_place_in_the_source() {
        let name = "aligned_alloc in make_grid < main (workload.h:29)";
        assert_eq!(cut_name(name, usize::MAX), name);
        assert_eq!(cut_name(name, 49), name);
        assert_eq!(
            cut_name(name, 48),
            "aligned_alloc in make_grid < ... (workload.h:29)"
        );
        assert_eq!(cut_name(name, 30), "aligned_all... (workload.h:29)");
        // The terminal is too narrow: 24 characters, 8 of them from the beginning.
        assert_eq!(cut_name(name, 9), "aligned_...orkload.h:29)");
        assert_eq!(cut_name("grid (g.c:1)", 9), "grid (g.c:1)");
        // Without a source location the middle is cut.
        assert_eq!(
            cut_name("libexample.so.6:.data.rel.ro", 24),
            "libexample...data.rel.ro"
        );
        assert_eq!(cut_name("ä".repeat(40).as_str(), 30).chars().count(), 30);
    }
}
