//! The rules of page faults against the kernel of the virtual machine: who placed each page.

use super::{build, lab};

#[test]
#[ignore = "boots virtual machines: make test-ci-lab"]
fn ci_the_kernel_has_pages_where_the_rules_of_page_faults_say() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "tests/lab/placed.c", "placed", &[]);
    let options = [
        "--nodes",
        "2",
        "--cpus",
        "2",
        "--memory",
        "512M",
        "--huge-pages",
        "madvise",
    ];
    let (_, output) = lab(&options, &[program.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    let kinds: Vec<Vec<&str>> = said
        .lines()
        .map(|line| line.split(' ').collect())
        .filter(|words: &Vec<&str>| words.len() == 6 && words[2].starts_with("0x"))
        .collect();
    let differs = |words: &&Vec<&str>| {
        let on = if words[1].eq_ignore_ascii_case("a") {
            4
        } else {
            5
        };
        words[on] != words[3]
    };
    let differing: Vec<_> = kinds.iter().filter(differs).collect();
    assert!(
        differing.is_empty() && kinds.len() > 25,
        "{differing:?}\n{said}"
    );
}
