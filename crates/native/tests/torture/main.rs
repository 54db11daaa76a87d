//! Random blocks of instructions leave the same registers, flags and memory in the code cache as natively, whether or
//! not their accesses are recorded, all or in bursts, and whether or not they are part of paths. With paths, the same
//! accesses to the same pages are recorded as without, and as many are counted each time.
//!
//! Each block is run three times from random states, so that its branches are linked in the end, and paths are left
//! where they do not go on. The blocks use the instructions of the processor at hand and of several others
//! ([`processors`]); for instructions that the one at hand lacks there are others ([`stand_in`]). A failure shows the
//! smallest part of the blocks that differs ([`reduce`]). Variables:
//!
//! - `NUMALOC_BLOCKS`: the number of random blocks from a seed;
//! - `NUMALOC_SEED`, `NUMALOC_SEEDS`: the first seed, and how many;
//! - `NUMALOC_PROCESSOR`: a list's name, `this`, or `all`, each with that number of blocks. Without it, most blocks are
//!   for the processor at hand, and a few for each list.

mod elements;
mod generator;
mod instructions;
mod processors;
mod reduce;
mod stand_in;
mod trial;

use std::collections::BTreeSet;

use generator::Generator;
use trial::difference;

/// Blocks of a program.
const BATCH: u64 = 2000;
/// Blocks in all, and most for each list, if no list is chosen.
const SOME: u64 = 1000;
const FEW: u64 = 100;

fn number(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.map_or(default, |value| value.parse().expect("a number"))
}

/// Lists of extensions and numbers of blocks.
fn chosen() -> Vec<(&'static str, BTreeSet<String>, u64)> {
    let name = std::env::var("NUMALOC_PROCESSOR").ok();
    let all = number("NUMALOC_BLOCKS", SOME);
    let listed =
        |count| processors::names().map(move |name| (name, processors::extensions(name), count));
    let this = || ("this", processors::at_hand());
    match name.as_deref() {
        None => {
            let few = FEW.min(all / 20);
            let (name, extensions) = this();
            let most = all - few * processors::names().count() as u64;
            listed(few).chain([(name, extensions, most)]).collect()
        }
        Some("this") => vec![(this().0, this().1, all)],
        Some("all") => listed(all).collect(),
        Some(name) => listed(all).filter(|list| list.0 == name).collect(),
    }
}

#[test]
fn random_blocks_leave_the_same_registers_flags_and_memory() {
    let at_hand = processors::at_hand();
    let first = number("NUMALOC_SEED", 1);
    let lists = chosen();
    assert!(
        !lists.is_empty(),
        "NUMALOC_PROCESSOR: this, all, {:?}",
        processors::names().collect::<Vec<_>>()
    );
    for (name, extensions, all) in lists {
        for seed in first..first + number("NUMALOC_SEEDS", 1) {
            let mut generator = Generator::new(seed, &extensions, &at_hand);
            let mut made = 0;
            while made < all {
                let count = BATCH.min(all - made);
                println!("{name}, seed {seed}: blocks {made} to {}", made + count);
                let blocks: Vec<String> = (0..count).map(|n| generator.block(n)).collect();
                reduce::check(&generator, &blocks);
                made += count;
            }
        }
    }
}

#[test]
fn each_instruction_of_the_processor_leaves_the_same_registers_flags_and_memory() {
    let at_hand = processors::at_hand();
    let mut generator = Generator::new(1, &at_hand, &at_hand);
    let blocks = generator.one_block_each();
    assert!(blocks.len() > 150, "{} instructions", blocks.len());
    reduce::check(&generator, &blocks);
}

#[test]
fn a_difference_names_its_block() {
    assert_eq!(difference("0 a\n1 b\n", "0 a\n1 b\n"), None);
    assert_eq!(
        difference("0 a\n7 b\n", "0 a\n7 c\n"),
        Some((7, "7 b", "7 c"))
    );
    assert_eq!(difference("0 a\n7 b\n", "0 a\n"), Some((7, "7 b", "")));
}
