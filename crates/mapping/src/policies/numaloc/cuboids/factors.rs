//! Ways to write a number as a product.

/// Every way to write `number` as a product of `count` factors in order, 1 included.
pub(super) fn ordered(number: usize, count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return if number == 1 {
            vec![Vec::new()]
        } else {
            Vec::new()
        };
    }
    let mut ways = Vec::new();
    for first in (1..=number).filter(|first| number.is_multiple_of(*first)) {
        for rest in ordered(number / first, count - 1) {
            ways.push([vec![first], rest].concat());
        }
    }
    ways
}
