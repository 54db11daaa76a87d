//! `numaloc diff`: compares two profiles.

use std::path::PathBuf;

use numaloc_analysis::Characterisation;
use numaloc_analysis::compare::{Comparison, ObjectPair, ObjectTotals};
use numaloc_model::number;
use numaloc_report::better::{self, Better};
use numaloc_report::heatmap::{self, Style};
use numaloc_report::html::{self, Compared};
use numaloc_report::metrics;
use numaloc_report::text::{cut_name, lines_of};
use serde_json::json;

use crate::commands::report::{base_name, written};
use crate::commands::show::locale_is_utf8;
use crate::error::CliError;
use crate::setting::SettingArgs;
use crate::ui::Ui;

/// Compare two profiles: which is better, what went and came, metrics, communication, pages
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc diff before.numaloc after.numaloc
  numaloc diff before.numaloc after.numaloc --machine skylake-4s
  numaloc diff run1.numaloc run2.numaloc --json | jq .better.judgement
  numaloc diff before.numaloc after.numaloc --report changes.html

Threads are matched by their stable path.")]
pub struct Args {
    /// First profile
    a: PathBuf,
    /// Second profile
    b: PathBuf,
    #[command(flatten)]
    setting: SettingArgs,
    /// Write the comparison as one HTML file instead; `-` is standard output
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Replace an existing report
    #[arg(long, requires = "report")]
    force: bool,
    /// Use ASCII instead of block characters
    #[arg(long)]
    ascii: bool,
}

/// Width of the tables, and of the sentences above them.
const WIDTH: usize = 80;
/// Maximum number of objects listed.
const LISTED: usize = 8;

impl Args {
    /// Prints the comparison.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let report = self.report.as_deref();
        let report = report.map(|path| ui.output(path, self.force)).transpose()?;
        let a = self.setting.open(&self.a)?;
        let b = self.setting.open(&self.b)?;
        let (found_a, resolved) = self.setting.characterise(&a)?;
        let mut same_layer = self.setting.clone();
        same_layer.layer = Some(found_a.layer.name().to_owned());
        let (found_b, _) = same_layer.characterise(&b)?;
        let sides = Comparison::of((&a, &found_a), (&b, &found_b));
        let better = better::of(&found_a, &found_b);
        if let Some(output) = report {
            let (name_a, name_b) = (base_name(&self.a), base_name(&self.b));
            let compared = |name, profile, found| Compared {
                name,
                profile,
                found,
            };
            let page = html::comparison(
                compared(&name_a, &a, &found_a),
                compared(&name_b, &b, &found_b),
                &sides,
                &better,
                &resolved.assumed,
                &written(),
            );
            output.write(page.as_bytes())?;
            ui.written(
                &output,
                || format!("{}\n", output.path().display()),
                || json!({"version": 1, "report": output.path(), "size_bytes": page.len()}),
            );
            return Ok(0);
        }
        ui.result(
            || {
                let style = Style {
                    unicode: !self.ascii && locale_is_utf8(),
                    colour: true,
                };
                let head = self.head(&better, &resolved.assumed, style, ui.columns());
                head + &self.text(&found_a, &found_b, &sides, style, ui.columns())
            },
            || {
                let (metrics_a, units) = numaloc_report::json::metrics(&found_a);
                let (metrics_b, _) = numaloc_report::json::metrics(&found_b);
                json!({
                    "version": 1,
                    "a": self.a, "b": self.b,
                    "better": better.json(),
                    "layer": found_a.layer.name(),
                    "matched_threads": sides.matched,
                    "only_in_a": sides.only_a, "only_in_b": sides.only_b,
                    "matrix_correlation": sides.correlation,
                    "metrics_a": metrics_a, "metrics_b": metrics_b, "units": units,
                    "node_pages_a": found_a.pages.node_pages, "node_pages_b": found_b.pages.node_pages,
                    "node_accesses_a": found_a.pages.node_accesses,
                    "node_accesses_b": found_b.pages.node_accesses,
                    "objects": sides.objects.iter().map(|side| json!({
                        "object": side.label, "a": side.a.map(use_json), "b": side.b.map(use_json),
                    })).collect::<Vec<_>>(),
                })
            },
        );
        Ok(0)
    }

    /// What is better, and the names of the runs.
    fn head(&self, better: &Better, assumed: &str, style: Style, columns: usize) -> String {
        let mut lines = vec![("Answer", better.headline("a", "b"))];
        lines.extend(better.problems());
        format!(
            "{}\na: {}\nb: {}\n{assumed}\n",
            lines_of(&lines, columns.min(WIDTH), style),
            self.a.display(),
            self.b.display()
        )
    }

    fn text(
        &self,
        a: &Characterisation,
        b: &Characterisation,
        sides: &Comparison,
        style: Style,
        columns: usize,
    ) -> String {
        let mut out = format!(
            "{} in both, {} only in a, {} only in b\n",
            number::plural(sides.matched, "thread"),
            sides.only_a.len(),
            sides.only_b.len()
        );
        out += &match sides.correlation {
            Some(r) => format!(
                "matrices ({}) correlate at {}\n",
                a.layer.name(),
                number::fixed(r, 4)
            ),
            None => "matrices cannot be correlated: one of them is empty or uniform\n".to_owned(),
        };
        for (section_a, section_b) in metrics::sections(a).into_iter().zip(metrics::sections(b)) {
            out += &format!(
                "\n{:<20} {:>14} {:>14} {:>12}\n",
                section_a.title, "a", "b", "change"
            );
            for (x, y) in section_a.metrics.iter().zip(&section_b.metrics) {
                out += &format!(
                    "  {:<18} {:>14} {:>14} {:>12}\n",
                    x.name,
                    x.shown(),
                    y.shown(),
                    metrics::change(x, y)
                );
            }
        }
        out += &nodes(a, b);
        out += &objects(&sides.objects, columns);
        if sides.a.threads() > 0 {
            out += "\nCommunication: a left, b right (rows produce, columns consume)\n";
            out += &heatmap::side_by_side(&sides.a, &sides.b, style);
        }
        out
    }
}

fn use_json(used: ObjectTotals) -> serde_json::Value {
    json!({"accesses": used.accesses, "pages": used.pages, "local_share": used.local_share})
}

/// Pages and accesses on every node, where either run has page use.
fn nodes(a: &Characterisation, b: &Characterisation) -> String {
    if a.pages.pages == 0 && b.pages.pages == 0 {
        return String::new();
    }
    let mut out = format!(
        "\n{:<20} {:>14} {:>14} {:>12} {:>12}\n",
        "By node, first touch", "pages a", "pages b", "accesses a", "accesses b"
    );
    for node in 0..a.pages.node_pages.len().min(16) {
        let at = |values: &[u64]| number::count(values.get(node).copied().unwrap_or(0) as f64);
        out += &format!(
            "  {:<18} {:>14} {:>14} {:>12} {:>12}\n",
            format!("node {node}"),
            at(&a.pages.node_pages),
            at(&b.pages.node_pages),
            at(&a.pages.node_accesses),
            at(&b.pages.node_accesses)
        );
    }
    if a.pages.node_pages.len() > 16 {
        out += &format!("  and {} more nodes\n", a.pages.node_pages.len() - 16);
    }
    out
}

fn objects(sides: &[ObjectPair], columns: usize) -> String {
    if sides.is_empty() {
        return String::new();
    }
    let mut out =
        "\nMemory by object\n  accesses a       b   pages a       b  local a      b  object\n"
            .to_owned();
    for side in sides.iter().take(LISTED) {
        let count = |u: Option<ObjectTotals>, value: fn(ObjectTotals) -> u64| {
            u.map_or_else(|| "-".to_owned(), |u| number::count(value(u) as f64))
        };
        let local = |u: Option<ObjectTotals>| {
            u.map_or_else(
                || "-".to_owned(),
                |u| number::fixed(u.local_share * 100.0, 0) + "%",
            )
        };
        out += &format!(
            "  {:>10} {:>7} {:>9} {:>7} {:>8} {:>6}  {}\n",
            count(side.a, |u| u.accesses),
            count(side.b, |u| u.accesses),
            count(side.a, |u| u.pages),
            count(side.b, |u| u.pages),
            local(side.a),
            local(side.b),
            cut_name(&side.label, columns.saturating_sub(56))
        );
    }
    if sides.len() > LISTED {
        out += &format!("  and {} more\n", sides.len() - LISTED);
    }
    out
}
