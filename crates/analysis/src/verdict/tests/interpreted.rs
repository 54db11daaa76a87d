//! Threads of an interpreter with a global lock.

use super::*;

#[test]
fn a_global_lock_counts_only_where_one_thread_works_at_a_time() {
    // Four threads use 100 pages each, in the same slices or one after the other.
    let reason = |at_once: bool, program: &str| {
        let pages = (0..4).flat_map(|thread| alike(100, thread, &of_thread(thread)));
        let mut tables = profile(4, &[], usage_of(&pages.collect::<Vec<_>>())).into_builder();
        tables.meta.command = vec![program.to_owned(), "app.py".to_owned()];
        let slice = |at| Slice {
            start: at,
            end: at + 1,
        };
        tables.slices = (0..4).map(slice).collect();
        for thread in 0..4u32 {
            tables.threads[thread as usize].accesses = 600_000;
            for page in 0..100 {
                tables.page_slices.push(PageSlice {
                    slice: SliceIdx(if at_once { 0 } else { thread }),
                    page: PageNumber(u64::from(100 * thread) + page),
                    thread: ThreadIdx(thread),
                    accesses: 6000,
                });
            }
        }
        let profile = tables.build().unwrap();
        of(&found(&profile, 4), Measure::BindThreads).reason.clone()
    };
    assert!(reason(false, "python3").contains("global lock"));
    assert!(!reason(true, "python3").contains("global lock"));
    assert!(!reason(false, "app").contains("global lock"));
}

/// 6,000 accesses by one of four threads.
fn of_thread(thread: u32) -> [u64; 4] {
    let mut accesses = [0; 4];
    accesses[thread as usize] = 6000;
    accesses
}
