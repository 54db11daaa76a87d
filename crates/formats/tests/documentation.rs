//! docs/formats/profile.md lists every table and column as the code declares them.

use std::path::Path;

use numaloc_formats::profile::{TableInfo, VERSION, tables};

/// Heading and columns of a table in Markdown.
fn section(table: &TableInfo) -> String {
    let mut text = format!("## `{}.parquet`: one row per {}\n\n", table.name, table.row);
    text += "| column | type | unit | meaning |\n|---|---|---|---|\n";
    for column in &table.columns {
        text += &format!(
            "| `{}` | {} | {} | {} |\n",
            column.name, column.type_name, column.unit, column.about
        );
    }
    text
}

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/profile.md");
    std::fs::read_to_string(page).unwrap()
}

#[test]
fn the_page_about_profiles_lists_every_table_and_column_as_declared() {
    let page = page();
    for table in tables() {
        let section = section(&table);
        assert!(
            page.contains(&format!("\n{section}\n")),
            "docs/formats/profile.md must contain\n{section}"
        );
    }
    let headings = page.lines().filter(|line| line.contains(".parquet`: "));
    assert_eq!(headings.count(), tables().len(), "tables of the page");
}

#[test]
fn the_page_about_profiles_names_the_tables_that_earlier_profiles_lack() {
    let page = page();
    for table in tables() {
        let heading = format!("## `{}.parquet`", table.name);
        let (_, text) = page.split_once(&heading).unwrap();
        let (text, _) = text.split_once("\n## ").unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_said = text.contains("may be missing in profiles of earlier versions");
        assert_eq!(is_said, table.may_be_missing, "{}", table.name);
    }
}

#[test]
fn the_version_of_the_format_is_that_of_its_newest_table() {
    let newest = tables().iter().map(|table| table.since).max();
    assert_eq!(newest, Some(VERSION));
    let row = format!("| `format`, `version` | `\"numaloc-profile\"`, {VERSION}.");
    assert!(page().contains(&row), "{row}");
}
