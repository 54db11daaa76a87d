use super::*;
use numaloc_model::pages::PageHead;
use numaloc_model::profile::{Clock, Meta, ProfileBuilder, Thread, Variable};
use numaloc_model::segments::Pattern;
use numaloc_model::{PageNumber, ThreadAccess, ThreadIdx};

/// An object: kind, name, size, thread, and the accesses of threads 0 and 1 to its first page.
type Row<'a> = (ObjectKind, &'a str, u64, u32, [u64; 2]);

/// Processes `0` and `0/1`, which run `command`, and their objects.
fn profile(command: &[&str], rows: &[Row<'_>]) -> Profile {
    let mut tables = ProfileBuilder::new(Meta::new("native", Clock::Virtual), 4096);
    tables.meta.command = command.iter().map(|&word| word.to_owned()).collect();
    tables.threads = ["0", "0/1"].map(Thread::new).to_vec();
    for (at, &(kind, name, size, thread, accesses)) in (0u32..).zip(rows) {
        tables.objects.push(Object {
            kind,
            name: name.to_owned(),
            size,
            order: at,
            thread: Some(ThreadIdx(thread)),
            base: u64::from(at + 1) << 32,
            variables: Vec::new(),
        });
        let head = PageHead {
            number: PageNumber((u64::from(at) + 1) << 20),
            object: Some(ObjectIdx(at)),
            object_page: 0,
            first_touch: Some(ThreadIdx(thread)),
            first_touch_time: 0,
            policy: None,
        };
        let used = (0..).zip(accesses).filter(|(_, reads)| *reads > 0);
        let cells = used.map(|(thread, reads)| ThreadAccess {
            thread: ThreadIdx(thread),
            reads,
            writes: 0,
        });
        tables.page(head, cells);
    }
    tables.build().unwrap()
}

fn rule(name: &str, change: impl FnOnce(&mut SegmentRule)) -> SegmentRule {
    let mut rule = SegmentRule::named(name);
    change(&mut rule);
    rule
}

fn found(profile: &Profile, rules: &[SegmentRule]) -> Vec<Segment> {
    segments(
        profile,
        profile.pages(),
        &NodeAssignment::blocks(2, 2),
        rules,
    )
}

fn names(profile: &Profile, rules: &[SegmentRule]) -> Vec<(String, u64)> {
    let found = found(profile, rules).into_iter();
    found.map(|one| (one.name, one.accesses)).collect()
}

fn expected(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    rows.iter()
        .map(|&(name, accesses)| (name.to_owned(), accesses))
        .collect()
}

#[test]
fn the_first_rule_that_holds_names_an_object() {
    let profile = profile(
        &["server"],
        &[
            (ObjectKind::Static, "server:.data", 4096, 0, [1, 0]),
            (ObjectKind::Shared, "[anon]", 1 << 20, 0, [40, 10]),
            (ObjectKind::Shared, "[anon]", 1 << 16, 0, [5, 0]),
            (ObjectKind::Shared, "queue.7", 1 << 16, 0, [2, 0]),
            // Another program's: it has loaded no `server`.
            (ObjectKind::Static, "helper:.data", 4096, 1, [0, 3]),
            (ObjectKind::Shared, "[anon]", 1 << 20, 1, [0, 7]),
        ],
    );
    let rules = [
        rule("pool", |rule| {
            rule.loaded = vec![Pattern::new("server")];
            rule.kinds = vec![ObjectKind::Shared];
            rule.memory = vec![Pattern::new("[anon]")];
            rule.is_largest = true;
            rule.switch = Some("--pool".to_owned());
        }),
        rule("queues", |rule| rule.memory = vec![Pattern::new("queue.*")]),
        rule("small", |rule| rule.at_most = 4096),
        rule("shared", |rule| {
            rule.kinds = vec![ObjectKind::Shared];
            rule.is_general = true;
        }),
    ];
    let expected = expected(&[("pool", 50), ("shared", 12), ("small", 4), ("queues", 2)]);
    assert_eq!(names(&profile, &rules), expected);
    let found = found(&profile, &rules);
    assert!(are_worth_listing(&found) && !are_worth_listing(&found[1..2]));
    let pool = &found[0];
    assert_eq!(
        (pool.objects, pool.processes, pool.threads, pool.pages),
        (1, 2, 2, 1)
    );
    assert_eq!(pool.switch.as_deref(), Some("--pool"));
    // Its page is at thread 0's node; a fifth of its accesses are thread 1's, which is at the other.
    assert_eq!(pool.remote_share, Some(0.2));
    assert!((pool.share - 50.0 / 68.0).abs() < 1e-9);
}

#[test]
fn options_state_sizes_and_the_program_is_known_by_its_name_too() {
    let heap = 256 << 20;
    let profile = profile(
        // The first is longer than any memory.
        &[
            "/usr/bin/java",
            "-Xmx18446744073709551615",
            "-Xmx256m",
            "Main",
        ],
        &[
            (ObjectKind::Mapping, "[anon]", heap + (2 << 20), 0, [9, 0]),
            (ObjectKind::Mapping, "[anon]", heap + (20 << 20), 0, [4, 0]),
            (ObjectKind::Mapping, "[anon]", heap - 4096, 0, [2, 0]),
        ],
    );
    let rules = [rule("heap", |rule| {
        rule.loaded = vec![Pattern::new("java")];
        rule.options = vec!["-Xmx".to_owned()];
    })];
    assert_eq!(
        names(&profile, &rules),
        expected(&[("heap", 9), ("(no object)", 6)])
    );
}

#[test]
fn parts_have_segments_of_their_own() {
    let mut before = profile(&["a"], &[(ObjectKind::Mapping, "[anon]", 8192, 0, [9, 0])]);
    before = before
        .changed(|tables| {
            tables.objects[0].variables.push(Variable {
                name: "malloc in npy_alloc_cache < main".to_owned(),
                offset: 0,
                size: 4096,
                source: None,
            });
        })
        .unwrap();
    let rules = [
        rule("others", |rule| rule.kinds = vec![ObjectKind::Mapping]),
        rule("arrays", |rule| {
            rule.parts = vec![Pattern::new("* in npy_alloc*")]
        }),
    ];
    assert_eq!(names(&before, &rules), expected(&[("arrays", 9)]));
    assert_eq!(names(&before, &rules[..1]), expected(&[("others", 9)]));
    // What has parts keeps them.
    let mut after = before.clone();
    name_memory(&mut after, &rules);
    assert_eq!(after.objects(), before.objects());
}

#[test]
fn an_object_keeps_its_identity_and_is_shown_by_its_segment() {
    let rows = [
        (ObjectKind::Shared, "[anon]", 1 << 20, 0, [9, 0]),
        (ObjectKind::Mapping, "[anon]", 1 << 20, 0, [1, 0]),
    ];
    let before = profile(&["a"], &rows);
    let rules = [
        rule("pool", |rule| rule.kinds = vec![ObjectKind::Shared]),
        rule("others", |rule| rule.is_general = true),
    ];
    let mut after = before.clone();
    name_memory(&mut after, &rules);
    let [pool, other] = after.objects() else {
        panic!("{:?}", after.objects())
    };
    let identity = |object: &Object| {
        let Object {
            kind,
            name,
            size,
            order,
            thread,
            ..
        } = object.clone();
        (kind, name, size, order, thread)
    };
    assert_eq!(identity(pool), identity(&before.objects()[0]));
    assert_eq!(crate::objects::content_label(pool), "pool");
    assert_eq!(other, &before.objects()[1]);
    assert_eq!(names(&after, &rules), names(&before, &rules));
}
