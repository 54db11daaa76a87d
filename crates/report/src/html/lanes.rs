//! What each thread and each object did over time, for the page's timeline.

use std::collections::HashMap;

use numaloc_analysis::objects::object_label;
use numaloc_model::profile::{Amount, Profile};
use serde_json::{Value, json};

use super::{Report, encode};

/// Maximum number of cells of one timeline.
const CELLS: usize = 1 << 16;
/// Maximum number of threads; with more, neighbours share a lane.
const THREADS: usize = 256;
/// Maximum number of objects: those with the most accesses.
const OBJECTS: usize = 48;

/// Amounts by lane and by column of neighbouring slices.
struct Lanes {
    name: &'static str,
    unit: &'static str,
    labels: Vec<String>,
    /// Slices of a column.
    per: usize,
    columns: usize,
    cells: Vec<f64>,
}

impl Lanes {
    fn new(name: &'static str, unit: &'static str, labels: Vec<String>, slices: usize) -> Self {
        let most = (CELLS / labels.len().max(1)).max(1);
        let per = slices.div_ceil(most).max(1);
        let columns = slices.div_ceil(per);
        Self {
            name,
            unit,
            per,
            columns,
            cells: vec![0.0; labels.len() * columns],
            labels,
        }
    }

    fn add(&mut self, lane: usize, slice: usize, amount: u64) {
        self.cells[lane * self.columns + slice / self.per] += amount as f64;
    }

    /// `None` if nothing happened.
    fn coded(self) -> Option<Value> {
        self.cells.iter().any(|&cell| cell > 0.0).then(|| {
            json!({
                "name": self.name,
                "unit": self.unit,
                "labels": self.labels,
                "per": self.per,
                "columns": self.columns,
                "cells": encode::cells(&self.cells),
            })
        })
    }
}

/// The timelines, and the run's slices.
pub(super) fn of(report: &Report<'_>) -> Value {
    let profile = report.profile;
    let slices = profile.slices();
    let (Some(first), Some(last)) = (slices.first(), slices.last()) else {
        return Value::Null;
    };
    let lanes: Vec<Value> = [accesses(profile), communication(report), objects(report)]
        .into_iter()
        .flatten()
        .collect();
    json!({
        "slices": slices.len(),
        "from": first.start,
        "to": last.end,
        "clock": profile.meta().clock.unit(),
        "lanes": lanes,
    })
}

/// Names of the threads' lanes.
fn threads(profile: &Profile) -> Vec<String> {
    let threads = profile.threads();
    let lanes = threads.len().min(THREADS);
    if lanes == threads.len() {
        return threads
            .iter()
            .enumerate()
            .map(|(at, thread)| match thread.shown() {
                Some(label) => format!("thread {at} ({} {label})", thread.path),
                None => format!("thread {at} ({})", thread.path),
            })
            .collect();
    }
    (0..lanes)
        .map(|lane| {
            let start = |lane: usize| (lane * threads.len()).div_ceil(lanes);
            format!("threads {} to {}", start(lane), start(lane + 1) - 1)
        })
        .collect()
}

fn accesses(profile: &Profile) -> Option<Value> {
    let labels = threads(profile);
    let (lanes, all) = (labels.len(), profile.threads().len());
    let mut found = Lanes::new(
        "accesses by thread",
        "accesses",
        labels,
        profile.slices().len(),
    );
    for row in profile.accesses_by_slice() {
        let lane = row.thread.index() * lanes / all;
        found.add(lane, row.slice.index(), row.accesses);
    }
    found.coded()
}

/// What each thread wrote for others and read from others.
fn communication(report: &Report<'_>) -> Option<Value> {
    let (profile, layer) = (report.profile, report.found.layer);
    let labels = threads(profile);
    let (lanes, all) = (labels.len(), profile.threads().len());
    let amount = Amount::of_layer(layer);
    let unit = match amount {
        Amount::Bytes => "bytes",
        Amount::Events => "events",
    };
    let slices = profile.slices().len();
    let mut found = Lanes::new("communication by thread", unit, labels, slices);
    for row in profile.communication().iter().filter(|r| r.layer == layer) {
        for thread in [row.src, row.dst] {
            let lane = thread.index() * lanes / all;
            found.add(lane, row.slice.index(), amount.of(row));
        }
    }
    found.coded()
}

fn objects(report: &Report<'_>) -> Option<Value> {
    let profile = report.profile;
    let mut sums: HashMap<Option<usize>, u64> = HashMap::new();
    for used in &report.found.objects {
        *sums.entry(used.object.map(|o| o.index())).or_default() += used.accesses();
    }
    let mut largest: Vec<(Option<usize>, u64)> = sums.into_iter().collect();
    largest.sort_by_key(|&(object, sum)| (std::cmp::Reverse(sum), object));
    largest.truncate(OBJECTS);
    let labels = largest
        .iter()
        .map(|&(object, _)| {
            object.map_or_else(
                || "(no object)".to_owned(),
                |at| object_label(&profile.objects()[at]),
            )
        })
        .collect();
    let lane_of: HashMap<Option<usize>, usize> = largest
        .iter()
        .enumerate()
        .map(|(lane, &(object, _))| (object, lane))
        .collect();
    let slices = profile.slices().len();
    let mut found = Lanes::new("accesses by object", "accesses", labels, slices);
    let pages = profile.pages().pages();
    for row in profile.page_slices() {
        let object = pages[row.page as usize].object.map(|o| o.index());
        if let Some(&lane) = lane_of.get(&object) {
            found.add(lane, row.slice.index(), row.accesses);
        }
    }
    found.coded()
}

/// The card with the timeline; the script draws it.
pub(super) fn card(out: &mut String, report: &Report<'_>) {
    if report.profile.slices().len() < 2 {
        return;
    }
    *out += "<div class=\"card lanes\" id=\"lanes\" hidden><h3>Threads and objects over time</h3>\
             <p class=\"hint\">Each lane is a thread or an object, time goes to the right. <kbd>+</kbd> <kbd>&minus;</kbd>, or \
             the wheel once the timeline has the focus: zoom &nbsp; drag: move &nbsp; <kbd>0</kbd> or double click: everything</p>\
             <div class=\"tools\"><label>Show <select id=\"lane-kind\"></select></label>\
             <span class=\"found\" id=\"lane-cell\" aria-live=\"polite\"></span></div>\
             <canvas id=\"lane-canvas\" tabindex=\"0\" role=\"application\" aria-label=\"Activity over time. Arrow keys move \
             the cursor, plus and minus zoom, 0 shows everything.\"></canvas></div>\n";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_slices_share_a_column_when_there_are_many() {
        let mut lanes = Lanes::new(
            "accesses by thread",
            "accesses",
            vec![String::new(); 256],
            1000,
        );
        lanes.add(3, 996, 2);
        lanes.add(3, 999, 5);
        assert_eq!((lanes.per, lanes.columns), (4, 250));
        assert_eq!(lanes.cells[3 * 250 + 249], 7.0);
        assert_eq!(lanes.cells.iter().sum::<f64>(), 7.0);
    }

    #[test]
    fn lanes_in_which_nothing_happened_are_left_out() {
        let lanes = Lanes::new("accesses by object", "accesses", Vec::new(), 10);
        assert!(lanes.coded().is_none());
    }
}
