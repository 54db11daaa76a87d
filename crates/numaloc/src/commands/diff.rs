//! `numaloc diff`: two profiles side by side.

use std::path::PathBuf;

use numaloc_analysis::Characterisation;
use numaloc_analysis::compare::{correlation, matched_threads, restricted};
use numaloc_model::{CommMatrix, Profile};
use numaloc_report::heatmap::{self, Style};
use numaloc_report::metrics::{self, Metric};
use numaloc_report::number;
use serde_json::json;

use crate::commands::show::{locale_is_utf8, metrics_json};
use crate::error::CliError;
use crate::setting::SettingArgs;
use crate::ui::Ui;

/// Compare two profiles: metrics, communication matrix, pages
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc diff before.numaloc after.numaloc
  numaloc diff run1.numaloc run2.numaloc --json | jq .matrix_correlation

Threads are matched by their stable path.")]
pub struct Args {
    /// The one profile
    a: PathBuf,
    /// The other profile
    b: PathBuf,
    #[command(flatten)]
    setting: SettingArgs,
    /// ASCII instead of block characters
    #[arg(long)]
    ascii: bool,
}

struct Sides {
    matched: usize,
    only_a: Vec<String>,
    only_b: Vec<String>,
    a: CommMatrix,
    b: CommMatrix,
    correlation: Option<f64>,
}

impl Args {
    /// Prints the comparison.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let a = SettingArgs::read(&self.a, true)?;
        let b = SettingArgs::read(&self.b, true)?;
        let (found_a, resolved) = self.setting.characterise(&a)?;
        let mut same_layer = self.setting.clone();
        same_layer.layer = Some(found_a.layer.name().to_owned());
        let (found_b, _) = same_layer.characterise(&b)?;
        let sides = sides(&a, &b, &found_a, &found_b);
        ui.result(
            || {
                let style = Style {
                    unicode: !self.ascii && locale_is_utf8(),
                    colour: true,
                };
                self.text(&found_a, &found_b, &sides, &resolved.assumed, style)
            },
            || {
                let (metrics_a, units) = metrics_json(&found_a);
                let (metrics_b, _) = metrics_json(&found_b);
                json!({
                    "version": 1,
                    "a": self.a, "b": self.b,
                    "layer": found_a.layer.name(),
                    "matched_threads": sides.matched,
                    "only_in_a": sides.only_a, "only_in_b": sides.only_b,
                    "matrix_correlation": sides.correlation,
                    "metrics_a": metrics_a, "metrics_b": metrics_b, "units": units,
                    "node_pages_a": found_a.pages.node_pages, "node_pages_b": found_b.pages.node_pages,
                    "node_accesses_a": found_a.pages.node_accesses,
                    "node_accesses_b": found_b.pages.node_accesses,
                })
            },
        );
        Ok(0)
    }

    fn text(
        &self,
        a: &Characterisation,
        b: &Characterisation,
        sides: &Sides,
        assumed: &str,
        style: Style,
    ) -> String {
        let mut out = format!(
            "a: {}\nb: {}\n{assumed}\n",
            self.a.display(),
            self.b.display()
        );
        out += &format!(
            "{} threads in both, {} only in a, {} only in b\n",
            sides.matched,
            sides.only_a.len(),
            sides.only_b.len()
        );
        out += &match sides.correlation {
            Some(r) => format!("matrices ({}) correlate at {r:.4}\n", a.layer.name()),
            None => "matrices cannot be correlated: one of them is empty or even\n".to_owned(),
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
                    change(x, y)
                );
            }
        }
        if sides.a.threads() > 0 {
            out += "\nCommunication: a left, b right (rows produce, columns consume)\n";
            out += &heatmap::side_by_side(&sides.a, &sides.b, style);
        }
        out
    }
}

fn change(a: &Metric, b: &Metric) -> String {
    match (a.value, b.value) {
        (Some(x), Some(y)) if x == y => "=".to_owned(),
        (Some(x), Some(y)) if a.unit == metrics::Unit::Share => {
            format!("{:+.1} pp", (y - x) * 100.0)
        }
        (Some(x), Some(y)) if x != 0.0 => {
            let ratio = y / x;
            if ratio >= 10.0 {
                format!("x{}", number::count(ratio.round()))
            } else {
                format!("{:+.1} %", (ratio - 1.0) * 100.0)
            }
        }
        (None, None) => String::new(),
        _ => "new".to_owned(),
    }
}

fn sides(
    a: &Profile,
    b: &Profile,
    found_a: &Characterisation,
    found_b: &Characterisation,
) -> Sides {
    let matched = matched_threads(a, b);
    let (in_a, in_b): (Vec<usize>, Vec<usize>) = matched.iter().copied().unzip();
    let only = |profile: &Profile, matched: &[usize]| {
        (0..profile.threads.len())
            .filter(|at| !matched.contains(at))
            .map(|at| profile.threads[at].path.clone())
            .collect()
    };
    let (matrix_a, matrix_b) = (
        restricted(&found_a.events, &in_a),
        restricted(&found_b.events, &in_b),
    );
    Sides {
        matched: matched.len(),
        only_a: only(a, &in_a),
        only_b: only(b, &in_b),
        correlation: correlation(&matrix_a, &matrix_b),
        a: matrix_a,
        b: matrix_b,
    }
}
