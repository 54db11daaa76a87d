//! Process images, and the memory that several of them have mapped.

/// One image of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessImage {
    /// Process id.
    pub pid: u32,
    /// Number of the process's images before.
    pub image: u32,
    /// Memory that an earlier image has mapped too, in the order of addresses.
    pub known: Vec<KnownPages>,
}

/// Consecutive pages of memory that processes share, as two process images number them, in pages of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownPages {
    /// First page, counted from address 0 of the image.
    pub first: u64,
    /// Number of pages.
    pub pages: u64,
    /// What the first page is in an earlier image, as in the profile: with the [offset](numaloc_model::profile::image)
    /// of that image.
    pub known_as: u64,
}

impl KnownPages {
    /// Adds pages behind the last range, or to it where they continue it.
    pub(crate) fn add(self, ranges: &mut Vec<Self>) {
        match ranges.last_mut() {
            Some(last)
                if last.first + last.pages == self.first
                    && last.known_as + last.pages == self.known_as =>
            {
                last.pages += self.pages;
            }
            _ => ranges.push(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_that_continue_a_range_on_both_sides_are_added_to_it() {
        let of = |first, pages, known_as| KnownPages {
            first,
            pages,
            known_as,
        };
        let mut ranges = Vec::new();
        for pages in [of(5, 1, 100), of(6, 2, 101), of(8, 1, 104), of(10, 1, 105)] {
            pages.add(&mut ranges);
        }
        assert_eq!(ranges, [of(5, 3, 100), of(8, 1, 104), of(10, 1, 105)]);
    }
}
