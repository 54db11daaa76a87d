//! Memory policies that the program has set.

use super::*;

#[test]
fn pages_that_the_program_has_interleaved_are_not_compared_with_first_touch() {
    // The first thread places all pages, each of which another thread uses.
    let uses: Vec<_> = (0..4)
        .flat_map(|t| {
            let mut uses = vec![0; 4];
            uses[t] = 5000;
            alike(100, 0, &uses)
        })
        .collect();
    let plain = usage_of(&uses);
    let verdict = of(
        &found(&profile(4, &[], plain.clone()), 4),
        Measure::PagePlacement,
    )
    .clone();
    assert_eq!(verdict.likelihood, Likelihood::Likely, "{}", verdict.reason);
    let mut spread = PageUsage::new(4096);
    for page in plain.pages() {
        let mut head = page.head();
        head.policy = "interleave:all".parse().ok();
        spread.push(head, plain.accesses(page).to_vec());
    }
    let found = found(&profile(4, &[], spread), 4);
    let verdict = of(&found, Measure::PagePlacement);
    assert_eq!(
        verdict.likelihood,
        Likelihood::Unlikely,
        "{}",
        verdict.reason
    );
    assert!(
        verdict.reason.contains("(interleave:all)"),
        "{}",
        verdict.reason
    );
    // Threads in order, pages alternately on all nodes: a quarter is local.
    let bound = found.outlooks.iter().find(|o| o.way == Way::Bound);
    let local = bound.and_then(|bound| bound.local).unwrap();
    assert!((local - 0.25).abs() < 0.01, "{local}");
}
