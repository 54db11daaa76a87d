//! Process images, and the memory that several of them have mapped.

use numaloc_access_trace::message::SharedPages;

/// One image of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessImage {
    /// Process id.
    pub pid: u32,
    /// Number of the process's images before.
    pub image: u32,
    /// Memory that an earlier image has mapped too, in the order of addresses.
    pub shared: Vec<SharedPages>,
}

/// Adds pages behind the last range, or to it where they continue it.
pub(crate) fn add(pages: SharedPages, ranges: &mut Vec<SharedPages>) {
    match ranges.last_mut() {
        Some(last)
            if last.first + last.pages == pages.first
                && last.known_as + last.pages == pages.known_as =>
        {
            last.pages += pages.pages;
        }
        _ => ranges.push(pages),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_that_continue_a_range_on_both_sides_are_added_to_it() {
        let of = |first, pages, known_as| SharedPages {
            first,
            pages,
            known_as,
        };
        let mut ranges = Vec::new();
        for pages in [of(5, 1, 100), of(6, 2, 101), of(8, 1, 104), of(10, 1, 105)] {
            add(pages, &mut ranges);
        }
        assert_eq!(ranges, [of(5, 3, 100), of(8, 1, 104), of(10, 1, 105)]);
    }
}
