//! Finds the blocks, and the instructions in them, without which nothing differs.

use crate::generator::Generator;
use crate::trial::{self, Failure};

/// Most times that a block is run: all the more the fewer blocks there are.
const TIMES: u64 = 600;
/// Seconds for each run of an attempt: without one of its instructions, a loop may not end.
const SECONDS: &str = "30";
/// Most attempts to do without something.
const ATTEMPTS: usize = 400;

/// Runs blocks; ends the test with the smallest part of them that fails.
pub fn check(generator: &Generator, blocks: &[String]) {
    let all = blocks.len() as u64;
    let Err(failure) = trial::run(generator, blocks, 3, trial::LIMIT) else {
        return;
    };
    let mut first = text(&failure);
    println!("{first}");
    let nothing = ["block0:\nret\n".to_owned()];
    if trial::run(generator, &nothing, 3 * all, trial::LIMIT).is_err() {
        first += "\na block that does nothing fails too: code of the harness does\n";
    }
    let mut attempts = ATTEMPTS;
    let kind = std::mem::discriminant::<Failure>;
    let first_kind = kind(&failure);
    let mut fails = |blocks: &[String]| {
        let times = (3 * all / blocks.len() as u64).clamp(3, TIMES);
        attempts = attempts.checked_sub(1)?;
        let failure = trial::run(generator, blocks, times, SECONDS).err()?;
        // A program that a busy machine is too slow for is not the same failure.
        (kind(&failure) == first_kind).then_some(failure)
    };
    let mut kept = blocks.to_vec();
    if let Failure::State(Some(block), _) = &failure {
        let one = &blocks[*block..=*block];
        if fails(&renumbered(one)).is_some() {
            kept = one.to_vec();
        }
    }
    let kept = smallest(kept, |blocks| fails(&renumbered(blocks)).is_some());
    // Then the lines of what is left, the first of which are the blocks' names.
    let lines: Vec<Vec<String>> = renumbered(&kept)
        .iter()
        .map(|block| block.lines().map(|line| format!("{line}\n")).collect())
        .collect();
    let mut code = renumbered(&kept);
    for (n, lines) in lines.into_iter().enumerate().take(4) {
        let (name, body) = lines.split_first().expect("a name");
        let with = |body: &[String]| {
            let mut code = code.clone();
            code[n] = format!("{name}{}", body.concat());
            code
        };
        let body = smallest(body.to_vec(), |body| fails(&with(body)).is_some());
        code = with(&body);
    }
    let last = fails(&code).map_or_else(String::new, |failure| text(&failure));
    panic!(
        "{first}\n{} of {all} blocks are enough:\n{}\n{last}",
        code.len(),
        code.concat()
    );
}

/// Blocks with their names in order.
fn renumbered(blocks: &[String]) -> Vec<String> {
    let named = |(number, block): (usize, &String)| {
        let (_, body) = block.split_once(":\n").expect("a name");
        format!("block{number}:\n{body}")
    };
    blocks.iter().enumerate().map(named).collect()
}

/// Removes parts, half of all first, as long as what remains fails.
fn smallest(mut all: Vec<String>, mut fails: impl FnMut(&[String]) -> bool) -> Vec<String> {
    let mut part = all.len() / 2;
    while part > 0 {
        let mut at = 0;
        while at < all.len() && all.len() > 1 {
            let mut rest = all.clone();
            rest.drain(at..(at + part).min(all.len()));
            if !rest.is_empty() && fails(&rest) {
                all = rest;
            } else {
                at += part;
            }
        }
        part /= 2;
    }
    all
}

fn text(failure: &Failure) -> String {
    match failure {
        Failure::NoProgram(text)
        | Failure::Status(text)
        | Failure::Counts(text)
        | Failure::State(None, text) => text.clone(),
        Failure::State(Some(block), text) => format!("block {block}, {text}"),
    }
}

#[test]
fn what_is_not_needed_for_a_failure_is_removed() {
    let all: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let needed = ["17", "18", "63"];
    let fails = |part: &[String]| needed.iter().all(|one| part.iter().any(|it| it == one));
    assert_eq!(smallest(all, fails), needed);
}
