//! Compares communication and page use of two runs.
//!
//! Threads are matched by their stable path, so runs with other process ids, or with a thread more,
//! still compare. Matrices are compared by Pearson's correlation over all ordered pairs of matched
//! threads (the diagonal left out): 1 for the same pattern at any volume, 0 for unrelated ones.
//!
//! Cost: O(stored cells).

use std::collections::{HashMap, HashSet, VecDeque};

use numaloc_identity::object::ARENA;
use numaloc_model::profile::ObjectKind;
use numaloc_model::{CommMatrix, Profile};

use crate::Characterisation;
use crate::objects::ObjectUse;

/// Two runs side by side.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Number of threads that occur in both.
    pub matched: usize,
    /// Paths of the threads that occur only in the first run.
    pub only_a: Vec<String>,
    /// Paths of the threads that occur only in the second run.
    pub only_b: Vec<String>,
    /// Communication of the matched threads in the first run.
    pub a: CommMatrix,
    /// Communication of the matched threads in the second run.
    pub b: CommMatrix,
    /// Correlation of the two matrices; `None` if one of them is empty or uniform.
    pub correlation: Option<f64>,
    /// Memory of both runs by name, the object with most accesses in either first.
    pub objects: Vec<ObjectPair>,
}

/// Use of the memory of one name in both runs; `None` if a run does not use it.
#[derive(Clone, Debug)]
pub struct ObjectPair {
    /// Name of the object.
    pub label: String,
    /// Use in the first run.
    pub a: Option<ObjectTotals>,
    /// Use in the second run.
    pub b: Option<ObjectTotals>,
}

/// How much a run uses an object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectTotals {
    /// Number of accesses.
    pub accesses: u64,
    /// Number of pages with at least one access.
    pub pages: u64,
    /// Share of the accesses that first touch makes local.
    pub local_share: f64,
}

impl Comparison {
    /// Compares two profiles with their characterisations.
    #[must_use]
    pub fn of(a: (&Profile, &Characterisation), b: (&Profile, &Characterisation)) -> Self {
        let matched = matched_threads(a.0, b.0);
        let (in_a, in_b): (Vec<usize>, Vec<usize>) = matched.iter().copied().unzip();
        let matrix_a = restricted(a.1.weighed(), &in_a);
        let matrix_b = restricted(b.1.weighed(), &in_b);
        Self {
            matched: matched.len(),
            only_a: others(a.0, &in_a),
            only_b: others(b.0, &in_b),
            correlation: correlation(&matrix_a, &matrix_b),
            a: matrix_a,
            b: matrix_b,
            objects: object_pairs(a, b),
        }
    }
}

/// Fewest accesses of a page that is compared: a line's words, eight times.
const USED: u64 = 64;
/// Least difference between the threads' shares of a page, of the greatest possible, as a mean over pages: below it,
/// every thread uses every page.
const UNEVEN: f64 = 0.05;

/// How well two runs agree on which threads use which pages: the correlation of the `matched` threads' shares of each
/// page's accesses. `None` if all threads use the pages evenly, or the runs have no pages in common.
///
/// Each page counts once, however often it is accessed, so that threads that wait for a flag do not hide what they work
/// on. Stacks and arenas, which belong to one thread whatever it works on, are left out.
#[must_use]
pub fn page_correlation(a: &Profile, b: &Profile, matched: &[(usize, usize)]) -> Option<f64> {
    let (ours, theirs): (Vec<usize>, Vec<usize>) = matched.iter().copied().unzip();
    let other = shares_of_pages(b, &theirs);
    let (mut sums, mut pages) = ([0.0; 3], 0.0);
    for (page, x) in shares_of_pages(a, &ours) {
        let Some(y) = other.get(&page) else { continue };
        for (x, y) in x.iter().zip(y) {
            sums[0] += x * x;
            sums[1] += y * y;
            sums[2] += x * y;
        }
        pages += 1.0;
    }
    let greatest = pages * (1.0 - 1.0 / matched.len().max(1) as f64);
    let uneven = sums[0].min(sums[1]) > UNEVEN * greatest;
    (uneven && greatest > 0.0).then(|| sums[2] / (sums[0] * sums[1]).sqrt())
}

/// A page by the identity of its object, which is the same in other runs.
type PageKey<'a> = (ObjectKind, &'a str, Option<&'a str>, u64, u32, u64);

/// The shares of `threads` in the accesses to each page, less their mean.
fn shares_of_pages<'a>(profile: &'a Profile, threads: &[usize]) -> HashMap<PageKey<'a>, Vec<f64>> {
    let position: HashMap<usize, usize> = threads.iter().copied().zip(0..).collect();
    let mut found = HashMap::new();
    for page in profile.pages().pages() {
        let Some(object) = page.object.map(|object| profile.object(object)) else {
            continue;
        };
        if object.kind == ObjectKind::Stack || object.name == ARENA {
            continue;
        }
        let mut counts = vec![0_u64; threads.len()];
        for access in profile.pages().accesses(page) {
            if let Some(&at) = position.get(&access.thread.index()) {
                counts[at] += access.total();
            }
        }
        let sum: u64 = counts.iter().sum();
        if sum < USED {
            continue;
        }
        let mean = 1.0 / threads.len() as f64;
        let shares = counts.iter().map(|&count| count as f64 / sum as f64 - mean);
        let creator = object
            .thread
            .map(|thread| &*profile.threads()[thread.index()].path);
        let key = (
            object.kind,
            &*object.name,
            creator,
            object.size,
            object.order,
            page.object_page,
        );
        found.entry(key).or_insert_with(|| shares.collect());
    }
    found
}

/// Paths of the threads that are not among the matched ones.
fn others(profile: &Profile, matched: &[usize]) -> Vec<String> {
    let matched: HashSet<usize> = matched.iter().copied().collect();
    let threads = profile.threads().iter().enumerate();
    threads
        .filter(|(at, _)| !matched.contains(at))
        .map(|(_, thread)| thread.path.clone())
        .collect()
}

/// Objects of both runs by name, those with most accesses in either first; pairs have the name of the first run.
///
/// Names of variables and of heap blocks have the line of the source, which moves with each change of the source. So
/// what no name matches is matched by the name without it, in the order of lines.
fn object_pairs(
    a: (&Profile, &Characterisation),
    b: (&Profile, &Characterisation),
) -> Vec<ObjectPair> {
    let totals = |(profile, found): (&Profile, &Characterisation)| {
        let of = |object: &ObjectUse| {
            let totals = ObjectTotals {
                accesses: object.accesses(),
                pages: object.pages,
                local_share: object.local_share,
            };
            (object.label(profile), totals)
        };
        found.objects.iter().map(of).collect::<Vec<_>>()
    };
    let mut pairs = Vec::new();
    let (a, b) = paired(totals(a), totals(b), |label| label.to_owned(), &mut pairs);
    let (a, b) = paired(by_line(a), by_line(b), without_lines, &mut pairs);
    pairs.extend(a.into_iter().map(|(label, a)| ObjectPair {
        label,
        a: Some(a),
        b: None,
    }));
    pairs.extend(b.into_iter().map(|(label, b)| ObjectPair {
        label,
        a: None,
        b: Some(b),
    }));
    let most = |pair: &ObjectPair| {
        [pair.a, pair.b]
            .into_iter()
            .flatten()
            .map(|u| u.accesses)
            .max()
    };
    pairs.sort_by(|x, y| most(y).cmp(&most(x)).then(x.label.cmp(&y.label)));
    pairs
}

/// Objects by name.
type Named = Vec<(String, ObjectTotals)>;

/// Pairs objects of the same key in their order, and returns what has no partner.
fn paired(
    a: Named,
    b: Named,
    key: impl Fn(&str) -> String,
    pairs: &mut Vec<ObjectPair>,
) -> (Named, Named) {
    let mut waiting: HashMap<String, VecDeque<usize>> = HashMap::new();
    for (at, (label, _)) in b.iter().enumerate() {
        waiting.entry(key(label)).or_default().push_back(at);
    }
    let mut is_paired = vec![false; b.len()];
    let mut left = Vec::new();
    for (label, totals) in a {
        let partner = waiting.get_mut(&key(&label)).and_then(VecDeque::pop_front);
        let Some(at) = partner else {
            left.push((label, totals));
            continue;
        };
        is_paired[at] = true;
        pairs.push(ObjectPair {
            label,
            a: Some(totals),
            b: Some(b[at].1),
        });
    }
    let rest = b.into_iter().zip(is_paired);
    let rest = rest.filter_map(|(object, is_paired)| (!is_paired).then_some(object));
    (left, rest.collect())
}

/// Objects in the order of the lines in their names.
fn by_line(mut objects: Named) -> Named {
    let line = |label: &str| -> Option<u64> {
        let (_, after) = label.rsplit_once(':')?;
        let end = after.find(|sign: char| !sign.is_ascii_digit());
        after[..end.unwrap_or(after.len())].parse().ok()
    };
    objects.sort_by_key(|(label, _)| line(label));
    objects
}

/// A text in which `FILE:LINE` is `FILE:`, for comparing places of two versions of a program.
#[must_use]
pub fn without_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for sign in text.chars() {
        if !(sign.is_ascii_digit() && out.ends_with(':')) {
            out.push(sign);
        }
    }
    out
}

/// Threads that occur in both profiles: index in the first, index in the second.
#[must_use]
pub fn matched_threads(a: &Profile, b: &Profile) -> Vec<(usize, usize)> {
    let in_b: HashMap<&str, usize> = b
        .threads()
        .iter()
        .enumerate()
        .map(|(at, thread)| (thread.path.as_str(), at))
        .collect();
    a.threads()
        .iter()
        .enumerate()
        .filter_map(|(at, thread)| Some((at, *in_b.get(thread.path.as_str())?)))
        .collect()
}

/// The matrix of the chosen threads only, in the order chosen.
#[must_use]
pub fn restricted(matrix: &CommMatrix, threads: &[usize]) -> CommMatrix {
    let mut new_of = vec![None; matrix.threads()];
    for (new, &old) in threads.iter().enumerate() {
        new_of[old] = Some(new);
    }
    let cells = matrix
        .cells()
        .filter_map(|(i, j, amount)| Some((new_of[i]?, new_of[j]?, amount)));
    CommMatrix::from_cells(threads.len(), cells).expect("cells of a matrix are valid")
}

/// Pearson's correlation of two matrices of the same size, diagonal left out; `None` when one of them
/// is constant.
///
/// # Panics
/// If the sizes differ.
#[must_use]
pub fn correlation(a: &CommMatrix, b: &CommMatrix) -> Option<f64> {
    assert_eq!(a.threads(), b.threads(), "matrices differ in size");
    let pairs = (a.threads() * a.threads().saturating_sub(1)) as f64;
    if pairs < 2.0 {
        return None;
    }
    // Scaled to a maximum of 1, so that large counts do not cancel.
    let scale = |m: &CommMatrix| if m.max() > 0.0 { 1.0 / m.max() } else { 1.0 };
    let (sa, sb) = (scale(a), scale(b));
    let mean = |m: &CommMatrix, s: f64| m.total() * s / pairs;
    let (ma, mb) = (mean(a, sa), mean(b, sb));
    let squares = |m: &CommMatrix, s: f64, mean: f64| {
        m.cells()
            .map(|(_, _, v)| (v * s - mean).powi(2))
            .sum::<f64>()
            + (pairs - m.stored_cells() as f64) * mean * mean
    };
    let product: f64 = a.cells().map(|(i, j, v)| v * sa * b.get(i, j) * sb).sum();
    let covariance = product - pairs * ma * mb;
    let (va, vb) = (squares(a, sa, ma), squares(b, sb, mb));
    (va > 0.0 && vb > 0.0).then(|| (covariance / (va * vb).sqrt()).clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::tests::profile_of;
    use numaloc_model::ThreadAccess;
    use numaloc_model::ids::{PageNumber, ThreadIdx};
    use numaloc_model::pages::PageHead;
    use numaloc_model::profile::{Object, ProfileBuilder};
    use proptest::prelude::*;

    #[test]
    fn threads_are_matched_by_path() {
        let a = profile_of(3, 1, &[]);
        let b = profile_of(3, 1, &[]);
        let b = b.changed(|tables| drop(tables.threads.remove(1))).unwrap();
        assert_eq!(matched_threads(&a, &b), [(0, 0), (2, 1)]);
    }

    /// Objects with one access each.
    fn named(labels: &[&str]) -> Named {
        let one = ObjectTotals {
            accesses: 1,
            pages: 1,
            local_share: 1.0,
        };
        labels
            .iter()
            .map(|label| (label.to_string(), one))
            .collect()
    }

    #[test]
    fn objects_whose_line_has_moved_are_the_same() {
        let a = named(&[
            "malloc in f (x.c:9)",
            "malloc in f (x.c:10)",
            "grid (x.c:3)",
            "old (x.c:4)",
        ]);
        let b = named(&[
            "malloc in f (x.c:12)",
            "malloc in f (x.c:11)",
            "grid (x.c:3)",
            "new (x.c:4)",
        ]);
        let mut pairs = Vec::new();
        let (a, b) = paired(a, b, |label| label.to_owned(), &mut pairs);
        assert_eq!(pairs[0].label, "grid (x.c:3)");
        let partners = b.clone();
        let (a, b) = paired(by_line(a), by_line(b), without_lines, &mut pairs);
        let labels: Vec<&str> = pairs.iter().map(|pair| pair.label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "grid (x.c:3)",
                "malloc in f (x.c:9)",
                "malloc in f (x.c:10)"
            ]
        );
        assert_eq!(
            [a[0].0.as_str(), b[0].0.as_str()],
            ["old (x.c:4)", "new (x.c:4)"]
        );
        // The ninth line and the tenth, not in the order of their digits.
        assert_eq!(by_line(partners)[1].0, "malloc in f (x.c:11)");
    }

    #[test]
    fn equal_names_are_paired_one_to_one() {
        let mut pairs = Vec::new();
        let key = |label: &str| label.to_owned();
        let (a, b) = paired(
            named(&["[heap]", "[heap]"]),
            named(&["[heap]"; 3]),
            key,
            &mut pairs,
        );
        assert_eq!((pairs.len(), a.len(), b.len()), (2, 0, 1));
    }

    #[test]
    fn two_threads_by_hand() {
        // Cells (0,1), (1,0): a = (1, 3), b = (2, 6): b = 2a, correlation 1; with (6, 2) it is -1.
        let m = |x, y| CommMatrix::from_cells(2, [(0, 1, x), (1, 0, y)]).unwrap();
        assert!((correlation(&m(1.0, 3.0), &m(2.0, 6.0)).unwrap() - 1.0).abs() < 1e-12);
        assert!((correlation(&m(1.0, 3.0), &m(6.0, 2.0)).unwrap() + 1.0).abs() < 1e-12);
        assert_eq!(correlation(&m(1.0, 1.0), &m(2.0, 6.0)), None);
    }

    /// Four threads and an object of 16 pages; thread 0 has 40 accesses to each, `user` 60, if there is one.
    fn working_on(user: impl Fn(u32) -> Option<u32>) -> Profile {
        let change = |tables: &mut ProfileBuilder| {
            let object = tables.object(Object {
                kind: ObjectKind::Mapping,
                name: "[anon]".to_owned(),
                size: 16 << 12,
                order: 0,
                thread: None,
                base: 0x10_0000,
                variables: Vec::new(),
            });
            for page in 0..16 {
                let access = |thread, reads| ThreadAccess {
                    thread: ThreadIdx(thread),
                    reads,
                    writes: 0,
                };
                let used = match user(page) {
                    Some(thread) => vec![access(0, 40), access(thread, 60)],
                    None => (0..4).map(|thread| access(thread, 25)).collect(),
                };
                let head = PageHead {
                    number: PageNumber(0x100 + u64::from(page)),
                    object: Some(object),
                    object_page: page.into(),
                    first_touch: None,
                    first_touch_time: 0,
                    policy: None,
                };
                tables.page(head, used);
            }
        };
        profile_of(4, 1, &[]).changed(change).unwrap()
    }

    #[test]
    fn threads_that_steal_work_use_other_pages_in_another_run() {
        let matched = [(0, 0), (1, 1), (2, 2), (3, 3)];
        let agree = |a: &Profile, b: &Profile| page_correlation(a, b, &matched);
        let divided = || working_on(|page| Some(page / 4));
        assert!((agree(&divided(), &divided()).unwrap() - 1.0).abs() < 1e-9);
        // In another run each page has another of the three workers.
        let stealing = |run| working_on(move |page| Some(1 + (page + run) % 3));
        let found = agree(&stealing(0), &stealing(1)).unwrap();
        assert!(found < 0.2, "{found}");
        // All use everything, or nothing is known of the pages.
        let even = || working_on(|_| None);
        assert_eq!(agree(&even(), &even()), None);
        assert_eq!(agree(&divided(), &profile_of(4, 1, &[])), None);
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(x in proptest::collection::vec(0u8..20, 25), y in proptest::collection::vec(0u8..20, 25)) {
            let m = |v: &[u8]| CommMatrix::from_dense(5, &v.iter().map(|&c| f64::from(c)).collect::<Vec<_>>()).unwrap();
            let (a, b) = (m(&x), m(&y));
            let off: Vec<(f64, f64)> = (0..5).flat_map(|i| (0..5).map(move |j| (i, j)))
                .filter(|(i, j)| i != j).map(|(i, j)| (a.get(i, j), b.get(i, j))).collect();
            let n = off.len() as f64;
            let (ma, mb) = (off.iter().map(|p| p.0).sum::<f64>() / n, off.iter().map(|p| p.1).sum::<f64>() / n);
            let cov: f64 = off.iter().map(|p| (p.0 - ma) * (p.1 - mb)).sum();
            let va: f64 = off.iter().map(|p| (p.0 - ma).powi(2)).sum();
            let vb: f64 = off.iter().map(|p| (p.1 - mb).powi(2)).sum();
            if va > 1e-9 && vb > 1e-9 {
                prop_assert!((correlation(&a, &b).unwrap() - cov / (va * vb).sqrt()).abs() < 1e-9);
            }
        }
    }
}
