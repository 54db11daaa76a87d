//! The JSON object of `numaloc show`: a profile and its characterisation, field by field as `docs/commands/show.md` has
//! them.

use std::ops::Range;

use numaloc_analysis::Characterisation;
use numaloc_analysis::remark::{Concern, Remark};
use numaloc_model::profile::Profile;
use numaloc_model::{CodePlace, SliceIdx};
use serde_json::{Map, Value, json};

use crate::metrics;
use crate::mpi;
use crate::next::Step;
use crate::repeatability;
use crate::window;

/// What the object shows.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    /// The profile.
    pub profile: &'a Profile,
    /// Its characterisation.
    pub found: &'a Characterisation,
    /// What was assumed, in words.
    pub assumed: &'a str,
    /// Commands that follow from the verdict.
    pub next: &'a [Step],
}

/// A field of the object: its name, and its value.
type Field = (&'static str, fn(&Shown) -> Value);

/// The fields of the object, in the order of the documentation.
pub const FIELDS: &[Field] = &[
    ("version", |_| json!(1)),
    ("command", |s| json!(s.profile.meta().command)),
    ("frontend", |s| json!(s.profile.meta().frontend)),
    ("complete", |s| json!(s.profile.meta().complete)),
    ("sampled_share", |s| json!(s.profile.meta().sampled)),
    ("notes", |s| json!(s.profile.meta().notes)),
    ("dram_source", |s| json!(s.profile.meta().dram_source)),
    ("window", |s| {
        json!(s.profile.meta().window.as_ref().map(window::json))
    }),
    ("environment", |s| environment(s.profile)),
    ("repeatability", |s| repeatability(s.profile)),
    ("clock", |s| json!(s.profile.meta().clock.name())),
    ("time_unit", |s| json!(s.profile.meta().clock.unit())),
    ("slices", |s| json!(s.profile.slices().len())),
    ("line_size_bytes", |s| json!(s.profile.meta().line_size)),
    ("page_size_bytes", |s| json!(s.profile.pages().page_size())),
    ("layer", |s| json!(s.found.layer.name())),
    ("layers", |s| {
        list(s.profile.layers(), |layer| json!(layer.name()))
    }),
    ("nodes", |s| json!(s.found.assignment.nodes)),
    ("assumed", |s| json!(s.assumed)),
    ("metrics", |s| metrics(s.found).0),
    ("units", |s| metrics(s.found).1),
    ("problems", problems),
    ("plan", plan),
    ("memory", |s| list(&s.found.memory, remark)),
    ("verdicts", verdicts),
    ("ways", ways),
    ("private_cache_bytes", |s| {
        json!(s.found.private_cache_bytes)
    }),
    ("accesses_beyond_private_caches", |s| {
        json!(s.found.beyond.total())
    }),
    ("next", |s| list(s.next, |step| json!(step.command))),
    ("clusters", clusters),
    ("cluster_of_slice", cluster_of_slice),
    ("phases", |s| {
        list(&s.found.phases, |slices| phase(s.profile, slices))
    }),
    ("pattern_phases", |s| {
        list(&s.found.pattern_phases, |slices| phase(s.profile, slices))
    }),
    ("node_pages", |s| json!(s.found.pages.node_pages)),
    ("node_accesses", |s| json!(s.found.pages.node_accesses)),
    ("exclusivity_by_page_size", exclusivity_by_page_size),
    ("sharing", sharing),
    ("shared_lines", shared_lines),
    ("code_communication", code_communication),
    ("code_accesses", code_accesses),
    ("mpi_time", |s| mpi::json(s.profile)),
    ("objects", objects),
    ("roles", roles),
    ("segments", segments),
    ("threads", threads),
    ("cell_errors", cell_errors),
];

/// The whole object.
#[must_use]
pub fn object(shown: &Shown) -> Value {
    let fields = FIELDS.iter();
    let fields = fields.map(|(name, value)| ((*name).to_owned(), value(shown)));
    Value::Object(fields.collect::<Map<String, Value>>())
}

/// Name -> value (null where not observed) and name -> unit of every metric.
#[must_use]
pub fn metrics(found: &Characterisation) -> (Value, Value) {
    let (mut values, mut units) = (Map::new(), Map::new());
    for metric in metrics::sections(found).into_iter().flat_map(|s| s.metrics) {
        values.insert(metric.key.to_owned(), json!(metric.value));
        units.insert(metric.key.to_owned(), json!(metric.unit.name()));
    }
    (values.into(), units.into())
}

/// The variables that shaped the recording, by name.
#[must_use]
pub fn environment(profile: &Profile) -> Value {
    let known = profile.meta().conditions.environment.iter();
    let known = known.map(|(name, value)| (name.clone(), json!(value)));
    Value::Object(known.collect())
}

/// Whether a thread plan is valid for another run, why, and what to do if not.
#[must_use]
pub fn repeatability(profile: &Profile) -> Value {
    let conditions = &profile.meta().conditions;
    let found = conditions.repeatability(profile.threads().len());
    json!({
        "known": found.name(),
        "thread_plan_holds": found.holds(),
        "work_sharing": list(conditions.open(), |(kind, by)| json!({"kind": kind.name(), "by": by})),
        "runs": conditions.repeats.map(|r| r.runs),
        "least_correlation": conditions.repeats.and_then(|r| r.correlation),
        "same_threads": conditions.repeats.map(|r| r.same_threads),
        "reason": repeatability::sentence(profile),
        "advice": repeatability::advice(profile),
    })
}

fn list<T>(items: impl IntoIterator<Item = T>, item: impl FnMut(T) -> Value) -> Value {
    items.into_iter().map(item).collect()
}

fn problems(shown: &Shown) -> Value {
    list(&shown.found.problems, |problem| {
        json!({
            "measure": problem.measure.name(),
            "change": problem.change,
            "verdict": problem.likelihood.words(),
            "problem": problem.what,
            "place": problem.place,
            "remedy": problem.remedy,
            "saves": problem.saves.map(|saves| json!({
                "as_it_is_s": saves.as_it_is,
                "saved_s": saves.seconds,
                "least_s": saves.least,
                "most_s": saves.most,
            })),
            "gain": problem.gain,
            "basis": problem.basis,
        })
    })
}

/// A remark about memory.
#[must_use]
pub fn remark(remark: &Remark) -> Value {
    let (node, weights, bytes) = match &remark.concern {
        Concern::FillsUp { node, bytes, .. } => (Some(node.0), None, Some(*bytes)),
        Concern::Saturated { node, weights } => (Some(node.0), Some(weights), None),
        Concern::Copies { bytes } => (None, None, Some(*bytes)),
    };
    json!({
        "kind": remark.concern.name(),
        "node": node,
        "object": remark.subject.as_ref().map(|subject| &subject.label),
        "weights": weights,
        "bytes": bytes,
        "as_it_is_s": remark.gain.map(|gain| gain.as_it_is),
        "with_s": remark.gain.map(|gain| gain.with),
        "error": remark.gain.map(|gain| gain.error),
        "text": remark.text(),
    })
}

/// The plan of least time, whether it is worth recommending or not.
fn plan(shown: &Shown) -> Value {
    let plan = shown.found.plan.as_ref();
    json!(plan.map(|plan| json!({
        "threads": plan.threads,
        "pages": plan.pages,
        "as_it_is_s": plan.as_it_is,
        "with_plan_s": plan.with_plan,
        "error": plan.error,
        "recommended": plan.saves(),
    })))
}

fn verdicts(shown: &Shown) -> Value {
    list(&shown.found.verdicts, |v| {
        json!({
            "measure": v.measure.name(),
            "verdict": v.likelihood.words(),
            "reason": v.sentence(),
            "action": v.action,
            "policy": v.recommended.as_ref().and_then(|way| way.policy()),
        })
    })
}

fn ways(shown: &Shown) -> Value {
    list(&shown.found.outlooks, |outlook| {
        json!({
            "way": outlook.way.name(),
            "policy": outlook.way.policy(),
            "remote_communication": outlook.remote,
            "busiest_node": outlook.busiest,
            "busiest_memory": outlook.controller,
            "local_accesses": outlook.local,
            "access_balance": outlook.balance,
        })
    })
}

fn clusters(shown: &Shown) -> Value {
    let found = &shown.found.concurrency;
    list(
        found.clusters.iter().zip(&found.groups),
        |(cluster, group)| {
            json!({
                "first_slice": cluster.first.0,
                "last_slice": cluster.last.0,
                "start": cluster.start,
                "end": cluster.end,
                "events": cluster.events,
                "bytes": cluster.bytes,
                "pairs": group.pairs.len(),
            })
        },
    )
}

fn cluster_of_slice(shown: &Shown) -> Value {
    list(0..shown.profile.slices().len(), |slice| {
        let cluster = shown
            .found
            .concurrency
            .cluster_of(SliceIdx::from_index(slice));
        json!(cluster.map(|cluster| cluster.0))
    })
}

fn phase(profile: &Profile, slices: &Range<usize>) -> Value {
    json!({
        "first_slice": slices.start,
        "last_slice": slices.end.saturating_sub(1),
        "start": profile.slices()[slices.start].start,
    })
}

fn exclusivity_by_page_size(shown: &Shown) -> Value {
    list(&shown.found.exclusivity, |e| {
        json!({
            "page_size_bytes": e.page_size,
            "assigned": e.assigned,
            "most": e.most,
            "least": e.least,
            "inherent": e.inherent,
        })
    })
}

fn sharing(shown: &Shown) -> Value {
    list(&shown.found.sharing.memory, |m| {
        json!({
            "memory": m.label(shown.profile),
            "lines": m.lines,
            "events": m.events,
            "false_events": m.false_events,
        })
    })
}

fn shared_lines(shown: &Shown) -> Value {
    let profile = shown.profile;
    list(profile.shared_lines(), |l| {
        json!({
            "address": l.line.wrapping_mul(profile.meta().line_size),
            "object": l.object.map(|o| o.0),
            "object_name": l.object.map(|o| profile.object(o).name.as_str()),
            "object_offset_bytes": l.object_offset,
            "events": l.events,
            "false_events": l.false_events,
        })
    })
}

fn place(place: &CodePlace) -> Value {
    json!({ "function": place.function, "source": place.source })
}

fn code_communication(shown: &Shown) -> Value {
    list(&shown.found.sites.exchanges, |one| {
        json!({
            "write": place(&one.write),
            "read": place(&one.read),
            "object": one.memory.map(|memory| memory.object.0),
            "events": one.events,
            "samples": one.samples,
            "pairs": one.pairs,
            "most_writer": one.most.map(|pair| pair.0.0),
            "most_reader": one.most.map(|pair| pair.1.0),
        })
    })
}

fn code_accesses(shown: &Shown) -> Value {
    list(&shown.found.sites.accesses, |one| {
        json!({
            "place": place(&one.place),
            "stores": one.stores,
            "object": one.memory.map(|memory| memory.object.0),
            "accesses": one.accesses,
            "samples": one.samples,
            "to_pages_of_others": one.to_others,
            "most_thread": one.most.map(|pair| pair.0.0),
            "most_first_toucher": one.most.map(|pair| pair.1.0),
        })
    })
}

fn objects(shown: &Shown) -> Value {
    list(&shown.found.objects, |used| {
        let object = used.object(shown.profile);
        let variable = used.variable(shown.profile);
        json!({
            "kind": object.map(|o| o.kind.name()),
            "name": object.map(|o| &o.name),
            "size_bytes": object.map(|o| o.size),
            "variable": variable.map(|v| &v.name),
            "source": variable.map(|v| &v.source),
            "pages": used.pages,
            "reads": used.reads,
            "writes": used.writes,
            "threads": used.threads,
            "first_toucher": used.first_toucher.map(|(t, _)| t.0),
            "first_touch_share": used.first_touch_share(),
            "exclusivity": used.exclusivity,
            "local_share": used.local_share,
        })
    })
}

fn roles(shown: &Shown) -> Value {
    list(&shown.found.roles, |role| {
        json!({
            "name": role.group.name,
            "threads": list(&role.group.threads, |thread| json!(thread.0)),
            "processes": role.processes,
            "is_helper": role.is_helper,
            "accesses": role.accesses,
            "share": role.share,
            "remote_share": role.remote_share,
            "objects": list(&role.objects, |(name, accesses)| {
                json!({ "name": name, "accesses": accesses })
            }),
        })
    })
}

fn segments(shown: &Shown) -> Value {
    list(&shown.found.segments, |segment| {
        json!({
            "name": segment.name,
            "switch": segment.switch,
            "is_general": segment.is_general,
            "objects": segment.objects,
            "processes": segment.processes,
            "threads": segment.threads,
            "pages": segment.pages,
            "accesses": segment.accesses,
            "share": segment.share,
            "remote_share": segment.remote_share,
        })
    })
}

fn threads(shown: &Shown) -> Value {
    list(shown.profile.threads().iter().enumerate(), |(at, t)| {
        json!({
            "thread": at,
            "path": t.path,
            "label": t.role.label(),
            "name": t.name,
            "title": t.title,
            "rank": t.rank,
            "start": t.start,
            "end": t.end,
            "accesses": t.accesses,
            "read_bytes": t.read_bytes,
            "write_bytes": t.write_bytes,
            "dram_bytes": t.dram_bytes,
        })
    })
}

fn cell_errors(shown: &Shown) -> Value {
    list(shown.profile.cell_errors(), |e| {
        json!({
            "layer": e.layer.name(),
            "src": e.src.0,
            "dst": e.dst.0,
            "relative_error": e.relative_error,
        })
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_documentation_has_every_field_and_no_other() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands/show.md");
        let page = std::fs::read_to_string(path).expect("a page");
        let (_, text) = page.split_once("\n## --json\n").expect("a section");
        let rows = text.lines().skip_while(|line| !line.starts_with("| `"));
        let first = rows.take_while(|line| line.starts_with("| `"));
        let mut documented: Vec<&str> = first
            .flat_map(|line| line.split('|').nth(1).unwrap_or("").split(','))
            .map(|name| name.trim().trim_matches('`'))
            .collect();
        let mut fields: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
        documented.sort_unstable();
        fields.sort_unstable();
        assert_eq!(documented, fields, "the page, the fields");
    }
}
