use super::*;

fn sample(address: u64, kind: AccessKind, time: u64, amount: u64) -> AccessSample {
    AccessSample {
        address,
        size: 8,
        kind,
        time,
        accesses: time,
        since: 0,
        until: 1 << 40,
        guard: 0,
        odd: false,
        closed: false,
        place: 7,
        amount,
    }
}

/// `count` samples of each thread that stand for `amount` accesses each, from `begin` on, at each thread's own word.
fn counters(
    threads: usize,
    own: u64,
    count: u64,
    amount: u64,
    begin: impl Fn(usize) -> u64,
) -> Vec<Access> {
    let mut accesses = Vec::new();
    for thread in 0..threads {
        for at in 0..count {
            let time = begin(thread) + at * amount;
            for kind in [AccessKind::Load, AccessKind::Store] {
                let address = 0x1000 + own * thread as u64;
                let sample = sample(address, kind, time, amount);
                accesses.push(Access { thread, sample });
            }
        }
    }
    accesses
}

fn found(accesses: &[Access]) -> Option<Estimate> {
    let mut sections = Sections::default();
    for access in accesses {
        sections.add(access.thread, &access.sample);
    }
    estimate(accesses, &sections)
}

#[test]
fn increments_of_equal_threads_move_the_line_unless_the_last_was_the_own() {
    for threads in [2usize, 4, 8] {
        for own in [0, 8] {
            let estimate = found(&counters(threads, own, 50, 100, |_| 0)).unwrap();
            let visits = 5000 * threads as u64;
            assert_eq!(
                (estimate.visits, estimate.threads),
                (visits, threads as u32)
            );
            let share = 1.0 - 1.0 / threads as f64;
            assert_eq!(estimate.transfers, (visits as f64 * share) as u64);
            let apart = if own == 0 { 0 } else { estimate.transfers };
            assert_eq!(estimate.false_transfers, apart);
        }
    }
}

#[test]
fn a_table_that_one_thread_wrote_and_others_read_later_is_not_contended() {
    let mut accesses = counters(1, 0, 40, 100, |_| 0);
    for access in &mut accesses {
        access.sample.until = 10_000;
    }
    for thread in 1..5 {
        for at in 0..40 {
            let mut sample = sample(0x1000, AccessKind::Load, 10_000 + at * 100, 100);
            sample.since = 10_000;
            accesses.push(Access { thread, sample });
        }
    }
    assert_eq!(found(&accesses), None);
}

#[test]
fn threads_that_take_turns_between_barriers_do_not_contend() {
    let mut accesses = counters(2, 8, 100, 1000, |thread| thread as u64 * 10_000);
    // Each has ten phases of 10,000 accesses, alternately.
    for access in &mut accesses {
        let turn = access.sample.time / 10_000 * 2 + access.thread as u64;
        access.sample.since = turn * 10_000;
        access.sample.until = (turn + 1) * 10_000;
        access.sample.time = access.sample.since + access.sample.time % 10_000;
    }
    assert_eq!(found(&accesses), None);
}

#[test]
fn atomic_instructions_contend_whichever_thread_the_host_ran_first() {
    // Their clocks join: one thread after the other.
    let mut accesses = Vec::new();
    for thread in 0..4usize {
        for at in 0..100 {
            let time = thread as u64 * 100_000 + at * 1000;
            let mut sample = sample(0x1000, AccessKind::Atomic, time, 10);
            (sample.since, sample.until) = (time, time);
            accesses.push(Access { thread, sample });
        }
    }
    let estimate = found(&accesses).unwrap();
    assert_eq!((estimate.visits, estimate.transfers), (4000, 3000));
    assert_eq!((estimate.atomics, estimate.false_transfers), (4000, 0));
}

#[test]
fn a_critical_section_moves_the_line_once_at_most() {
    // Sections of 50 accesses of which 20 go to the line; every tenth access is sampled.
    let mut accesses = Vec::new();
    for thread in 0..2usize {
        for at in 0..200u64 {
            let since = at * 100 + 50 * thread as u64;
            for (kind, within) in [(AccessKind::Load, 10), (AccessKind::Store, 11)] {
                let mut sample = sample(0x1000, kind, since + within, 10);
                (sample.since, sample.until) = (since, since + 50);
                (sample.guard, sample.odd, sample.closed) = (0x2000, true, true);
                accesses.push(Access { thread, sample });
            }
            // The other accesses of the section are to other lines.
            for within in 0..3 {
                let mut other = sample(0x9000, AccessKind::Load, since + within, 10);
                (other.since, other.until) = (since, since + 50);
                (other.guard, other.odd, other.closed) = (0x2000, true, true);
                accesses.push(Access {
                    thread,
                    sample: other,
                });
            }
        }
    }
    let mut sections = Sections::default();
    for access in &accesses {
        sections.add(access.thread, &access.sample);
    }
    accesses.retain(|access| access.sample.address == 0x1000);
    let estimate = estimate(&accesses, &sections).unwrap();
    // 200 sections of each, half of the hand-overs are to the other.
    assert_eq!((estimate.visits, estimate.transfers), (4000, 200));
}

#[test]
fn a_lock_next_to_what_it_guards_moves_with_it() {
    // 400 sections of each thread: the lock is taken and left by an atomic instruction each, and the words next to it
    // are changed in between.
    let of = |lock: u64, taken: u64| {
        let mut accesses = Vec::new();
        for thread in 0..2usize {
            for at in 0..400u64 {
                let since = at * 100 + 50 * thread as u64;
                for (place, within) in [(1, 0), (2, 20)] {
                    let mut atomic = sample(taken, AccessKind::Atomic, since + within, 1);
                    (atomic.size, atomic.place) = (4, place);
                    let sample = atomic;
                    accesses.push(Access { thread, sample });
                }
                for kind in [AccessKind::Load, AccessKind::Store] {
                    let mut sample = sample(0x1028, kind, since + 10, 1);
                    (sample.since, sample.until) = (since, since + 20);
                    (sample.guard, sample.odd, sample.closed) = (lock, true, true);
                    accesses.push(Access { thread, sample });
                }
            }
        }
        found(&accesses).unwrap()
    };
    // Half of the 800 sections come after the other thread's.
    let beside = of(0x1000, 0x1000);
    assert_eq!(
        (beside.transfers, beside.lock),
        (400, Some((0x1000, Some(true))))
    );
    // Atomic instructions on another word than the lock's: a counter, with the lock elsewhere.
    let counter = of(0x2000, 0x1010);
    assert_eq!((counter.transfers, counter.lock), (1200, None));
}

#[test]
fn a_counter_between_atomic_instructions_on_one_word_is_not_in_critical_sections() {
    let mut accesses = counters(2, 8, 100, 100, |thread| thread as u64 * 1_000_000);
    for (at, access) in accesses.iter_mut().enumerate() {
        let sample = &mut access.sample;
        (sample.since, sample.until) = (sample.time - sample.time % 50, sample.time + 50);
        (sample.guard, sample.odd, sample.closed) = (0x2000, at / 2 % 2 == 0, true);
    }
    // The host ran one thread after the other; they would run at the same time.
    assert_eq!(found(&accesses).unwrap().transfers, 10_000);
}

#[test]
fn few_samples_of_loads_and_stores_do_not_add_up_to_more_visits() {
    // Each thread loads and stores 800 times; by chance six samples are of the one and ten of the other.
    let mut accesses = Vec::new();
    let mut add = |thread: usize, kind, count: u64| {
        for at in 0..count {
            let mut sample = sample(0x1000, kind, 50 * at + thread as u64, 100);
            (sample.since, sample.until) = (50 * at, 50 * at + 50);
            accesses.push(Access { thread, sample });
        }
    };
    for thread in 0..16 {
        let loads = 6 + 4 * (thread as u64 % 2);
        add(thread, AccessKind::Load, loads);
        add(thread, AccessKind::Store, 16 - loads);
    }
    let visits = found(&accesses).unwrap().visits as f64;
    assert!((visits / (16.0 * 800.0) - 1.0).abs() < 0.1, "{visits}");
}

#[test]
fn the_parity_of_a_lock_that_is_not_taken_at_once_changes() {
    // Two stores to the same word in each section, which is as long as the time between sections.
    let mut accesses = Vec::new();
    for thread in 0..2usize {
        for at in 0..400u64 {
            let mut sample = sample(0x1000, AccessKind::Store, 100 * at + 5, 10);
            (sample.since, sample.until) = (100 * at, 100 * at + 20);
            (sample.guard, sample.odd, sample.closed) = (0x2000, at % 2 == 0, true);
            accesses.push(Access { thread, sample });
        }
    }
    let mut sections = Sections::default();
    for access in &accesses {
        let mut between = *access;
        between.sample.address = 0x9000;
        for sample in [access, &between] {
            sections.add(sample.thread, &sample.sample);
        }
    }
    // 4000 stores of each in 200 sections that hand the line over every other time.
    let estimate = estimate(&accesses, &sections).unwrap();
    assert_eq!((estimate.visits, estimate.transfers), (8000, 200));
}

#[test]
fn a_flag_that_others_wait_for_moves_once_for_each_reader_and_store() {
    let mut accesses = counters(1, 0, 20, 5, |_| 0);
    for thread in 1..4 {
        for at in 0..100 {
            let sample = sample(0x1000, AccessKind::Load, at, 1000);
            accesses.push(Access { thread, sample });
        }
    }
    let estimate = found(&accesses).unwrap();
    // 100 stores: the writer and three readers each fetch the line after nearly all.
    assert!((380..=400).contains(&estimate.transfers), "{estimate:?}");
    assert_eq!((estimate.writers, estimate.threads), (1, 4));
}

#[test]
fn few_samples_show_nothing() {
    assert_eq!(found(&counters(2, 8, 1, 1000, |_| 0)), None);
    // One access that was sampled stands for many.
    assert_eq!(found(&counters(1, 8, 50, 1000, |_| 0)), None);
}

#[test]
fn one_plain_sample_next_to_atomic_ones_stands_for_itself() {
    // Each thread adds to the line ten times by an atomic instruction, and stores to it once, which is sampled.
    let mut accesses = Vec::new();
    for thread in 0..4usize {
        for at in 0..10 {
            let sample = sample(0x1000, AccessKind::Atomic, at, 1);
            accesses.push(Access { thread, sample });
        }
        let sample = sample(0x1000, AccessKind::Store, 20, 1000);
        accesses.push(Access { thread, sample });
    }
    let estimate = found(&accesses).unwrap();
    assert_eq!((estimate.visits, estimate.transfers), (40, 30));
}

#[test]
fn attempts_to_take_a_lock_are_no_sections() {
    // In each of 400 sections one access to the line is sampled, and none of the eight others, which are the lock's.
    // Its word is changed by the instruction that takes it, the one that leaves it, and in every other section by an
    // attempt.
    let mut sections = Sections::default();
    let mut accesses = Vec::new();
    for thread in 0..2usize {
        for at in 0..400u64 {
            let mut inside = sample(0x1000, AccessKind::Store, 100 * at + 5, 1);
            (inside.since, inside.until) = (100 * at, 100 * at + 9);
            (inside.guard, inside.odd, inside.closed) = (0x2000, true, true);
            let sample = inside;
            accesses.push(Access { thread, sample });
            sections.add(thread, &inside);
            for place in 1..4 {
                let mut word = inside;
                (word.address, word.kind) = (0x2000, AccessKind::Atomic);
                word.place = place;
                if place < 3 || at % 2 == 0 {
                    sections.add(thread, &word);
                }
            }
        }
    }
    let estimate = estimate(&accesses, &sections).unwrap();
    assert_eq!((estimate.visits, estimate.transfers), (800, 400));
    assert_eq!(sections.of(0, 0x2000, Some(true)), 400.0);
}
