//! Verdict and metrics as Markdown, for pasting into an issue or a message.

use numaloc_analysis::Characterisation;
use numaloc_model::profile::Profile;

use crate::answer;
use crate::metrics;
use crate::next::Step;
use crate::number;
use crate::plan::PlanView;
use crate::repeatability;

/// The page as Markdown.
#[must_use]
pub fn page(
    title: &str,
    profile: &Profile,
    c: &Characterisation,
    assumed: &str,
    plans: &[PlanView],
    next: &[Step],
) -> String {
    let mut out = format!(
        "# {}\n\n`{}`\n\n",
        cell(title),
        cell(&profile.meta().command.join(" "))
    );
    out += &format!(
        "{}, {} ({} clock), recorded with {}{}. Pages: {}.\n\n",
        number::plural(profile.threads().len(), "thread"),
        number::plural(profile.slices().len(), "slice"),
        profile.meta().clock.name(),
        cell(&profile.meta().frontend),
        if profile.meta().complete {
            ""
        } else {
            ", **cut short**"
        },
        cell(assumed)
    );
    if let Some(source) = &profile.meta().dram_source {
        out += &format!("DRAM bytes from: {}.\n\n", cell(source));
    }
    for line in answer::lines(profile, c, assumed) {
        out += &format!("- **{}** {}\n", line.word, cell(&line.text));
    }
    for remark in &c.memory {
        out += &format!("- **Memory** {}\n", cell(&remark.text()));
    }
    out.push('\n');
    out += &verdicts(c);
    if let Some(sentence) = repeatability::sentence(profile) {
        out += &format!("\n{}.\n", cell(&sentence));
    }
    if let Some(advice) = repeatability::advice(profile) {
        out += &format!("\nTry: {}.\n", cell(&advice));
    }
    if !next.is_empty() {
        out += "\n```\n";
        for step in next {
            out += &step.command.replace(['\n', '\r'], " ");
            out.push('\n');
        }
        out += "```\n";
    }
    out += &measured(c);
    out += &planned(plans);
    out
}

/// The verdicts and, for a machine of several nodes, the figures that they compare.
fn verdicts(c: &Characterisation) -> String {
    let mut out = "| measure | verdict | why |\n|---|---|---|\n".to_owned();
    for v in &c.verdicts {
        out += &format!(
            "| {} | **{}** | {} |\n",
            v.measure.words(),
            v.likelihood.words(),
            cell(&v.sentence())
        );
    }
    if c.assignment.homes.len() > 1 {
        out += "\n| computed | communication between nodes | local accesses beyond private caches | access balance |\n|---|---|---|---|\n";
        for outlook in &c.outlooks {
            let share = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number::percent);
            out += &format!(
                "| {} | {} | {} | {} |\n",
                cell(&outlook.way.words()),
                number::percent(outlook.remote),
                share(outlook.local),
                outlook
                    .balance
                    .map_or_else(|| "-".to_owned(), |b| number::fixed(b, 2))
            );
        }
    }
    out
}

/// The metrics, a table for each section.
fn measured(c: &Characterisation) -> String {
    let mut out = String::new();
    for section in metrics::sections(c) {
        out += &format!(
            "\n| {} | value | meaning | source |\n|---|---|---|---|\n",
            section.title
        );
        for m in &section.metrics {
            out += &format!(
                "| {} {} | {} | {} | {} |\n",
                m.name.trim(),
                m.symbol,
                m.shown(),
                cell(m.meaning),
                m.source
            );
        }
    }
    out
}

/// The plans; empty without any.
fn planned(plans: &[PlanView]) -> String {
    if plans.is_empty() {
        return String::new();
    }
    let mut out =
        "\n| plan | policies | remote communication | local page accesses |\n|---|---|---|---|\n"
            .to_owned();
    for plan in plans {
        out += &format!(
            "| {} | {} | {} | {} |\n",
            cell(&plan.name),
            cell(&plan.policies),
            number::percent(plan.remote_share),
            plan.pages
                .local_share
                .map_or_else(|| "-".to_owned(), number::percent)
        );
    }
    out
}

/// Text that stays in its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}
