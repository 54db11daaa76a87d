//! Loads whose address comes from another load, in access traces of programs that do nothing else.

use crate::support::{compile, numaloc, ok};
use serde_json::Value;
use std::path::Path;

/// Visits each of 65,536 lines once: as a list, with the pointer in a register, in memory, handed to functions, after a
/// test of another word of the node, and as an index; and in an order that is computed.
const PROGRAM: &str = r#"
#include <string.h>
#define COUNT 65536
struct node { struct node *next; long index, value, rest[5]; };
static struct node nodes[COUNT] __attribute__((aligned(4096)));
static long after(long at) { return (at * 40501 + 12345) % COUNT; }
__attribute__((noinline)) static struct node *next(struct node *node) { return node->next; }
__attribute__((noinline)) static long hash(long at) { return (at ^ at >> 20) & (COUNT - 1); }
__attribute__((optimize("O0"))) static struct node *in_memory(struct node *node)
{
    for (long at = 0; at < COUNT; at++)
        node = node->next;
    return node;
}
int main(int count, char **arguments)
{
    struct node *node = nodes;
    long at = 0, sum = 0;
    for (long i = 0; i < COUNT; i++) {
        nodes[i].next = &nodes[after(i)];
        nodes[i].index = after(i);
    }
    if (!strcmp(arguments[1], "register"))
        for (long i = 0; i < COUNT; i++)
            node = node->next;
    if (!strcmp(arguments[1], "memory"))
        node = in_memory(node);
    if (!strcmp(arguments[1], "function"))
        for (long i = 0; i < COUNT; i++)
            node = next(node);
    if (!strcmp(arguments[1], "tested"))
        for (long i = 0; i < COUNT; i++) {
            if (node->value > i)
                sum++;
            node = node->next;
        }
    if (!strcmp(arguments[1], "index"))
        for (long i = 0; i < COUNT; i++)
            at = hash(nodes[at].index);
    if (!strcmp(arguments[1], "computed"))
        for (long i = 0; i < COUNT; i++) {
            at = after(at);
            sum += nodes[at].value;
        }
    return (node - nodes + at + sum) % 2;
}
"#;

/// Numbers of reads that missed, and of those that wait for another.
fn reads(folder: &Path, options: &[&str], program: &Path, mode: &str) -> (u64, Option<u64>) {
    let profile = folder.join("p.numaloc");
    let mut record = numaloc(&["record", "--quiet", "--force", "--trace"]);
    // The program's status is its result.
    let _ = record
        .args(options)
        .arg("-o")
        .arg(&profile)
        .arg("--")
        .arg(program)
        .arg(mode)
        .output();
    let shown = ok(numaloc(&["show", "--json", "--trace"]).arg(&profile));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let reads = shown["records"]["read"].as_u64().unwrap();
    (reads, shown["dependent_reads"].as_u64())
}

#[test]
fn loads_through_pointers_are_marked_wherever_the_pointer_is() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "nodes", PROGRAM, false);
    let native = ["--frontend", "native"];
    for mode in ["register", "memory", "function", "tested", "index"] {
        let (reads, dependent) = reads(dir.path(), &native, &program, mode);
        let share = dependent.unwrap() as f64 / reads as f64;
        assert!(reads > 60_000 && share > 0.95, "{mode}: {share} of {reads}");
    }
    let (reads, dependent) = reads(dir.path(), &native, &program, "computed");
    let share = dependent.unwrap() as f64 / reads as f64;
    assert!(
        reads > 60_000 && share < 0.03,
        "computed: {share} of {reads}"
    );
}

#[test]
fn frontends_that_do_not_mark_loads_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "nodes", PROGRAM, true);
    let (reads, dependent) = reads(dir.path(), &[], &program, "register");
    assert!(reads > 60_000);
    assert_eq!(dependent, None);
}
