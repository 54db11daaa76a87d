//! Every metric of a characterisation, with what a reader needs to use it. `show`, `report`, `diff` and the JSON
//! outputs print this one list, comparisons of runs draw it, and `docs/metrics.md` explains each entry under its key.

use numaloc_analysis::Characterisation;

use crate::number;

mod declared;

pub use declared::SECTIONS;

/// A property of a metric.
#[derive(Clone, Copy, Debug)]
pub enum Of<T> {
    /// The same for every run.
    Every(T),
    /// Depends on what a run recorded.
    Run(fn(&Characterisation) -> T),
}

impl<T: Copy> Of<T> {
    /// The property for a run.
    fn of(&self, c: &Characterisation) -> T {
        match self {
            Self::Every(value) => *value,
            Self::Run(value) => value(c),
        }
    }
}

/// A chart with a bar for each run.
#[derive(Clone, Copy, Debug)]
pub struct Chart {
    /// Name of its file, without extension.
    pub name: &'static str,
    /// Heading.
    pub title: &'static str,
    /// How to read it.
    pub caption: &'static str,
    /// How its values are written.
    pub show: fn(f64) -> String,
}

/// The declaration of a metric; the fields that [`Metric`] has too are explained there.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// Stable name in JSON and in the documentation.
    pub key: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// The symbol in the paper.
    pub symbol: &'static str,
    /// Its value in a run; `None` where not observed.
    pub value: fn(&Characterisation) -> Option<f64>,
    /// Its unit.
    pub unit: Of<Unit>,
    /// What values it can take.
    pub range: &'static str,
    /// Paper and equation.
    pub source: &'static str,
    /// What it means.
    pub meaning: Of<&'static str>,
    /// The chart that compares it between runs, if it is drawn by itself.
    pub chart: Option<Chart>,
}

impl Declared {
    /// The metric of a run.
    fn of(&self, c: &Characterisation) -> Metric {
        Metric {
            key: self.key,
            name: self.name,
            symbol: self.symbol,
            value: (self.value)(c),
            unit: self.unit.of(c),
            range: self.range,
            source: self.source,
            meaning: self.meaning.of(c),
        }
    }
}

/// The declaration of a metric.
#[must_use]
pub fn declared(key: &str) -> Option<&'static Declared> {
    let mut all = SECTIONS.iter().flat_map(|(_, metrics)| *metrics);
    all.find(|metric| metric.key == key)
}

/// What a value counts, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// A count of events, accesses or pages; the word is the unit.
    Count(&'static str),
    /// A share, 0..=1.
    Share,
    /// A rate; the words are the unit.
    PerTime(&'static str),
    /// A number without a unit.
    Plain,
}

impl Unit {
    /// The unit as it stands in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Count(word) | Self::PerTime(word) => word,
            Self::Share => "share",
            Self::Plain => "1",
        }
    }
}

/// One metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Stable name in JSON and in the documentation.
    pub key: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// The symbol in the paper.
    pub symbol: &'static str,
    /// `None` where not observed.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: Unit,
    /// What values it can take.
    pub range: &'static str,
    /// Paper and equation.
    pub source: &'static str,
    /// What it means: the rest of a line of 80 columns, at most 44 characters.
    pub meaning: &'static str,
}

impl Metric {
    /// The value with its unit, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        self.value
            .map_or_else(|| "not observed".to_owned(), |value| self.show(value))
    }

    /// Any value of this metric's kind.
    #[must_use]
    pub fn show(&self, value: f64) -> String {
        match self.unit {
            Unit::Bytes => number::bytes(value),
            Unit::Count(_) => number::count(value),
            Unit::Share => number::percent(value),
            Unit::Plain | Unit::PerTime(_) => number::plain(value),
        }
    }
}

/// The change from `a` to `b` in words: percentage points for shares, else per cent or a factor.
#[must_use]
pub fn change(a: &Metric, b: &Metric) -> String {
    match (a.value, b.value) {
        (Some(x), Some(y)) if x == y => "=".to_owned(),
        (Some(x), Some(y)) if a.unit == Unit::Share => number::signed((y - x) * 100.0, 1) + " pp",
        (Some(x), Some(y)) if x != 0.0 => {
            let ratio = y / x;
            if ratio >= 10.0 {
                format!("x{}", number::count(ratio.round()))
            } else {
                number::signed((ratio - 1.0) * 100.0, 1) + " %"
            }
        }
        (None, None) => String::new(),
        _ => "new".to_owned(),
    }
}

/// A heading and its metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// For people.
    pub title: &'static str,
    /// In reading order.
    pub metrics: Vec<Metric>,
}

/// All metrics, by section.
#[must_use]
pub fn sections(c: &Characterisation) -> Vec<Section> {
    SECTIONS
        .iter()
        .map(|&(title, metrics)| Section {
            title,
            metrics: metrics.iter().map(|metric| metric.of(c)).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A row of a table of `docs/metrics.md`: key, symbol, unit and range, source, picture.
    struct Row {
        cells: Vec<String>,
    }

    impl Row {
        fn cell(&self, at: usize) -> &str {
            self.cells.get(at).map_or("", |cell| cell)
        }
    }

    /// The rows of the tables of metrics under a heading of the page.
    fn documented(page: &str, title: &str) -> Vec<Row> {
        let heading = format!("\n## {title}\n");
        let (_, text) = page.split_once(&heading).expect("a section of the page");
        let text = text
            .split_once("\n## ")
            .map_or(text, |(section, _)| section);
        let lines = text.lines().skip_while(|line| !line.starts_with("| key |"));
        lines
            .take_while(|line| line.starts_with('|'))
            .filter(|line| line.starts_with("| `"))
            .map(|line| Row {
                cells: line
                    .split('|')
                    .skip(1)
                    .map(|cell| cell.trim().to_owned())
                    .collect(),
            })
            .collect()
    }

    /// Unit and range as the documentation has them; only the range where the unit depends on the run.
    fn unit_and_range(metric: &Declared) -> String {
        match metric.unit {
            Of::Run(_) | Of::Every(Unit::Share | Unit::Plain) => metric.range.to_owned(),
            Of::Every(unit) => format!("{}, {}", unit.name(), metric.range),
        }
    }

    #[test]
    fn the_documentation_has_the_metrics_as_they_are_declared() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        let page = std::fs::read_to_string(path).expect("a page");
        for (title, metrics) in SECTIONS {
            let rows = documented(&page, title);
            let keys: Vec<String> = metrics.iter().map(|m| format!("`{}`", m.key)).collect();
            let found: Vec<&str> = rows.iter().map(|row| row.cell(0)).collect();
            assert_eq!(found, keys, "{title}: the page, the declarations");
            for (row, metric) in rows.iter().zip(*metrics) {
                let key = metric.key;
                assert_eq!(row.cell(1), metric.symbol, "{key}: symbol");
                let (found, expected) = (row.cell(3), unit_and_range(metric));
                match metric.unit {
                    Of::Every(_) => assert_eq!(found, expected, "{key}: unit, range"),
                    Of::Run(_) => assert!(found.ends_with(&expected), "{key}: {found}"),
                }
                // The page may name more equations than a line of 80 columns has room for.
                let source: Vec<&str> = row.cell(4).split([' ', ',']).collect();
                for word in metric
                    .source
                    .split([' ', ','])
                    .filter(|word| !word.is_empty())
                {
                    assert!(source.contains(&word), "{key}: {source:?} lacks {word:?}");
                }
                if let Some(chart) = metric.chart {
                    let picture = format!("(images/metrics/{}.svg)", chart.name);
                    assert!(row.cell(6).contains(&picture), "{key}: no {picture}");
                }
            }
        }
    }

    #[test]
    fn keys_and_charts_are_declared_once_and_meanings_fit_a_line() {
        let all: Vec<&Declared> = SECTIONS.iter().flat_map(|(_, metrics)| *metrics).collect();
        for (at, metric) in all.iter().enumerate() {
            for before in &all[..at] {
                assert_ne!(before.key, metric.key);
                let charts = [before, metric].map(|m| m.chart.map(|chart| chart.name));
                assert!(charts[0].is_none() || charts[0] != charts[1], "{charts:?}");
            }
            if let Of::Every(meaning) = metric.meaning {
                assert!(meaning.chars().count() <= 44, "{}", metric.key);
            }
            assert_eq!(
                declared(metric.key).map(|found| found.name),
                Some(metric.name)
            );
        }
    }
}
