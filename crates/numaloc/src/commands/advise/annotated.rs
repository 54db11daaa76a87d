//! Advice for pull requests: Markdown for a comment, and SARIF 2.1.0 with an annotation at the line of the source that
//! a change is made to.

use numaloc_analysis::verdict::time;
use numaloc_model::CodePlace;
use numaloc_whatif::change::Change;
use numaloc_whatif::places::uses;
use numaloc_whatif::search::Step;
use numaloc_whatif::words::{Language, assumption, headline, sketch};
use serde_json::{Value, json};

use super::Answer;
use super::shown::steps;

/// The schema of SARIF files, by which programs recognise them.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// A comment of a pull request.
pub(super) fn markdown(answer: &Answer) -> String {
    let steps = steps(answer);
    let (as_it_is, best) = (answer.times[0].seconds(), answer.times[1].seconds());
    if steps.is_empty() {
        return format!(
            "**numaloc:** nothing to change on {}: {} as it is, {} without any other node's memory, queue or line\n",
            answer.machine,
            time(as_it_is),
            time(answer.bound)
        );
    }
    let mut out = format!(
        "**numaloc:** {} -> {} on {} by these changes\n\n\
         | change | memory | line | before | after | write |\n|---|---|---|---|---|---|\n",
        time(as_it_is),
        time(best),
        answer.machine
    );
    for step in &steps {
        let line = line(answer, step.change).map_or_else(String::new, |line| line.text());
        let write = sketch(step.change, answer.language(step.change));
        let write = match write.first() {
            Some(first) => format!("`{first}`"),
            None => String::new(),
        };
        out += &format!(
            "| {} | {} | {line} | {} | {} | {} |\n",
            what(step),
            cell(&answer.subject(step.change)),
            time(step.before),
            time(step.after),
            cell(&write)
        );
    }
    out
}

/// What a change makes of the run, and whether the next one makes it worth it.
fn what(step: &Step) -> String {
    let together = match step.needs_next {
        true => ", together with the next change: alone it saves nothing",
        false => "",
    };
    format!("{}{together}", headline(step.change))
}

/// A cell of a table: no bars.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// A log with a result for each change.
pub(super) fn sarif(answer: &Answer) -> Value {
    let steps = steps(answer);
    let mut names: Vec<Change> = Vec::new();
    for step in &steps {
        if names.iter().all(|known| known.name() != step.change.name()) {
            names.push(step.change);
        }
    }
    let rule = |change: &Change| {
        json!({
            "id": change.name(),
            "shortDescription": { "text": headline(*change) },
            "fullDescription": { "text": format!("{}; assumes that {}", headline(*change), assumption(*change)) },
        })
    };
    let rules: Vec<Value> = names.iter().map(rule).collect();
    let results: Vec<Value> = steps.iter().map(|step| result(answer, step)).collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "numaloc",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "results": results,
        }],
    })
}

fn result(answer: &Answer, step: &Step) -> Value {
    let write = sketch(step.change, answer.language(step.change));
    let text = format!(
        "{}: {}; {} -> {} on {}. {}",
        answer.subject(step.change),
        what(step),
        time(step.before),
        time(step.after),
        answer.machine,
        write.join(" ")
    );
    let mut result = json!({
        "ruleId": step.change.name(),
        "level": "warning",
        "message": { "text": text.trim_end() },
    });
    if let Some(line) = line(answer, step.change) {
        result["locations"] = json!([{
            "physicalLocation": {
                "artifactLocation": { "uri": line.file },
                "region": { "startLine": line.number },
            },
        }]);
    }
    result
}

/// A line of the program's source.
struct Line {
    file: String,
    number: u32,
}

impl Line {
    /// Of a place in a language that people write changes in: not of a library's assembler.
    fn of(place: &CodePlace) -> Option<Self> {
        let source = place.source.as_deref()?;
        if Language::of(Some(source), false) == Language::Other {
            return None;
        }
        let (file, number) = source.rsplit_once(':')?;
        Some(Self {
            file: file.to_owned(),
            number: number.parse().ok().filter(|number| *number > 0)?,
        })
    }

    fn text(&self) -> String {
        format!("{}:{}", self.file, self.number)
    }
}

/// The line that a change is made to: where the memory is initialised or written, else where it is used most.
fn line(answer: &Answer, change: Change) -> Option<Line> {
    let lines = answer.lines(change);
    if let Some(memory) = lines {
        return memory.places.iter().find_map(Line::of);
    }
    let part = answer.part(change)?;
    let begins = part.beginnings.iter().find_map(Line::of);
    begins.or_else(|| {
        let used = uses(&answer.profile, &part.memory, &part.beginnings);
        used.iter().find_map(|used| Line::of(&used.place))
    })
}
