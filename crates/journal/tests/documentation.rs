//! docs/formats/journal.md lists every record and field as the table in the code has them.

use std::path::Path;

use numaloc_journal::{LAYOUT, VERSION};

/// Documentation text without links and with single spaces.
fn plain(about: &str) -> String {
    let words: Vec<&str> = about.split_whitespace().collect();
    let text = words.join(" ").replace("[`", "`").replace("`]", "`");
    text.replace("crate::", "").replace("numaloc_model::", "")
}

/// The records in Markdown.
fn tables() -> String {
    let mut text = String::new();
    for record in LAYOUT {
        text += &format!(
            "\n### {} {}\n\n{}\n",
            record.kind,
            record.name,
            plain(record.about)
        );
        if !record.fields.is_empty() {
            text += "\n| field | bytes | meaning |\n|---|---|---|\n";
        }
        for field in record.fields {
            let about = plain(field.about);
            text += &format!("| `{}` | {} | {about} |\n", field.name, field.bytes);
        }
    }
    text
}

#[test]
fn the_page_about_journals_lists_every_record() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/journal.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, listed) = page.split_once("## Records\n").expect("a list of records");
    assert!(
        listed == tables(),
        "docs/formats/journal.md must end with\n## Records\n{}",
        tables()
    );
    assert!(page.contains(&format!("version {VERSION} ")));
}

#[test]
fn no_two_records_begin_with_the_same_byte() {
    let mut kinds: Vec<u8> = LAYOUT.iter().map(|record| record.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), LAYOUT.len());
}
