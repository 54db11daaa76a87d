//! The terminal page of `numaloc show`: the answer, on request the verdicts, then every figure. Lines have 80 columns,
//! or those of a narrower terminal; commands are never cut, and lines that name memory use the whole width.

mod mpi;
mod roles;
mod segments;

use numaloc_analysis::Characterisation;
use numaloc_analysis::sites::place_label;
use numaloc_analysis::verdict::Likelihood;
use numaloc_model::profile::Profile;

use crate::answer;
pub use crate::cut::cut_name;
use crate::cut::middle_cut;
use crate::heatmap::{self, Style};
use crate::html::sites::memory_name;
use crate::metrics;
use crate::next::{MACHINE, Step};
use crate::number;
use crate::repeatability;
use crate::window::{self, sampled_words};

const WIDTH: usize = 80;
/// Terminals narrower than this get lines of this length.
const NARROWEST: usize = 40;
/// Number of threads and objects listed before the rest is summed up.
const LISTED_OBJECTS: usize = 6;

/// Display options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// Maximum number of threads listed.
    pub threads: usize,
    /// Columns for lines that name memory; `usize::MAX` if nothing is to be cut.
    pub columns: usize,
}

impl Detail {
    /// Columns for all other lines.
    fn width(self) -> usize {
        self.columns.clamp(NARROWEST, WIDTH)
    }
}

/// How much of the page is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// The answer and the commands that follow.
    Answer,
    /// Also the verdicts with their reasons, and what each step gives.
    Why,
    /// Also the matrix, the metrics, and the tables of memory, code and threads.
    All,
}

/// What the page shows.
#[derive(Clone, Copy)]
pub struct Page<'a> {
    /// The profile.
    pub profile: &'a Profile,
    /// Its characterisation.
    pub found: &'a Characterisation,
    /// What was assumed, in words.
    pub assumed: &'a str,
    /// Commands that follow from the answer.
    pub next: &'a [Step],
}

/// The page as deep as asked.
#[must_use]
pub fn page(page: Page<'_>, depth: Depth, detail: Detail, style: Style) -> String {
    let width = detail.width();
    let mut out = the_answer(page, detail.columns, style);
    if depth == Depth::Answer {
        out += &roles::largest(page, detail, style);
        out += &mpi::longest(page, detail, style);
    }
    out += &next_steps(page.next, width, style);
    if depth == Depth::Answer {
        let hint = "--why: the reasons; --all: every figure; numaloc report: as a page";
        return out + &heading_less(hint, width, style);
    }
    out += &format!("\n{}", head(page.profile, width));
    out += &verdicts(page.found, width, style);
    out += &ways(page.found, width, style);
    out += &roles::all(page, detail, style);
    out += &segments::all(page, detail, style);
    out += &mpi::all(page, detail, style);
    if depth == Depth::All {
        out += &figures(page, detail, style);
    }
    out
}

/// The answer: a line each where the terminal has room.
#[must_use]
pub fn the_answer(page: Page<'_>, columns: usize, style: Style) -> String {
    let lines = answer::lines(page.profile, page.found, page.assumed);
    let lines: Vec<(&str, String)> = lines
        .into_iter()
        .map(|line| (line.word, line.text))
        .collect();
    let mut out = lines_of(&lines, columns, style);
    if let Some(others) = answer::others(page.found) {
        out += &wrapped_to(&format!("also: {others}"), 0, columns.max(NARROWEST));
    }
    for remark in &page.found.memory {
        let line = format!("memory: {}", remark.text());
        out += &wrapped_to(&line, 0, columns.max(NARROWEST));
    }
    out
}

/// Lines of a word and a sentence, the first in bold.
#[must_use]
pub fn lines_of(lines: &[(&str, String)], columns: usize, style: Style) -> String {
    const INDENT: usize = 9;
    let mut out = String::new();
    for (at, (word, text)) in lines.iter().enumerate() {
        let text = wrapped_to(text, INDENT, columns.max(NARROWEST));
        let text = text.get(INDENT..).unwrap_or_default();
        let text = match at {
            0 => paint(text.trim_end(), "1", style) + "\n",
            _ => text.to_owned(),
        };
        out += &format!("{word:<INDENT$}{text}");
    }
    out
}

/// A dim line after an empty one.
fn heading_less(text: &str, width: usize, style: Style) -> String {
    let lines = wrapped_to(text, 0, width);
    format!("\n{}\n", paint(lines.trim_end(), "2", style))
}

fn verdicts(c: &Characterisation, width: usize, style: Style) -> String {
    let mut out = heading("Verdict", width, style);
    for verdict in &c.verdicts {
        let words = verdict.likelihood.words();
        let colour = match verdict.likelihood {
            Likelihood::Likely => "32",
            Likelihood::Unlikely => "2",
            Likelihood::CannotTell => "33",
        };
        out += &format!(
            "  {:<24} {}\n",
            verdict.measure.words(),
            paint(words, colour, style)
        );
        if let Some(action) = &verdict.action {
            out += &paint(&wrapped_to(action, 4, width), "1", style);
        }
        out += &wrapped_to(&capital(&verdict.reason), 4, width);
    }
    out
}

/// The matrix, the metrics, and the tables.
fn figures(page: Page<'_>, detail: Detail, style: Style) -> String {
    let (profile, c, width) = (page.profile, page.found, detail.width());
    let mut out = heading(
        &format!(
            "Communication: {} (rows produce, columns consume)",
            c.layer.name()
        ),
        width,
        style,
    );
    if c.events.stored_cells() == 0 {
        out += "  none observed\n";
    } else {
        out += &heatmap::draw(c.weighed(), width - 8, style);
    }
    for section in metrics::sections(c) {
        let title = if section.title == "Pages" {
            format!("Pages: {}", page.assumed)
        } else {
            section.title.to_owned()
        };
        out += &heading(&title, width, style);
        for metric in &section.metrics {
            if metric.value.is_none() && metric.key == "page_migrations" {
                continue;
            }
            let line = format!(
                "  {:<19} {:>12}  {}",
                metric.name,
                metric.shown(),
                metric.meaning
            );
            out += &clipped(&line, width);
        }
    }
    out += &objects(profile, c, detail, style);
    out += &sharing(profile, c, detail, style);
    out += &code(profile, c, detail, style);
    out += &threads(profile, detail, style);
    out
}

fn head(profile: &Profile, width: usize) -> String {
    let meta = profile.meta();
    let accesses: u64 = profile.threads().iter().map(|t| t.accesses).sum();
    let mut out = clipped(&meta.command.join(" "), width);
    out += &wrapped_to(
        &format!(
            "{}, {} accesses, {} ({} clock), recorded with {}, {}{}",
            number::plural(profile.threads().len(), "thread"),
            number::count(accesses as f64),
            number::plural(profile.slices().len(), "slice"),
            meta.clock.name(),
            meta.frontend,
            if meta.complete {
                "complete"
            } else {
                "CUT SHORT"
            },
            sampled_words(meta).map_or_else(String::new, |words| format!(", {words}"))
        ),
        0,
        width,
    );
    for line in meta.window.iter().flat_map(window::lines) {
        out += &wrapped_to(&line, 0, width);
    }
    if let Some(source) = &meta.dram_source {
        out += &wrapped_to(&format!("DRAM bytes from: {source}"), 0, width);
    }
    if !meta.conditions.environment.is_empty() {
        let shown: Vec<String> = meta
            .conditions
            .environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        out += &wrapped_to(&format!("environment: {}", shown.join(" ")), 0, width);
    }
    if let Some(sentence) = repeatability::sentence(profile) {
        out += &wrapped_to(&sentence, 0, width);
    }
    if let Some(advice) = repeatability::advice(profile) {
        out += &wrapped_to(&format!("try: {advice}"), 0, width);
    }
    for note in &meta.notes {
        out += &wrapped_to(&format!("note: {note}"), 0, width);
    }
    out
}

/// What each step gives: binding, mapping, placement.
fn ways(c: &Characterisation, width: usize, style: Style) -> String {
    if c.assignment.homes.len() < 2 {
        return String::new();
    }
    let share = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number::percent);
    let plain = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| number::fixed(v, 2));
    let mut out = heading("What each step gives, computed", width, style);
    if width < WIDTH {
        for outlook in &c.outlooks {
            let busiest = outlook.busiest.map_or_else(String::new, |busiest| {
                format!(", busiest node {} x mean", number::fixed(busiest, 2))
            });
            let figures = format!(
                "communication between nodes {}, local accesses {}, access balance {}{busiest}",
                number::percent(outlook.remote),
                share(outlook.local),
                plain(outlook.balance),
            );
            out += &format!("  {}\n", outlook.way.words());
            out += &wrapped_to(&figures, 4, width);
        }
        return out + &ways_note(c, width);
    }
    out += &format!(
        "  {:<30} {:>13} {:>9} {:>9} {:>13}\n",
        "", "communication", "local", "access", "busiest node"
    );
    out += &format!(
        "  {:<30} {:>13} {:>9} {:>9} {:>13}\n",
        "", "between nodes", "accesses", "balance", "communicates"
    );
    for outlook in &c.outlooks {
        out += &format!(
            "  {:<30} {:>13} {:>9} {:>9} {:>13}\n",
            outlook.way.words(),
            number::percent(outlook.remote),
            share(outlook.local),
            plain(outlook.balance),
            outlook
                .busiest
                .map_or_else(|| "-".to_owned(), |b| number::fixed(b, 2) + " x mean")
        );
    }
    out + &ways_note(c, width)
}

/// What the figures of [`ways`] assume.
fn ways_note(c: &Characterisation, width: usize) -> String {
    wrapped_to(
        &format!(
            "threads not bound: if the kernel moves those that do not work alone to any of {} nodes; accesses are those beyond \
             private caches of {} KiB",
            c.assignment.homes.len(),
            c.private_cache_bytes >> 10
        ),
        2,
        width,
    )
}

/// Commands are never cut, because readers copy them.
fn next_steps(next: &[Step], width: usize, style: Style) -> String {
    if next.is_empty() {
        return String::new();
    }
    let mut out = heading("Run next", width, style);
    for step in next {
        out += &broken(&step.command, width);
    }
    if next.iter().any(|step| step.command.contains(MACHINE)) {
        let text = "MACHINE: what it will run on, a described machine (`numaloc machines`) or an hwloc file";
        out += &wrapped_to(text, 2, width);
    }
    out
}

/// Split at spaces outside single quotes.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut within = false;
    for c in command.chars() {
        within ^= c == '\'';
        if c == ' ' && !within {
            words.push(String::new());
        } else {
            words.last_mut().expect("starts with one").push(c);
        }
    }
    words
}

/// A command broken into lines of at most `width` columns where its words allow, with the shell's continuation mark.
fn broken(command: &str, width: usize) -> String {
    let mut out = String::new();
    let mut line = "  ".to_owned();
    for word in words(command) {
        if line.chars().count() + 1 + word.chars().count() > width - 2 && !line.trim().is_empty() {
            out += &format!("{line} \\\n");
            line = "     ".to_owned();
        }
        if !line.trim().is_empty() {
            line.push(' ');
        }
        line += &word;
    }
    out + &line + "\n"
}

fn objects(profile: &Profile, c: &Characterisation, detail: Detail, style: Style) -> String {
    if c.objects.is_empty() {
        return String::new();
    }
    let mut out = heading("Memory by object", detail.width(), style);
    let title = "  accesses    pages  threads  local  best  object (first touched by)";
    out += &clipped(title, detail.width());
    for use_ in c.objects.iter().take(LISTED_OBJECTS) {
        let kind = use_.object(profile).map_or("", |object| object.kind.name());
        let name = format!("{kind} {}", use_.label(profile)).trim().to_owned();
        let toucher = use_.first_toucher.map_or_else(String::new, |(thread, _)| {
            let share = number::whole_percent(use_.first_touch_share());
            format!(" ({thread} {share})")
        });
        let room = detail.columns.saturating_sub(43 + toucher.chars().count());
        let line = format!(
            "  {:>8} {:>8} {:>8} {:>5}% {:>4}%  {}{toucher}",
            number::count(use_.accesses() as f64),
            number::count(use_.pages as f64),
            use_.threads,
            number::fixed(use_.local_share * 100.0, 0),
            number::fixed(use_.exclusivity * 100.0, 0),
            cut_name(&name, room),
        );
        out += &fitted(line, detail);
    }
    if c.objects.len() > LISTED_OBJECTS {
        out += &format!("  and {} more\n", c.objects.len() - LISTED_OBJECTS);
    }
    out
}

fn sharing(profile: &Profile, c: &Characterisation, detail: Detail, style: Style) -> String {
    if c.sharing.memory.is_empty() {
        return String::new();
    }
    let mut out = heading("Cache lines shared, by memory", detail.width(), style);
    out += "    events    false    lines  where\n";
    for memory in c.sharing.memory.iter().take(LISTED_OBJECTS) {
        let line = format!(
            "  {:>8} {:>7}% {:>8}  {}",
            number::count(memory.events as f64),
            number::fixed(memory.false_share() * 100.0, 0),
            memory.lines,
            cut_name(&memory.label(profile), detail.columns.saturating_sub(30)),
        );
        out += &fitted(line, detail);
    }
    if c.sharing.memory.len() > LISTED_OBJECTS {
        out += &format!("  and {} more\n", c.sharing.memory.len() - LISTED_OBJECTS);
    }
    out
}

/// Which code communicates, and which accesses memory.
fn code(profile: &Profile, c: &Characterisation, detail: Detail, style: Style) -> String {
    let width = detail.width();
    let (exchanges, accesses) = (&c.sites.exchanges, &c.sites.accesses);
    let mut out = String::new();
    let name = |memory| memory_name(profile, memory);
    if !exchanges.is_empty() {
        out += &heading("Code that communicates (sampled)", width, style);
        out += &clipped("    events  written in -> read in, object", width);
        for one in exchanges.iter().take(LISTED_OBJECTS) {
            let line = format!(
                "  {:>8}  {} -> {}, {}",
                number::count(one.events as f64),
                place_label(&one.write),
                place_label(&one.read),
                name(one.memory),
            );
            out += &fitted(line, detail);
        }
        out += &more(exchanges.len());
    }
    if !accesses.is_empty() {
        let title = "Code that accesses memory (sampled; others: pages first touched by another)";
        out += &heading(title, width, style);
        out += &clipped("  accesses   others  code, object", width);
        for one in accesses.iter().take(LISTED_OBJECTS) {
            let line = format!(
                "  {:>8} {:>8}  {} in {}, {}",
                number::count(one.accesses as f64),
                number::count(one.to_others as f64),
                if one.stores { "store" } else { "load" },
                place_label(&one.place),
                name(one.memory),
            );
            out += &fitted(line, detail);
        }
        out += &more(accesses.len());
    }
    out
}

/// How many of `count` rows were left out.
fn more(count: usize) -> String {
    match count.saturating_sub(LISTED_OBJECTS) {
        0 => String::new(),
        rest => format!("  and {rest} more\n"),
    }
}

fn threads(profile: &Profile, detail: Detail, style: Style) -> String {
    let mut out = heading("Threads", detail.width(), style);
    let title = "  thread  path          accesses       read    written  name";
    out += &clipped(title, detail.width());
    for (at, thread) in profile.threads().iter().enumerate().take(detail.threads) {
        let line = format!(
            "  {:>6}  {:<12} {:>9} {:>10} {:>10}  {}",
            at,
            middle_cut(&thread.path, 12),
            number::count(thread.accesses as f64),
            number::bytes(thread.read_bytes as f64),
            number::bytes(thread.write_bytes as f64),
            thread.shown().unwrap_or_default()
        );
        out += clipped(&line, detail.width()).trim_end();
        out.push('\n');
    }
    if profile.threads().len() > detail.threads {
        out += &format!(
            "  and {} more (--threads lists all)\n",
            profile.threads().len() - detail.threads
        );
    }
    out
}

fn heading(title: &str, width: usize, style: Style) -> String {
    let title: String = title.chars().take(width).collect();
    format!("\n{}\n", paint(&title, "1", style))
}

fn paint(text: &str, code: &str, style: Style) -> String {
    if style.colour {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// One line of at most `width` columns.
fn clipped(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return format!("{line}\n");
    }
    let kept: String = line.chars().take(width - 3).collect();
    format!("{kept}...\n")
}

/// A line that names memory: whole, unless the terminal has fewer columns than other lines need.
fn fitted(line: String, detail: Detail) -> String {
    if detail.columns < WIDTH {
        clipped(&line, detail.width())
    } else {
        line + "\n"
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

/// Words in lines of at most 80 columns, indented; a word that is longer is cut in the middle.
#[must_use]
pub fn wrapped(text: &str, indent: usize) -> String {
    wrapped_to(text, indent, WIDTH)
}

/// [`wrapped`] to `width` columns.
fn wrapped_to(text: &str, indent: usize, width: usize) -> String {
    let room = width - indent;
    let mut out = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let word = middle_cut(word, room);
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
            out += &format!("{:indent$}{line}\n", "");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += &word;
    }
    if !line.is_empty() {
        out += &format!("{:indent$}{line}\n", "");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_and_wrapped_at_80() {
        let long = "word ".repeat(40) + &"x".repeat(200);
        assert!(
            wrapped(&long, 4)
                .lines()
                .all(|line| line.chars().count() <= 80)
        );
        assert_eq!(clipped(&"y".repeat(100), 80).trim_end().len(), 80);
        assert_eq!(middle_cut("abcdefghij", 7), "ab...ij");
        let command = format!("run {} 'a b' c", "word ".repeat(16).trim());
        assert_eq!(
            broken(&command, 80),
            format!(
                "  run {} \\\n     word word 'a b' c\n",
                "word ".repeat(14).trim()
            )
        );
    }
}
