//! Plans by role for other launchers: lines for `sh` that find the members of roles which run already by their names,
//! and what holds for a whole service.
//!
//! None of these launchers sees members that come later, so what is bound is what runs when the lines are executed.

use numaloc_model::LogicalNode;
use numaloc_model::roles::{RoleMemory, RolePlan, RolesPlan, Seats, SegmentPages};

use super::ranges;

/// Roles whose members a shell can find by name, with their number in the plan, and the names of the others that are
/// bound.
pub(super) fn named(plan: &RolesPlan) -> (Vec<(usize, &RolePlan)>, Vec<&str>) {
    let bound = plan.roles.iter().enumerate();
    let bound = bound.filter(|(_, role)| role.seats != Seats::Left);
    let (named, others): (Vec<_>, Vec<_>) = bound.partition(|(_, role)| role.key.called.is_some());
    let others = others.into_iter().map(|(_, role)| role.name.as_str());
    (named, others.collect())
}

/// What is lost whatever the launcher, as warnings.
pub(super) fn warnings(plan: &RolesPlan, target: &str) -> Vec<String> {
    let (named, others) = named(plan);
    let mut warnings = Vec::new();
    if !named.is_empty() {
        warnings.push(format!(
            "{target} binds the members that run when its lines are executed: those that come later need them again, \
             and have memory that they touched before where it is"
        ));
    }
    if !others.is_empty() {
        warnings.push(format!(
            "{target} finds members by name: roles without one are left out ({})",
            others.join(", ")
        ));
    }
    if plan.has_memory() {
        let segments = plan.segments.iter().map(|segment| segment.name.as_str());
        let segments: Vec<&str> = segments.collect();
        let what = match segments.is_empty() {
            true => " of roles".to_owned(),
            false => format!(" of {} and of roles", segments.join(", ")),
        };
        warnings.push(format!(
            "{target} cannot set the memory policy{what} in a server that runs; `numaloc run` does"
        ));
    }
    warnings
}

/// A command that prints the ids of a role's processes or threads, a line each.
pub(super) fn find(role: &RolePlan) -> String {
    let pattern = regular(role.key.called.as_deref().unwrap_or_default());
    match role.key.is_process {
        true => format!("pgrep -f -- {}", quoted(&format!("^{pattern}"))),
        false => format!(
            "grep -lxE -- {} /proc/[0-9]*/task/*/comm 2>/dev/null | cut -d/ -f5",
            quoted(&pattern)
        ),
    }
}

/// Lists of PUs that members get in turn.
pub(super) fn turns(plan: &RolesPlan, role: &RolePlan) -> Vec<(Vec<LogicalNode>, String)> {
    let list = |nodes: &[LogicalNode]| (nodes.to_vec(), ranges(&plan.pus(nodes)));
    match &role.seats {
        Seats::Left => Vec::new(),
        Seats::Any(nodes) => vec![list(nodes)],
        Seats::Each(nodes) => nodes.iter().map(|&node| list(&[node])).collect(),
    }
}

/// The memory policy of a whole service that comes nearest: interleaving if the first role's memory or a segment is
/// interleaved, with its nodes.
pub(super) fn whole(plan: &RolesPlan) -> Option<Vec<u32>> {
    let is_spread = |role: &RolePlan| role.memory == RoleMemory::Interleave;
    if plan.roles.first().is_some_and(is_spread) {
        let all: Vec<LogicalNode> = plan.nodes.iter().map(|node| node.node).collect();
        return Some(plan.os_nodes(&all));
    }
    plan.segments
        .iter()
        .find_map(|segment| match &segment.pages {
            SegmentPages::Interleave(nodes) => Some(plan.os_nodes(nodes)),
            SegmentPages::Prefer(_) => None,
        })
}

/// Names of the roles that are left to the kernel.
pub(super) fn left(plan: &RolesPlan) -> Vec<String> {
    let left = plan.roles.iter().filter(|role| role.seats == Seats::Left);
    left.map(|role| role.name.clone()).collect()
}

/// PUs of all roles, if all are bound.
pub(super) fn all_pus(plan: &RolesPlan) -> Option<Vec<u32>> {
    let mut nodes = Vec::new();
    for role in &plan.roles {
        if role.seats == Seats::Left {
            return None;
        }
        nodes.extend_from_slice(role.seats.nodes());
    }
    Some(plan.pus(&nodes))
}

/// What members are called as an extended regular expression: `N` stands for numbers, and the names of PostgreSQL's
/// connections for their titles.
fn regular(called: &str) -> String {
    if let Some(program) = called.strip_suffix(": client backend") {
        return format!(r"{}: .*(\[local\]|\([0-9]+\))", regular(program));
    }
    let characters: Vec<char> = called.chars().collect();
    let mut out = String::new();
    for (at, &character) in characters.iter().enumerate() {
        let is_letter = |at: Option<usize>| {
            let character = at.and_then(|at| characters.get(at));
            character.is_some_and(|character| character.is_alphabetic() && character.is_uppercase())
        };
        match character {
            // In a word of capital letters it is a letter.
            'N' if !is_letter(at.checked_sub(1)) && !is_letter(Some(at + 1)) => out += "[0-9]+",
            c if r".[]*^$()+?{}|\".contains(c) => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// A word for `sh`.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_regular_expressions_and_never_end_a_word_of_the_shell() {
        for (called, expected) in [
            ("io_thd_N", "io_thd_[0-9]+"),
            (
                "postgres: client backend",
                r"postgres: .*(\[local\]|\([0-9]+\))",
            ),
            ("GC Thread#N", "GC Thread#[0-9]+"),
            ("DNS N", "DNS [0-9]+"),
            ("a.b*", r"a\.b\*"),
        ] {
            assert_eq!(regular(called), expected);
        }
        assert_eq!(quoted("it's; rm -rf"), r"'it'\''s; rm -rf'");
    }
}
