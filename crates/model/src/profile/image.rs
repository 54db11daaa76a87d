//! Numbers of pages and lines of several process images in one table.
//!
//! Processes use the same addresses for different memory, so the pages of the k-th image after the first have a number
//! added that no process reaches.

/// Pages of the k-th process image after the first are numbered from `k << PAGE_SHIFT`, in pages of 4 KiB: processes
/// have fewer than this power of two.
pub const PAGE_SHIFT: u32 = 40;

/// What is added to the page numbers of the `image`-th process image (from 0), in pages of `page_size` bytes. Sizes
/// below 4 KiB count as 4 KiB.
#[must_use]
pub fn first_page(image: u64, page_size: u64) -> u64 {
    (image << PAGE_SHIFT) / (page_size / 4096).max(1)
}

/// What is added to the line numbers of the `image`-th process image (from 0), in lines of `line_size` bytes.
#[must_use]
pub fn first_line(image: u64, line_size: u64) -> u64 {
    ((image << PAGE_SHIFT) << 12) / line_size.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_as_far_apart_in_lines_as_in_pages() {
        for page_size in [4096, 1 << 16, 1 << 21] {
            for image in 0..4 {
                let address = first_page(image, page_size) * page_size;
                assert_eq!(first_line(image, 64) * 64, address);
            }
        }
        assert_eq!(first_page(1, 4096), 1 << 40);
    }
}
