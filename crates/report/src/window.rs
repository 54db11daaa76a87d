//! What readers are shown of a recording of a program that ran already.

use numaloc_model::number;
use numaloc_model::profile::{Meta, Resident, Segment, Window};
use serde_json::{Value, json};

/// Most pieces of memory that are listed.
const SEGMENTS: usize = 6;

/// How much of the accesses was observed, if not all.
#[must_use]
pub fn sampled_words(meta: &Meta) -> Option<String> {
    match &meta.window {
        Some(window) if !window.source.shows_amounts() => {
            Some("sampled: uses of pages, not accesses".to_owned())
        }
        _ if meta.sampled < 1.0 => Some(format!(
            "{} of the accesses sampled",
            number::percent(meta.sampled)
        )),
        _ => None,
    }
}

/// What was looked at, by what, and where its memory was: a sentence each.
pub fn lines(window: &Window) -> Vec<String> {
    let mut lines = vec![
        format!(
            "window of {} s on what ran already: {}, {}",
            number::fixed(window.seconds, 1),
            window.of,
            processes(window.processes)
        ),
        format!("source: {}", window.source.answers()),
    ];
    if !window.resident.is_empty() {
        lines.push(format!("memory by node: {}", by_node(&window.resident)));
    }
    let largest = window.segments.iter().take(SEGMENTS);
    lines.extend(largest.map(|segment| format!("  {}", of_segment(segment))));
    lines
}

/// By what a window was seen, and what that does not show, in a few words.
pub fn seen(window: &Window) -> String {
    let source = window.source;
    let (name, _) = source
        .answers()
        .split_once(':')
        .unwrap_or((source.answers(), ""));
    let lacks = [
        (source.shows_threads(), "which thread"),
        (source.shows_amounts(), "how often"),
        (source.shows_reads(), "reads"),
    ];
    let lacks = lacks.iter().filter(|(shows, _)| !shows);
    let lacks: Vec<&str> = lacks.map(|(_, what)| *what).collect();
    let lacks = match lacks.is_empty() {
        true => String::new(),
        false => format!(", which does not show {}", lacks.join(", ")),
    };
    format!(
        "{} s of what ran, by {name}{lacks}",
        number::fixed(window.seconds, 1)
    )
}

fn processes(count: u32) -> String {
    match count {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    }
}

fn of_segment(segment: &Segment) -> String {
    let shared = if segment.is_shared { "shared, " } else { "" };
    format!(
        "{} ({shared}{}): {}",
        segment.name,
        processes(segment.processes),
        by_node(&segment.resident)
    )
}

/// The window as an object.
#[must_use]
pub fn json(window: &Window) -> Value {
    let nodes = |resident: &Resident| {
        let nodes = resident.iter();
        nodes
            .map(|(node, bytes)| json!({"node": node, "bytes": bytes}))
            .collect::<Vec<_>>()
    };
    let segments = window.segments.iter().map(|segment| {
        json!({
            "name": segment.name,
            "shared": segment.is_shared,
            "processes": segment.processes,
            "nodes": nodes(&segment.resident),
        })
    });
    json!({
        "of": window.of,
        "source": window.source.name(),
        "answers": window.source.answers(),
        "shows_threads": window.source.shows_threads(),
        "shows_amounts": window.source.shows_amounts(),
        "shows_reads": window.source.shows_reads(),
        "seconds": window.seconds,
        "processes": window.processes,
        "nodes": nodes(&window.resident),
        "segments": segments.collect::<Vec<_>>(),
    })
}

/// Bytes by node: `node 0: 1.5 GiB, node 1: 20 MiB`.
fn by_node(resident: &Resident) -> String {
    let nodes = resident
        .iter()
        .map(|(node, bytes)| format!("node {node}: {}", number::bytes(*bytes as f64)));
    nodes.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::profile::{Clock, WindowSource};

    #[test]
    fn a_window_names_its_source_and_where_memory_is() {
        let window = Window {
            of: "process 7".to_owned(),
            source: WindowSource::Scan,
            seconds: 2.5,
            processes: 3,
            resident: vec![(0, 1 << 20), (1, 512)],
            segments: vec![Segment {
                name: "[heap]".to_owned(),
                is_shared: false,
                processes: 1,
                resident: vec![(0, 1 << 20)],
            }],
        };
        let lines = lines(&window);
        assert_eq!(
            lines[0],
            "window of 2.5 s on what ran already: process 7, 3 processes"
        );
        assert!(lines[1].contains("not which thread"), "{lines:?}");
        assert_eq!(
            seen(&window),
            "2.5 s of what ran, by page scanning, which does not show which thread, how often"
        );
        assert_eq!(lines[2], "memory by node: node 0: 1.00 MiB, node 1: 512 B");
        assert_eq!(lines[3], "  [heap] (1 process): node 0: 1.00 MiB");
        let mut meta = Meta::new("perf", Clock::Wall);
        assert_eq!(sampled_words(&meta), None);
        meta.window = Some(window);
        assert!(sampled_words(&meta).is_some());
    }
}
