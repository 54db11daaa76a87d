//! What became of the roles and the named memory of a plan by role.

use numaloc_model::number;
use numaloc_model::outcome::{Outcome, RoleOutcome, SegmentOutcome};
use serde_json::{Value, json};

/// A line for each role with members and each segment.
pub(super) fn lines(outcome: &Outcome) -> Vec<String> {
    let is_there = |role: &&RoleOutcome| role.members > 0;
    let roles = outcome.roles.iter().filter(is_there).map(|role| {
        let RoleOutcome { name, members, .. } = role;
        if role.is_left {
            return format!("role {name}: {members} left as they are, as planned");
        }
        let mut line = format!(
            "role {name}: {} of {members} where planned, {} of them since their birth",
            role.placed, role.since_birth
        );
        for (count, what) in [
            (role.elsewhere, "set elsewhere"),
            (role.refused, "refused"),
            (members - role.by_name, "without a name of their own"),
        ] {
            if count > 0 {
                line += &format!(", {count} {what}");
            }
        }
        line
    });
    let segments = outcome.segments.iter().map(|segment| {
        let SegmentOutcome { name, mappings, .. } = segment;
        if *mappings == 0 {
            return format!("memory {name}: not found");
        }
        let mut line = format!(
            "memory {name}: {} in {} placed as planned",
            number::bytes(segment.bytes as f64),
            number::plural(*mappings as usize, "mapping")
        );
        for (errno, count) in &segment.refused {
            line += &format!(", {count} refused ({errno})");
        }
        line
    });
    roles.chain(segments).collect()
}

/// Roles as data.
pub(super) fn roles(outcome: &Outcome) -> Vec<Value> {
    let role = |role: &RoleOutcome| {
        json!({
            "name": role.name,
            "is_left": role.is_left,
            "members": role.members,
            "by_name": role.by_name,
            "placed": role.placed,
            "since_birth": role.since_birth,
            "elsewhere": role.elsewhere,
            "refused": role.refused,
        })
    };
    outcome.roles.iter().map(role).collect()
}

/// Named memory as data.
pub(super) fn segments(outcome: &Outcome) -> Vec<Value> {
    let segment = |segment: &SegmentOutcome| {
        let refused = segment.refused.iter();
        let refused = refused.map(|(errno, count)| (errno.clone(), json!(count)));
        json!({
            "name": segment.name,
            "mappings": segment.mappings,
            "bytes": segment.bytes,
            "refused": refused.collect::<serde_json::Map<_, _>>(),
        })
    };
    outcome.segments.iter().map(segment).collect()
}
