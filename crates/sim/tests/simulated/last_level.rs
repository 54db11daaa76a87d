//! Properties of last-level caches that machine files choose: what eviction does to the caches below, and replacement.

use crate::common::*;
use numaloc_model::trace::Action;
use numaloc_sim::machine::Replacement;
use numaloc_sim::{Machine, Outcome, Pages, Parameters};

/// The first thread uses lines that fit its private cache, the second reads twice as many as the last-level cache
/// holds, and the first uses its lines again.
fn used_before_and_after_a_scan(machine: &Machine, hot: u64, use_it: fn(u64) -> Action) -> Outcome {
    let mut events = vec![(0, Action::Create(1))];
    events.extend((0..hot).map(|line| (0, use_it(line))));
    events.push((0, Action::Release(1)));
    events.push((1, Action::Acquire(1)));
    events.extend((0..2 * LLC_LINES).map(|line| (1, Action::Read(LLC_LINES + line))));
    events.push((1, Action::Release(2)));
    events.push((0, Action::Acquire(2)));
    events.extend((0..hot).map(|line| (0, use_it(line))));
    let program = creator_and_created(&events);
    run(machine, &program, &[0, 1], &Pages::FirstTouch)
}

#[test]
fn an_inclusive_cache_takes_what_it_evicts_from_the_private_caches_below() {
    let hot = PRIVATE_LINES / 2;
    let mut one = machine(1, 2, 4);
    let read = |machine: &Machine| used_before_and_after_a_scan(machine, hot, Action::Read);
    let not = read(&one);
    assert_eq!(not.private_hits, hot, "the private cache has kept them");
    assert_eq!(not.llc_misses(), hot + 2 * LLC_LINES);
    one.parameters.inclusive = true;
    let inclusive = read(&one);
    assert_eq!(inclusive.private_hits, 0);
    assert_eq!(inclusive.llc_misses(), 2 * hot + 2 * LLC_LINES);
    assert!(inclusive.time > not.time);
}

#[test]
fn written_lines_leave_an_inclusive_cache_for_memory() {
    let hot = PRIVATE_LINES / 2;
    let mut one = machine(1, 2, 4);
    let written = |machine: &Machine| {
        used_before_and_after_a_scan(machine, hot, Action::Write).nodes[0].lines_written
    };
    assert_eq!(written(&one), 0, "they stay in the private cache");
    one.parameters.inclusive = true;
    assert_eq!(written(&one), hot, "once; the second time they stay");
}

#[test]
fn the_machines_file_chooses_inclusion_and_replacement_and_a_parameter_overrides_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    let made = |lines: &str, parameters: Parameters| {
        let text = format!(
            "name = \"mine\"\ndescription = \"test\"\nsynthetic = \"numa:1 l3:1(size=1MiB) core:2 pu:1\"\n[hardware]\n\
             clock_hz = 2e9\nline_bytes = 64\nmemory_latency_ns = 80\nmemory_bandwidth_bytes_per_s = 10e9\n{lines}\n\
             caches = [\n{}{}]\n",
            "{ level = 1, size_bytes = 32768, associativity = 8, latency_cycles = 4 },\n",
            "{ level = 3, size_bytes = 1048576, associativity = 16, latency_cycles = 40 },\n",
        );
        std::fs::write(&file, text).unwrap();
        let topology = numaloc_topology::resolve(file.to_str().unwrap())?;
        let found = Machine::new(&topology, parameters).unwrap().parameters;
        Ok::<_, numaloc_topology::TopologyError>((found.inclusive, found.llc_replacement))
    };
    let of = |lines: &str| made(lines, Parameters::default());
    assert_eq!(of("").unwrap(), (false, Some(Replacement::Lru)));
    let both = "llc_inclusive = true\nllc_replacement = \"rrip\"";
    assert_eq!(of(both).unwrap(), (true, Some(Replacement::Rrip)));
    let asked = Parameters {
        llc_replacement: Some(Replacement::Lru),
        ..Parameters::default()
    };
    let found = made(both, asked).unwrap();
    assert_eq!(found, (true, Some(Replacement::Lru)));
    let error = of("llc_replacement = \"random\"").unwrap_err().to_string();
    assert!(
        error.contains("llc_replacement") && error.contains("rrip"),
        "{error}"
    );
}
