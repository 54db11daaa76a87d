//! `plan --by-role`: plans for programs whose threads and processes come and go.

use std::borrow::Cow;
use std::path::PathBuf;

use numaloc_analysis::verdict::time;
use numaloc_model::LogicalNode;
use numaloc_model::number::{self, plural};
use numaloc_model::plan::Plan;
use numaloc_model::roles::{RoleMemory, RolesPlan, Seats, SegmentPages};
use numaloc_plan::roles::{Asked, ByRole, ByRoleError, NotFound, by_role};
use numaloc_plan::{Scope, Subject};
use serde_json::{Value, json};

use super::{Args, export};
use crate::error::{CliError, did_you_mean};
use crate::setting::SettingArgs;
use crate::ui::Ui;

/// Roles and segments with a smaller share are not listed, unless they have a place.
const LISTED: f64 = 0.001;
/// Characters that the column of names has at least.
const LEAST: usize = 36;
/// Characters of a name that are shown.
const MOST: usize = 52;

/// Options of plans by role.
#[derive(clap::Args)]
pub(super) struct Roles {
    /// Plan by role: threads and processes that do the same, however many come and go, to nodes; named memory to
    /// policies. What the model of worth does not rate faster is left as it is
    #[arg(long, conflicts_with_all = ["threads", "pages", "choose", "dynamic", "page_size", "weights", "capacity"])]
    pub by_role: bool,
    /// With --by-role, where a role runs: `each` (every member on one node), `0-1` (on these nodes), `each:0-1` (on one
    /// of them), `left`; then `+interleave` or `+local` for its memory. Names as in the output, `*` for any characters
    #[arg(long, value_name = "ROLE=WHERE", requires = "by_role")]
    pub role: Vec<String>,
    /// With --by-role, where named memory is: `interleave`, `interleave:0-1`, a node, or `left`
    #[arg(long, value_name = "SEGMENT=PAGES", requires = "by_role")]
    pub segment: Vec<String>,
    /// With --by-role, rules that name memory, tried before the built-in ones: a .toml file, or a folder of them
    #[arg(long, value_name = "FILE", requires = "by_role")]
    pub segments: Vec<PathBuf>,
}

impl Roles {
    fn asked(&self) -> Result<Asked, CliError> {
        let mut asked = Asked::default();
        let refused = |option, text: &str, expected| {
            CliError::usage(format!("{option} {text:?} says nothing")).expected(expected)
        };
        for text in &self.role {
            asked
                .role(text)
                .map_err(|expected| refused("--role", text, expected))?;
        }
        for text in &self.segment {
            asked
                .segment(text)
                .map_err(|expected| refused("--segment", text, expected))?;
        }
        Ok(asked)
    }
}

impl Args {
    /// Plans by role, and writes the plan if asked to.
    pub(super) fn by_role(&self, ui: &Ui) -> Result<u8, CliError> {
        let asked = self.roles.asked()?;
        let output = self.output.as_deref();
        let output = output.map(|path| ui.output(path, self.force)).transpose()?;
        let machine = self.machine()?;
        let rules = SettingArgs {
            segments: self.roles.segments.clone(),
            ..SettingArgs::default()
        }
        .rules()?;
        // Titles and names come from the recorded program.
        let profile = SettingArgs::read(&self.profile, true)?;
        let scope = Scope {
            layer: self.layer,
            exclude_helpers: self.exclude_helpers,
        };
        let failed = |error| super::policies::failed(&self.profile, error);
        let subject = Subject::new(Cow::Owned(profile), &scope).map_err(failed)?;
        let found = by_role(&subject, &machine, &rules, &asked, &self.options());
        let found = found.map_err(|error| match error {
            ByRoleError::Plan(error) => failed(error),
            other => explain(&other),
        })?;
        if output.is_some() || self.export.is_some() {
            self.refuse_slower(&found, ui)?;
        }
        if let Some(output) = &output {
            output.write(numaloc_formats::plan::to_json(&found.plan).as_bytes())?;
        }
        if let Some(name) = &self.export {
            return export(&found.plan, name, ui);
        }
        let written = output
            .as_ref()
            .map(|output| output.path().display().to_string());
        if !output.is_some_and(|output| output.is_stdout()) {
            ui.result(
                || text(&found, written.as_deref()),
                || self::json(&found, written.as_deref()),
            );
        }
        Ok(0)
    }

    fn refuse_slower(&self, found: &ByRole, ui: &Ui) -> Result<(), CliError> {
        if !found.loses() {
            return Ok(());
        }
        let error = format!(
            "the plan is slower than no plan: {} as it is, {} with it, by the model of worth",
            time(found.as_it_is.seconds),
            time(found.planned.seconds),
        );
        if self.anyway || self.force {
            ui.remark(error);
            return Ok(());
        }
        Err(CliError::tool(error)
            .hint("without --role and --segment, plan takes the best; --anyway writes this one"))
    }
}

fn explain(error: &ByRoleError) -> CliError {
    let shown = CliError::usage(error);
    match error {
        ByRoleError::NotFound(NotFound::Name { name, known, .. }) => {
            let names = known.iter().map(String::as_str);
            let shown = shown.expected(format!("one of: {}", known.join(", ")));
            match did_you_mean(name, names) {
                Some(near) => shown.hint(near),
                None => shown,
            }
        }
        ByRoleError::NotFound(_) => shown,
        _ => CliError::tool(error).hint("plan without --by-role plans for threads and ranks"),
    }
}

/// Nodes as the kernel lists them.
fn list(nodes: &[LogicalNode]) -> String {
    let nodes: Vec<u32> = nodes.iter().map(|node| node.0).collect();
    numaloc_apply::tally::list_pus(&nodes)
}

fn seats(seats: &Seats) -> String {
    match seats {
        Seats::Left => "left as they are".to_owned(),
        Seats::Any(nodes) if nodes.len() == 1 => format!("on node {}", list(nodes)),
        Seats::Any(nodes) => format!("on nodes {}", list(nodes)),
        Seats::Each(nodes) => format!("each on one of nodes {}", list(nodes)),
    }
}

fn memory(memory: RoleMemory) -> &'static str {
    match memory {
        RoleMemory::Left => "-",
        RoleMemory::Local => "local",
        RoleMemory::Interleave => "interleaved",
    }
}

fn pages(pages: &SegmentPages) -> String {
    match pages {
        SegmentPages::Interleave(nodes) => format!("interleaved over nodes {}", list(nodes)),
        SegmentPages::Prefer(node) => format!("on node {}", node.0),
    }
}

/// Tables and lines about roles, memory and worth.
fn text(found: &ByRole, written: Option<&str>) -> String {
    let Plan { machine, roles, .. } = &found.plan;
    let percent = |share: f64| number::fixed(100.0 * share, 1) + " %";
    let named = found.roles.iter().map(|role| &role.name);
    let named = named.chain(found.segments.iter().map(|(segment, _)| &segment.name));
    let wide = named.map(|name| shown(name).chars().count()).max();
    let wide = wide.unwrap_or_default().max(LEAST);
    let mut out = format!(
        "machine: {machine}\n\nroles:\n  {:>7} {:>8}  {:<wide$} {:<26} memory\n",
        "members", "accesses", "role", "where"
    );
    let mut small = Vec::new();
    for (role, planned) in found.roles.iter().zip(&roles.roles) {
        let is_left = planned.seats == Seats::Left && planned.memory == RoleMemory::Left;
        if role.share < LISTED && is_left {
            small.push(role.name.as_str());
            continue;
        }
        out += &format!(
            "  {:>7} {:>8}  {:<wide$} {:<26} {}\n",
            planned.members,
            percent(role.share),
            shown(&role.name),
            seats(&planned.seats),
            memory(planned.memory)
        );
    }
    if !small.is_empty() {
        out += &format!("  and left as they are: {}\n", small.join(", "));
    }
    out += "\nmemory that threads share:\n";
    for (segment, at) in &found.segments {
        let place = match (at, segment.bytes) {
            (Some(at), _) => pages(&roles.segments[*at].pages),
            (None, _) if segment.share < LISTED => continue,
            (None, Some(_)) => "left as it is".to_owned(),
            (None, None) => "left as it is: other memory has its sizes".to_owned(),
        };
        out += &format!(
            "  {:>13} {:>8}  {:<wide$} {place}\n",
            plural(segment.pages as usize, "page"),
            percent(segment.share),
            shown(&segment.name)
        );
    }
    if found.segments.is_empty() {
        out += "  none that a policy reaches\n";
    }
    out += &worth(found);
    match written {
        Some(path) => out + &format!("\nwritten to {path}\n"),
        None => out,
    }
}

/// A name as the tables show it: a long one ends with `*`, as --role and --segment take it.
fn shown(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(MOST) {
        None => name.into(),
        Some((end, _)) => format!("{}*", &name[..end]).into(),
    }
}

fn worth(found: &ByRole) -> String {
    let (as_it_is, planned) = (&found.as_it_is, &found.planned);
    let error = planned.error_of_gain(as_it_is);
    let error = format!("+- {} %", number::fixed(100.0 * error, 0));
    let of = format!("of {} ways", found.rated);
    let before = time(as_it_is.seconds);
    if found.leaves_as_it_is() {
        return format!(
            "\nleft as it is: no way {of} is faster than {before} by more than the model's error ({error})\n"
        );
    }
    let what = if planned.saves(as_it_is) {
        "saves"
    } else if planned.loses_to(as_it_is) {
        "loses"
    } else {
        "no difference beyond the error:"
    };
    format!(
        "\nas it is {before}, with this plan {} {error}, for the recorded members; {what} {} ({} %), mostly {}\n",
        time(planned.seconds),
        time((as_it_is.seconds - planned.seconds).abs()),
        number::fixed(100.0 * as_it_is.saved_by(planned).abs(), 1),
        as_it_is.gain_by(planned)
    )
}

fn json(found: &ByRole, written: Option<&str>) -> Value {
    let RolesPlan {
        roles, segments, ..
    } = &found.plan.roles;
    let numbers = |nodes: &[LogicalNode]| nodes.iter().map(|node| node.0).collect::<Vec<_>>();
    let roles = found.roles.iter().zip(roles).map(|(role, planned)| {
        json!({
            "name": role.name,
            "members": planned.members,
            "share": role.share,
            "seats": match planned.seats {
                Seats::Left => "left",
                Seats::Any(_) => "any",
                Seats::Each(_) => "each",
            },
            "nodes": numbers(planned.seats.nodes()),
            "memory": RoleMemory::NAMES.iter().find(|(of, _)| *of == planned.memory).map(|(_, name)| name),
        })
    });
    let segments = found.segments.iter().map(|(segment, at)| {
        let planned = at.map(|at| &segments[at].pages);
        json!({
            "name": segment.name,
            "share": segment.share,
            "pages": segment.pages,
            "is_recognised": segment.bytes.is_some(),
            "policy": match planned {
                None => "left",
                Some(SegmentPages::Interleave(_)) => "interleave",
                Some(SegmentPages::Prefer(_)) => "prefer",
            },
            "nodes": planned.map_or_else(Vec::new, |pages| numbers(pages.nodes())),
        })
    });
    json!({
        "version": 1,
        "machine": found.plan.machine,
        "roles": roles.collect::<Vec<_>>(),
        "segments": segments.collect::<Vec<_>>(),
        "worth": {
            "as_it_is_s": found.as_it_is.seconds,
            "plan_s": found.planned.seconds,
            "error": found.planned.error_of_gain(&found.as_it_is),
            "left_as_it_is": found.leaves_as_it_is(),
            "loses": found.loses(),
            "rated": found.rated,
        },
        "written": written,
    })
}
