//! A page of measurements: tables and bars under headings, in the style of the report.

use std::fmt::Write;

use serde_json::json;

use super::tables::{cell, open};
use super::{SCRIPTS_OF_COMPARISONS, bar, close, opened};
use crate::figures::{Bars, Paint, bars, escape};

/// What a cell says.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number: the value that is sorted and saved, and how it is shown.
    Number(f64, String),
    /// A good answer.
    Yes(String),
    /// A bad answer.
    No(String),
    /// Neither.
    Open(String),
    /// Nothing is known.
    Unknown,
}

impl Cell {
    /// Words.
    #[must_use]
    pub fn text(words: impl Into<String>) -> Self {
        Self::Text(words.into())
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Name of the file in which the reader can save it.
    pub name: String,
    /// Heading.
    pub title: String,
    /// What it shows, in a sentence.
    pub caption: String,
    /// Words of the head.
    pub heads: Vec<&'static str>,
    /// Rows; each has a cell for each word of the head.
    pub rows: Vec<Vec<Cell>>,
}

/// A chart: for each name a bar of each series.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Heading.
    pub title: String,
    /// What it shows, in a sentence.
    pub caption: String,
    /// Names of the bars.
    pub names: Vec<String>,
    /// Name and values of each series.
    pub series: Vec<(&'static str, Vec<Option<f64>>)>,
    /// Writes a value.
    pub show: fn(f64) -> String,
}

/// A part of the page.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Name in the address, of letters and `-`.
    pub id: String,
    /// Word of the link at the top of the page; empty for none.
    pub word: String,
    /// Heading.
    pub title: String,
    /// Paragraphs.
    pub paragraphs: Vec<String>,
    /// Charts, next to each other.
    pub charts: Vec<Chart>,
    /// Tables.
    pub tables: Vec<Table>,
}

/// The page.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// Heading.
    pub title: String,
    /// A command line.
    pub command: String,
    /// Values and words at the top.
    pub facts: Vec<(String, String)>,
    /// What limits all that follows, in sentences.
    pub alarms: Vec<String>,
    /// Its parts.
    pub parts: Vec<Part>,
    /// When and by which version it was written.
    pub written: String,
}

/// Writes the page.
#[must_use]
pub fn sheet(sheet: &Sheet) -> String {
    let mut out = opened(&sheet.title);
    let links = sheet.parts.iter().filter(|part| !part.word.is_empty());
    let links: Vec<[String; 2]> = links
        .map(|part| [&part.id, &part.word].map(|text| escape(text)))
        .collect();
    let links: Vec<(&str, &str)> = links
        .iter()
        .map(|[id, word]| (&id[..], &word[..]))
        .collect();
    let facts = sheet.facts.iter();
    let facts: String = facts
        .map(|(value, word)| format!("<li><b>{}</b> {}</li>", escape(value), escape(word)))
        .collect();
    let alarms = sheet.alarms.iter();
    let alarms: String = alarms
        .map(|alarm| format!("<p class=\"alarm\">{}</p>", escape(alarm)))
        .collect();
    let _ = writeln!(
        out,
        "<header>\n{}\n<h1>{}</h1>\n<p class=\"command\"><code>{}</code></p>\n<ul class=\"facts\">{facts}</ul>{alarms}\n</header>\n<main>",
        bar(&links),
        escape(&sheet.title),
        escape(&sheet.command)
    );
    for part in &sheet.parts {
        section(&mut out, part);
    }
    let _ = writeln!(out, "<footer><p>{}</p></footer>", escape(&sheet.written));
    close(&mut out, &json!({}), SCRIPTS_OF_COMPARISONS);
    out
}

fn section(out: &mut String, part: &Part) {
    let _ = writeln!(
        out,
        "<section id=\"{}\">\n<h2 class=\"part\">{}</h2>",
        escape(&part.id),
        escape(&part.title)
    );
    for paragraph in &part.paragraphs {
        let _ = writeln!(out, "<p class=\"lead\">{}</p>", escape(paragraph));
    }
    if !part.charts.is_empty() {
        *out += "<div class=\"pair\">\n";
        for chart in &part.charts {
            let _ = writeln!(
                out,
                "<figure class=\"card\"><figcaption><h3>{}</h3><p>{}</p></figcaption>{}</figure>",
                escape(&chart.title),
                escape(&chart.caption),
                drawn(chart)
            );
        }
        *out += "</div>\n";
    }
    for table in &part.tables {
        written(out, table);
    }
    *out += "</section>\n";
}

fn drawn(chart: &Chart) -> String {
    let series = chart.series.iter();
    let bars_of = Bars {
        label: &chart.title,
        runs: &chart.names,
        series: series
            .map(|(name, values)| (*name, values.clone()))
            .collect(),
        stacked: false,
        show: chart.show,
    };
    bars(&bars_of, Paint::page())
}

fn written(out: &mut String, table: &Table) {
    let heads = table.heads.iter();
    let heads: String = heads
        .map(|head| format!("<th>{}</th>", escape(head)))
        .collect();
    let _ = write!(
        out,
        "<div class=\"card wide\"><h3>{}</h3><p class=\"hint\">{}</p>",
        escape(&table.title),
        escape(&table.caption)
    );
    open(out, &escape(&table.name), &heads);
    for row in &table.rows {
        let cells: String = row.iter().map(shown).collect();
        let _ = writeln!(out, "<tr>{cells}</tr>");
    }
    *out += "</tbody></table></div></div>\n";
}

fn shown(of: &Cell) -> String {
    let toned = |tone: &str, words: &str| {
        format!(
            "<td class=\"{tone}\"><b style=\"color:var(--tone)\">{}</b></td>",
            escape(words)
        )
    };
    match of {
        Cell::Text(words) => format!("<td>{}</td>", escape(words)),
        Cell::Number(value, words) => cell(*value, words),
        Cell::Yes(words) => toned("yes", words),
        Cell::No(words) => format!("<td class=\"bad\">{}</td>", escape(words)),
        Cell::Open(words) => toned("no", words),
        Cell::Unknown => "<td class=\"n\">-</td>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_escaped_and_every_cell_is_there() {
        let hostile = "<script>alert(1)</script>";
        let page = sheet(&Sheet {
            title: hostile.to_owned(),
            command: hostile.to_owned(),
            facts: vec![(hostile.to_owned(), hostile.to_owned())],
            alarms: vec![hostile.to_owned()],
            parts: vec![Part {
                id: "part".to_owned(),
                word: hostile.to_owned(),
                title: hostile.to_owned(),
                paragraphs: vec![hostile.to_owned()],
                charts: vec![Chart {
                    title: hostile.to_owned(),
                    caption: hostile.to_owned(),
                    names: vec![hostile.to_owned(), "b".to_owned()],
                    series: vec![("predicted", vec![Some(1.0), None])],
                    show: |value| format!("{value:.2} x"),
                }],
                tables: vec![Table {
                    name: "table".to_owned(),
                    title: hostile.to_owned(),
                    caption: hostile.to_owned(),
                    heads: vec!["what", "how much"],
                    rows: vec![
                        vec![Cell::text(hostile), Cell::Number(1.5, "1.5 s".to_owned())],
                        vec![Cell::No(hostile.to_owned()), Cell::Unknown],
                        vec![Cell::Yes("held".to_owned()), Cell::Open("open".to_owned())],
                    ],
                }],
            }],
            written: hostile.to_owned(),
        });
        assert!(!page.contains(hostile));
        assert!(page.contains("data-v=\"1.5\">1.5 s") && page.contains("1.00 x"));
        assert_eq!(page.matches("<tr>").count(), 4);
        assert_eq!(page.matches("id=\"part\"").count(), 1);
    }
}
