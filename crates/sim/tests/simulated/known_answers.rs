//! Compares the simulator with answers that are known analytically.

use crate::common::*;
use numaloc_model::trace::{Action, Event};
use numaloc_model::{LogicalNode, ThreadIdx};
use numaloc_sim::machine::Replacement;
use numaloc_sim::{Machine, Pages, Setup, Threads, Trace, TraceBuilder, simulate};

/// Time of a pointer chase for each access, once the caches are warm.
fn chase_latency(machine: &Machine, lines: u64, pages: &Pages) -> f64 {
    let time = |rounds| run(machine, &trace(&[chase(0, lines, rounds)]), &[0], pages).time;
    let (two, four) = (time(2), time(4));
    (four - two) as f64 / (2 * lines) as f64
}

#[test]
fn a_pointer_chase_takes_the_latency_of_the_level_that_answers() {
    let local = Pages::Node(LogicalNode(0));
    let remote = Pages::Node(LogicalNode(1));
    let one = machine(2, 1, 1);
    assert_eq!(
        chase_latency(&one, PRIVATE_LINES / 2, &local),
        PRIVATE as f64
    );
    assert_eq!(chase_latency(&one, LLC_LINES / 2, &local), LLC as f64);
    assert_eq!(chase_latency(&one, LLC_LINES * 4, &local), MEMORY as f64);
    let expected = MEMORY + 2 * HOP + REQUEST + DATA;
    assert_eq!(chase_latency(&one, LLC_LINES * 4, &remote), expected as f64);
}

#[test]
fn remote_over_local_is_the_configured_numa_factor() {
    for factor in [1.5, 2.1, 2.8] {
        let mut one = machine(2, 1, 1);
        for link in &mut one.links {
            link.ps_per_byte = 0.0;
            link.hop = (MEMORY as f64 * (factor - 1.0) / 2.0).round() as u64;
        }
        let of = |node| chase_latency(&one, LLC_LINES * 4, &Pages::Node(LogicalNode(node)));
        assert!((of(1) / of(0) - factor).abs() < 1e-9);
    }
}

/// Bytes per second of `cores` that read disjoint lines, each with `outstanding` misses.
fn bandwidth(machine: &Machine, threads: &[u32], pages: &Pages) -> (f64, Vec<f64>) {
    let lines = LLC_LINES * 2;
    let of_thread = |at: usize| chase(at as u64 * lines, lines, 1);
    let traces: Vec<_> = (0..threads.len()).map(of_thread).collect();
    let outcome = run(machine, &trace(&traces), threads, pages);
    let per_thread = |end: &u64| (lines * LINE) as f64 / *end as f64 * 1e12;
    let shares: Vec<f64> = outcome.thread_ends.iter().map(per_thread).collect();
    let all = (lines * LINE) as f64 * threads.len() as f64 / outcome.time as f64 * 1e12;
    (all, shares)
}

#[test]
fn a_closed_loop_has_the_throughput_of_its_asymptotes() {
    for (cores, outstanding) in [(1, 1), (1, 4), (2, 4), (4, 10), (8, 10)] {
        let mut closed = machine(1, cores, outstanding);
        closed.parameters.window_accesses = 1 << 20;
        let threads: Vec<u32> = (0..cores as u32).collect();
        let (found, _) = bandwidth(&closed, &threads, &Pages::FirstTouch);
        let (n, k) = (cores as f64, outstanding as f64);
        let expected = (n * k / MEMORY as f64).min(1.0 / SERVICE as f64) * LINE as f64 * 1e12;
        // At the knee (N K = 20) both asymptotes are close, and the true value is below them.
        assert!(
            (found / expected - 1.0).abs() < 0.02,
            "{cores} cores, {outstanding} outstanding: {found:.4e}, expected {expected:.4e}"
        );
    }
}

#[test]
fn streaming_cores_share_a_controllers_bandwidth_and_two_controllers_have_twice_as_much() {
    let mut two = machine(2, 4, 10);
    two.parameters.window_accesses = 1 << 20;
    let peak = LINE as f64 / SERVICE as f64 * 1e12;
    let near = |found: f64, expected: f64, most: f64| {
        assert!(
            (found / expected - 1.0).abs() < most,
            "{found:.4e} bytes/s, expected {expected:.4e}"
        );
    };
    let (one, shares) = bandwidth(&two, &[0, 1, 2, 3], &Pages::FirstTouch);
    near(one, peak, 0.01);
    shares
        .iter()
        .for_each(|share| near(*share, peak / 4.0, 0.05));
    let (both, _) = bandwidth(&two, &[0, 1, 2, 3, 4, 5, 6, 7], &Pages::FirstTouch);

    near(both, 2.0 * peak, 0.01);
    // All remote: the link carries 80 bytes for each line of 64.
    let (remote, _) = bandwidth(&two, &[0, 1, 2, 3], &Pages::Node(LogicalNode(1)));
    near(remote, peak.min(1e12 / BYTE * 64.0 / 80.0), 0.01);
}

/// Two threads that write one line, or one each, alternately.
fn alternating_writes(writes: u64, lines: [u64; 2]) -> Trace {
    let mut threads = [Vec::new(), Vec::new()];
    for turn in 0..writes {
        let (me, other) = (turn as usize % 2, 1 - turn as usize % 2);
        // Each releases its own word after its write, and the other acquires it before its next.
        if turn > 0 {
            threads[me].push(Action::Acquire(other as u64));
        }
        threads[me].push(Action::Write(lines[me]));
        threads[me].push(Action::Release(me as u64));
    }
    // Recorded in the order of the turns.
    let paths = ["r0", "r1"];
    let mut builder = TraceBuilder::new(paths, LINE, LINE * PAGE_LINES).unwrap();
    let mut at = [0, 0];
    for turn in 0..writes {
        let me = turn as usize % 2;
        let count = if turn > 0 { 3 } else { 2 };
        for _ in 0..count {
            let action = threads[me][at[me]];
            at[me] += 1;
            let event = Event {
                time: turn,
                work: 1,
                action,
                after: 0,
            };
            builder.push(ThreadIdx::from_index(me), &event);
        }
    }
    builder.finish().unwrap()
}

#[test]
fn a_line_written_in_turns_moves_once_for_each_write() {
    let two = machine(2, 2, 1);
    let writes = 1000;
    let ping_pong = alternating_writes(writes, [0, 0]);
    let same = run(&two, &ping_pong, &[0, 1], &Pages::FirstTouch);
    let other = run(&two, &ping_pong, &[0, 2], &Pages::FirstTouch);
    assert_eq!(same.transfers_within, writes - 1);
    assert_eq!(same.transfers_between, 0);
    assert_eq!(other.transfers_between, writes - 1);
    // Inside a node the last-level cache passes it on.
    let first = MEMORY;
    assert_eq!(same.time, first + (writes - 1) * (LLC + PRIVATE));
    // Between nodes every second owner is at home: a request to the home and on to the owner, the line, and the two
    // caches on the route.
    let to_home = LLC + LLC + REQUEST + HOP + DATA + HOP;
    assert_eq!(other.time, first + (writes - 1) * to_home);
    assert_eq!(same.lines_by_node_pair.iter().sum::<u64>(), 1);
}

#[test]
fn padding_removes_false_sharing() {
    let two = machine(2, 2, 1);
    let writes = 1000;
    let shared = run(
        &two,
        &alternating_writes(writes, [0, 0]),
        &[0, 1],
        &Pages::FirstTouch,
    );
    let padded = run(
        &two,
        &alternating_writes(writes, [0, 1]),
        &[0, 1],
        &Pages::FirstTouch,
    );
    assert_eq!(padded.transfers_within + padded.transfers_between, 0);
    assert_eq!(padded.invalidations, 0);
    assert_eq!(
        padded.time,
        2 * MEMORY,
        "two first misses, one after the other"
    );
    assert!(shared.time > 10 * padded.time);
}

#[test]
fn lines_that_are_only_read_are_fetched_once_for_each_node() {
    let two = machine(2, 4, 4);
    let lines = LLC_LINES / 4;
    let threads: Vec<_> = (0..8).map(|_| chase(0, lines, 3)).collect();
    let outcome = run(
        &two,
        &trace(&threads),
        &[0, 1, 2, 3, 4, 5, 6, 7],
        &Pages::Interleave,
    );
    let read: u64 = outcome.nodes.iter().map(|node| node.lines_read).sum();
    assert_eq!(read, 2 * lines);
    assert_eq!(outcome.llc_misses(), 2 * lines);
    assert_eq!(outcome.invalidations, 0);
    assert_eq!(outcome.transfers_within + outcome.transfers_between, 0);
}

#[test]
fn pages_decide_what_is_remote() {
    let nodes = 4;
    let mut four = machine(nodes, 1, 10);
    four.parameters.window_accesses = 1 << 20;
    // One core alone does not fill a controller, four do.
    four.service = vec![2 * SERVICE; nodes];
    let lines = LLC_LINES * 2;
    let threads: Vec<_> = (0..4).map(|at| chase(at * lines, lines, 1)).collect();
    let program = trace(&threads);
    let pages_each = lines / PAGE_LINES;
    let rotated = |by: u64| {
        let node = |page: &u64| Some(LogicalNode((((page / pages_each) + by) % 4) as u32));
        Pages::Placed(program.pages().iter().map(node).collect())
    };
    let of = |pages: &Pages| run(&four, &program, &[0, 1, 2, 3], pages);
    let (own, rotated) = (of(&rotated(0)), of(&rotated(1)));
    assert_eq!((own.remote_percent(), own.link_bytes()), (Some(0.0), 0));
    assert_eq!(rotated.remote_percent(), Some(100.0));
    assert_eq!(rotated.link_bytes(), 4 * lines * (16 + 80));
    assert_eq!(of(&Pages::FirstTouch).remote_percent(), Some(0.0));
    let interleaved = of(&Pages::Interleave);
    assert!((interleaved.remote_percent().unwrap() - 75.0).abs() < 1e-9);
    // Everything on one node: its queue is the bottleneck.
    let master = of(&Pages::Node(LogicalNode(0)));
    assert_eq!(master.nodes[0].lines_read, 4 * lines);
    assert!(master.mean_wait() > 3.0 * interleaved.mean_wait());
    assert!(master.time > own.time);
}

/// Reads and writes at random over private and shared lines, with a barrier now and then.
fn mixed(threads: usize, accesses: u64) -> Trace {
    let mut state = 12_345u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 33
    };
    let mut of: Vec<Vec<Action>> = vec![Vec::new(); threads];
    for at in 0..accesses {
        for (thread, actions) in of.iter_mut().enumerate() {
            if at % 1000 == 999 {
                // A word for each barrier and thread: all release, then all acquire all.
                actions.push(Action::Release(at * 100 + thread as u64));
            } else if at % 1000 == 0 && at > 0 {
                let before = at - 1;
                actions
                    .extend((0..threads as u64).map(|other| Action::Acquire(before * 100 + other)));
            }
            let line = match next() % 4 {
                0 => next() % 2000,
                _ => 10_000 * (thread as u64 + 1) + next() % 40_000,
            };
            actions.push(match next() % 3 {
                0 => Action::Write(line),
                _ => Action::Read(line),
            });
        }
    }
    trace(&of)
}

#[test]
fn counts_of_different_components_agree() {
    let four = machine(4, 2, 8);
    let program = mixed(8, 20_000);
    let of = || {
        run(
            &four,
            &program,
            &[0, 1, 2, 3, 4, 5, 6, 7],
            &Pages::Interleave,
        )
    };
    let outcome = of();
    let all: u64 = outcome.lines_by_node_pair.iter().sum();
    let at_controllers: u64 = outcome.nodes.iter().map(|node| node.lines()).sum();
    assert_eq!(all, at_controllers);
    for node in &outcome.nodes {
        assert_eq!(node.busy, SERVICE * node.lines());
        assert_eq!(node.busy_over_time.sums.iter().sum::<u64>(), node.busy);
        assert_eq!(node.wait_over_time.sums.iter().sum::<u64>(), node.waited);
    }
    let hits: u64 = outcome.groups.iter().map(|group| group.hits).sum();
    assert_eq!(
        outcome.private_hits + hits + outcome.llc_misses(),
        8 * 20_000,
        "each access is answered once"
    );
    for link in &outcome.links {
        assert_eq!(link.over_time.sums.iter().sum::<u64>(), link.bytes);
    }
    assert_eq!(of(), outcome, "twice the same");
}

#[test]
fn the_quantum_hardly_matters() {
    let program = mixed(8, 20_000);
    let of = |quantum_ns: f64| {
        let mut four = machine(4, 2, 8);
        four.parameters.quantum_ns = quantum_ns;
        run(
            &four,
            &program,
            &[0, 1, 2, 3, 4, 5, 6, 7],
            &Pages::Interleave,
        )
    };
    let reference = of(100.0);
    for quantum in [50.0, 200.0, 500.0, 1000.0] {
        let other = of(quantum);
        let change = other.time as f64 / reference.time as f64 - 1.0;
        assert!(change.abs() < 0.02, "{quantum} ns: {change:+.4}");
        let misses = other.llc_misses() as f64 / reference.llc_misses() as f64 - 1.0;
        assert!(misses.abs() < 0.01, "{quantum} ns: {misses:+.4} misses");
    }
}

#[test]
fn streams_are_fetched_ahead() {
    let stream: Vec<Action> = (0..LLC_LINES * 4).map(Action::Read).collect();
    let time = |prefetched| {
        let mut one = machine(1, 1, 1);
        one.parameters.prefetched = prefetched;
        run(
            &one,
            &trace(std::slice::from_ref(&stream)),
            &[0],
            &Pages::FirstTouch,
        )
        .time as f64
    };
    let (without, with) = (time(0), time(10));
    assert!((without / with - 10.0).abs() < 0.2, "{}", without / with);
}

#[test]
fn threads_of_one_pu_alternate() {
    let one = machine(1, 2, 1);
    let lines = LLC_LINES * 2;
    let threads: Vec<_> = (0..2).map(|at| chase(at * lines, lines, 2)).collect();
    let apart = run(&one, &trace(&threads), &[0, 1], &Pages::FirstTouch);
    let together = run(&one, &trace(&threads), &[0, 0], &Pages::FirstTouch);
    assert!(together.switches > 1);
    let ratio = together.time as f64 / apart.time as f64;
    assert!((ratio - 2.0).abs() < 0.05, "{ratio}");
}

#[test]
fn a_created_thread_starts_after_its_creation_and_waits_for_releases() {
    let mut events = Vec::new();
    let mut push = |thread: u32, action: Action| events.push((thread, action));
    push(0, Action::Read(0));
    push(0, Action::Create(1));
    push(1, Action::Read(64));
    push(1, Action::Release(9));
    push(0, Action::Acquire(9));
    push(0, Action::Read(128));
    let program = creator_and_created(&events);
    let mut two = machine(1, 2, 1);
    two.parameters.thread_start_us = 1.0;
    let outcome = run(&two, &program, &[0, 1], &Pages::FirstTouch);
    // The first miss is outstanding while the thread is created; the second thread misses, releases, and the first
    // misses again.
    let released = 1000 * NS + MEMORY;
    assert_eq!(outcome.thread_ends, [released + MEMORY, released]);
}

/// The second thread becomes ready after the first one's time slice is over, but long before the first one ends.
#[test]
fn a_thread_that_is_ready_later_leaves_the_pu_to_the_other_until_then() {
    let mut events = Vec::new();
    let mut push = |thread: u32, action: Action| events.push((thread, action));
    push(0, Action::Create(1));
    for at in 0..1000 {
        push(0, Action::Read(at * 67 % 65_536));
        push(1, Action::Read(65_536 + at * 67 % 1000));
    }
    let program = creator_and_created(&events);
    let mut one = machine(1, 1, 1);
    one.parameters.thread_start_us = 30.0;
    one.parameters.time_slice_us = 10.0;
    let outcome = run(&one, &program, &[0, 0], &Pages::FirstTouch);
    assert!(outcome.switches > 2, "{}", outcome.switches);
    assert!(outcome.thread_ends.iter().all(|end| *end > 0));
}

#[test]
fn setups_that_do_not_fit_are_refused() {
    let one = machine(1, 1, 1);
    let program = trace(&[chase(0, 64, 1)]);
    let fails = |threads: &[u32], pages: &Pages| {
        let threads = pus(threads);
        let setup = Setup {
            threads: Threads::Pinned(&threads),
            pages,
        };
        simulate(&one, &program, &setup, 0).unwrap_err().to_string()
    };
    assert!(fails(&[0, 0], &Pages::FirstTouch).contains("2 threads"));
    assert!(fails(&[7], &Pages::FirstTouch).contains("1 PUs"));
    assert!(fails(&[0], &Pages::Node(LogicalNode(3))).contains("1 nodes"));
    assert!(fails(&[0], &Pages::Placed(vec![None; 5])).contains("5 pages, expected 1"));
}

/// A core's working set that is used again and again, and a scan four times as large as the cache.
#[test]
fn with_rrip_a_scan_leaves_lines_in_use_in_the_shared_cache() {
    let hot = LLC_LINES / 4;
    let mut accesses = Vec::new();
    for round in 0..8 {
        accesses.extend(chase(0, hot, 2));
        accesses.extend(chase(LLC_LINES * (8 + 4 * round), LLC_LINES, 1));
    }
    let misses = |replacement| {
        let mut one = machine(1, 1, 4);
        one.parameters.llc_replacement = Some(replacement);
        let program = trace(std::slice::from_ref(&accesses));
        run(&one, &program, &[0], &Pages::FirstTouch).llc_misses()
    };
    let (lru, rrip) = (misses(Replacement::Lru), misses(Replacement::Rrip));
    assert_eq!(lru, 8 * (hot + LLC_LINES), "each scan evicts all");
    assert_eq!(rrip, hot + 8 * LLC_LINES, "only the first use misses");
}

/// A second node without cores, three times as slow and with a quarter of the bandwidth.
#[test]
fn memory_without_cores_is_reached_over_its_link_at_its_own_speed() {
    let with_expander = |outstanding| {
        let mut machine = machine(2, 4, outstanding);
        machine.pus.truncate(4);
        machine.core_node.truncate(4);
        machine.core_group.truncate(4);
        machine.groups = 1;
        machine.memory_latency[1] = 3 * MEMORY;
        machine.service[1] = 4 * SERVICE;
        machine.parameters.window_accesses = 1 << 20;
        machine
    };
    let one = with_expander(1);
    let of = |node| chase_latency(&one, LLC_LINES * 4, &Pages::Node(LogicalNode(node)));
    assert_eq!(of(0), MEMORY as f64);
    assert_eq!(of(1), (3 * MEMORY + 2 * HOP + REQUEST + DATA) as f64);
    let many = with_expander(20);
    let (found, _) = bandwidth(&many, &[0, 1, 2, 3], &Pages::Node(LogicalNode(1)));
    let expected = LINE as f64 / (4 * SERVICE) as f64 * 1e12;
    assert!((found / expected - 1.0).abs() < 0.01, "{found:.4e}");
    // Half of the lines each: both controllers work at once.
    let lines = LLC_LINES * 2;
    let program = trace(
        &(0..4)
            .map(|at| chase(at * lines, lines, 1))
            .collect::<Vec<_>>(),
    );
    let spread = run(&many, &program, &[0, 1, 2, 3], &Pages::Interleave);
    assert_eq!(spread.remote_percent(), Some(50.0));
    assert_eq!(spread.llc_misses_by_node(&many), [4 * lines, 0]);
    let energy = spread.energy(&many);
    let constants = &many.parameters.energy;
    let watts = constants.static_w + constants.memory_node_w;
    assert!((energy.static_j - watts * spread.time as f64 * 1e-12).abs() < 1e-12);
}

/// Writes of `lines` lines each by `cores` cores of one node, at the controller's bandwidth for reads and write-backs.
#[test]
fn a_stream_of_stores_takes_the_controllers_bandwidth_twice_and_waits_no_longer_than_what_is_outstanding()
 {
    let (cores, outstanding) = (4, 10);
    let mut one = machine(1, cores, outstanding);
    one.parameters.window_accesses = 1 << 20;
    let lines = LLC_LINES * 4;
    let of_thread = |at: usize| (0..lines).map(move |line| Action::Write(at as u64 * lines + line));
    let program = trace(
        &(0..cores)
            .map(|at| of_thread(at).collect())
            .collect::<Vec<_>>(),
    );
    let outcome = run(&one, &program, &[0, 1, 2, 3], &Pages::FirstTouch);
    let all = lines * cores as u64;
    let controller = &outcome.nodes[0];
    assert_eq!(controller.lines_read, all);
    // What the caches hold at the end is not written back.
    let held = LLC_LINES + cores as u64 * PRIVATE_LINES;
    assert!((all - held..=all - LLC_LINES).contains(&controller.lines_written));
    let busy = SERVICE * controller.lines();
    let ratio = outcome.time as f64 / busy as f64;
    assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
    let most = (cores * (outstanding + one.parameters.write_backs)) as u64 * SERVICE;
    let wait = controller.mean_wait();
    assert!(
        wait > SERVICE as f64 && wait <= most as f64,
        "{wait} ps, at most {most}"
    );
}

/// Records of write-backs alone, as a phase that flushes its caches has them: no load or store limits their number.
#[test]
fn write_backs_alone_wait_for_the_buffer_and_take_the_controllers_bandwidth() {
    for (cores, entries) in [(1, 1), (1, 16), (4, 16)] {
        let mut one = machine(1, cores, 10);
        one.parameters.write_backs = entries;
        let lines = LLC_LINES * 4;
        let of_thread =
            |at: usize| (0..lines).map(move |line| Action::WriteBack(at as u64 * lines + line));
        let program = trace(
            &(0..cores)
                .map(|at| of_thread(at).collect())
                .collect::<Vec<_>>(),
        );
        let threads: Vec<_> = pus(&(0..cores as u32).collect::<Vec<_>>());
        let setup = Setup {
            threads: Threads::Pinned(&threads),
            pages: &Pages::FirstTouch,
        };
        // The recorder's private caches are those of the machine.
        let outcome = simulate(&one, &program, &setup, one.private_bytes).unwrap();
        let written = lines * cores as u64 - LLC_LINES;
        assert_eq!(outcome.nodes[0].lines_written, written);
        let ratio = outcome.time as f64 / (written * SERVICE) as f64;
        assert!(
            (ratio - 1.0).abs() < 0.01,
            "{cores} cores, {entries} entries: {ratio}"
        );
        let most = (cores * entries) as u64 * SERVICE;
        // Clocks differ by up to a quantum, so a single wait may be longer.
        let wait = outcome.mean_wait();
        assert!(
            wait <= most as f64,
            "{cores} cores, {entries} entries: {wait} ps"
        );
    }
}

/// The first thread waits for a line (80 ns), creates the second, and waits for two more; the second waits for one line
/// of its own node.
#[test]
fn the_parallel_time_is_that_from_the_first_creation_to_the_end_of_the_created_thread() {
    let page = PAGE_LINES;
    let trace = creator_and_created(&[
        (0, Action::Read(0)),
        (0, Action::Release(1)),
        (0, Action::Create(1)),
        (1, Action::Read(page)),
        (1, Action::End),
        (0, Action::Read(2 * page)),
        (0, Action::Release(1)),
        (0, Action::Read(3 * page)),
        (0, Action::End),
    ]);
    let outcome = run(&machine(2, 1, 4), &trace, &[0, 1], &Pages::FirstTouch);
    assert_eq!((outcome.time, outcome.parallel), (3 * MEMORY, MEMORY));
    let alone = run(
        &machine(2, 1, 4),
        &self::trace(&[chase(0, 4, 1)]),
        &[0],
        &Pages::FirstTouch,
    );
    assert_eq!(alone.parallel, 0, "no thread is created");
}
