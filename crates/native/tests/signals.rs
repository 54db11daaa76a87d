//! Signals reach the program as they do natively.

mod support;

use support::{ours, same};

#[test]
fn traps_and_faults_that_the_program_makes_are_its_own() {
    same(&ours("traps.c", &[]), &[]);
}
