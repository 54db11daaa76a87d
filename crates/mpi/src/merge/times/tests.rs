use super::*;

/// An event of channel 7 and the number 0.
fn event(kind: EventKind, posted: u64, begin: u64, end: u64) -> Event {
    Event {
        channel: 7,
        sequence: 0,
        peer: None,
        posted,
        begin,
        end,
        row: 0,
        kind,
        level: 0,
    }
}

/// What ranks that each have one row of calls in a communicator of `ranks` waited for.
fn times(events: &[(Event, u32)], ranks: u32) -> Times {
    let mut all = Ranks {
        files: Vec::new(),
        sums: HashMap::new(),
        waiting: HashMap::new(),
        kept: [0; 33],
        highest: 0,
        untracked: 0,
        across: 0,
        hosts: 1,
        clocks: Clocks::default(),
    };
    for (_, rank) in events {
        let sum = Sum {
            operation: "MPI_Call".to_owned(),
            site: None,
            ranks,
            size_class: 3,
            calls: 1,
            bytes: 4,
            nanoseconds: 1000,
            partners: 2,
        };
        all.sums.insert(*rank, vec![sum]);
    }
    let mut seen: Vec<Seen> = events
        .iter()
        .map(|&(event, rank)| (event, rank, 0))
        .collect();
    seen.sort_by_key(|(event, rank, _)| (event.channel, event.sequence, *rank));
    let mut found = Vec::new();
    for group in seen.chunk_by(|(a, ..), (b, ..)| a.channel == b.channel) {
        all.compare(group, 0, &mut found);
    }
    all.times(found)
}

fn waits(times: &Times) -> Vec<(u32, u32, WaitKind, u64)> {
    let waits = times.waits.iter();
    waits
        .map(|wait| (wait.thread.0, wait.other.0, wait.kind, wait.nanoseconds))
        .collect()
}

#[test]
fn a_receive_waits_until_its_message_is_sent_and_a_send_until_its_receive_is_posted() {
    use EventKind::{Receive, Send};
    let late_sender = times(
        &[
            (event(Send, 300, 300, 310), 0),
            (event(Receive, 100, 100, 400), 1),
        ],
        2,
    );
    assert_eq!(waits(&late_sender), [(1, 0, WaitKind::LateSender, 200)]);
    let late_receiver = times(
        &[
            (event(Send, 100, 100, 420), 0),
            (event(Receive, 400, 400, 430), 1),
        ],
        2,
    );
    assert_eq!(waits(&late_receiver), [(0, 1, WaitKind::LateReceiver, 300)]);
    // A send that had ended before the receive was posted did not wait for it.
    let buffered = times(
        &[
            (event(Send, 100, 100, 150), 0),
            (event(Receive, 400, 400, 430), 1),
        ],
        2,
    );
    assert_eq!(waits(&buffered), []);
    assert_eq!(
        buffered
            .calls
            .iter()
            .map(|(call, _)| call.matched)
            .sum::<u64>(),
        2
    );
}

#[test]
fn a_call_that_waits_for_several_messages_waits_once() {
    use EventKind::{Receive, Send};
    let other = |event| Event {
        channel: 8,
        ..event
    };
    let found = times(
        &[
            (event(Send, 300, 300, 300), 0),
            (other(event(Send, 350, 350, 350)), 2),
            (event(Receive, 50, 100, 400), 1),
            (other(event(Receive, 60, 100, 400)), 1),
        ],
        3,
    );
    assert_eq!(waits(&found), [(1, 2, WaitKind::LateSender, 250)]);
}

#[test]
fn a_collective_waits_for_its_last_rank_or_for_its_root_if_all_ranks_are_known() {
    let at = |posted: u64, end: u64| event(EventKind::Collective, posted, posted, end);
    let ranks = [(at(100, 520), 0), (at(500, 520), 1), (at(300, 520), 2)];
    let imbalance = |rank, wait| (rank, 1, WaitKind::Imbalance, wait);
    assert_eq!(
        waits(&times(&ranks, 3)),
        [imbalance(0, 400), imbalance(2, 200)]
    );
    assert_eq!(waits(&times(&ranks, 4)), [], "a rank is missing");
    // Of a broadcast by rank 2, rank 0 waits until 300, and rank 1 not at all.
    let root = ranks.map(|(event, rank)| {
        let end = if rank == 0 { 310 } else { event.end };
        let peer = Some(2);
        (Event { end, peer, ..event }, rank)
    });
    assert_eq!(waits(&times(&root, 3)), [(0, 2, WaitKind::Imbalance, 200)]);
}

#[test]
fn kept_messages_stand_for_those_left_out_up_to_the_time_of_the_calls() {
    use EventKind::{Receive, Send};
    let kept = |event| Event { level: 3, ..event };
    let found = times(
        &[
            (event(Send, 300, 300, 310), 0),
            (kept(event(Receive, 100, 100, 400)), 1),
        ],
        2,
    );
    assert_eq!(waits(&found), [(1, 0, WaitKind::LateSender, 1600)]);
    let waiting: u64 = found.calls.iter().map(|(call, _)| call.waiting[0]).sum();
    assert_eq!(waiting, 1000, "the calls took no longer");
}

#[test]
fn clocks_of_hosts_are_bounded_by_messages_in_both_directions() {
    use EventKind::{Receive, Send};
    // Host 1's clock is 10,000 ahead; a message takes 100 to it and 300 back.
    let there = [
        (event(Send, 1000, 1000, 1010), 0, 0),
        (event(Receive, 10_500, 10_500, 11_100), 1, 1),
    ];
    let back = [
        (event(Send, 12_000, 12_000, 12_010), 1, 1),
        (event(Receive, 1500, 1500, 2300), 0, 0),
    ];
    let mut bounds = Bounds::default();
    bounds.add(&there, false);
    assert_eq!(bounds.clocks(2).offsets, [Some(0), None], "one direction");
    bounds.add(&back, false);
    let clocks = bounds.clocks(3);
    // Between 12,000 - 2,300 and 11,100 - 1,000.
    assert_eq!(clocks.offsets, [Some(0), Some(9900), None]);
    assert_eq!(clocks.error, 200);
    let (aligned, _, host) = clocks.aligned(there[1]);
    assert_eq!((aligned.begin, aligned.end, host), (600, 1200, 0));
}
