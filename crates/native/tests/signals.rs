//! Signals reach the program as they do natively; threads take few of the kernel's resources.

mod support;

use support::{natively, ours, same, shown, translated};

#[test]
fn traps_and_faults_that_the_program_makes_are_its_own() {
    same(&ours("traps.c", &[]), &[]);
}

#[test]
fn masks_pending_signals_and_stacks_of_handlers_are_as_natively() {
    same(&ours("masks.c", &[]), &[]);
}

#[test]
fn signals_arrive_in_the_middle_of_repeated_instructions() {
    same(&ours("repeated.c", &[]), &[]);
}

#[test]
fn a_thread_takes_one_mapping_of_the_engine() {
    let program = ours("mappings.c", &[]);
    let journals = tempfile::tempdir().expect("a folder");
    let settings = format!("folder={}", journals.path().display());
    let number = |output: &std::process::Output| -> u32 {
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim()
            .parse()
            .unwrap_or_else(|_| panic!("{}", shown(output)))
    };
    let alone = number(&natively(&program, &[]));
    for options in [&[][..], &["--record", &settings]] {
        assert_eq!(
            number(&translated(options, &program, &[])),
            alone + 1,
            "{options:?}"
        );
    }
}
