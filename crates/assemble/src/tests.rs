//! Profiles of journals that engines have written.

use super::*;
use numaloc_trace::{Config, Engine, ThreadTracer};

/// A process with one thread that has made one access.
fn begun(folder: &Path) -> (&'static Engine, Box<ThreadTracer>) {
    let config = Config {
        folder: folder.to_owned(),
        ..Config::default()
    };
    let engine: &'static Engine = Box::leak(Box::new(Engine::start(config, "/bin/app").unwrap()));
    let mut thread = engine.first_thread(1);
    thread.access::<true, false>(0x1000, 8);
    (engine, thread)
}

fn assembled(folder: &Path) -> Profile {
    let options = Options {
        command: vec!["app".to_owned()],
        page_size: 4096,
        slices: 10,
    };
    assemble(folder, &options).unwrap()
}

#[test]
fn a_process_that_left_no_journal_makes_the_profile_incomplete() {
    for missing in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (engine, mut thread) = begun(folder.path());
        // The first image has a journal, the second has none.
        engine.expect_process("0".into(), missing.into(), 7, "/bin/other".into());
        thread.end(0);
        engine.finish();
        let profile = assembled(folder.path());
        assert_eq!(profile.meta().complete, !missing);
        let notes = &profile.meta().notes;
        let expected = "process 0 (/bin/other) is missing from 7 accesses on";
        assert_eq!(notes.iter().any(|note| note.starts_with(expected)), missing);
        assert_eq!(notes.len(), usize::from(missing));
    }
}

#[test]
fn a_program_that_was_not_executed_is_not_missed() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, mut thread) = begun(folder.path());
    engine.expect_process("0".into(), 1, 7, "/bin/other".into());
    engine.finish();
    engine.write(&Record::Withdrawn {
        path: "0".into(),
        image: 1,
    });
    assert!(!assembled(folder.path()).meta().complete);
    thread.end(0);
    engine.finish();
    let profile = assembled(folder.path());
    assert!(profile.meta().complete);
    assert_eq!(profile.meta().notes, [""; 0]);
}

#[test]
fn of_a_process_with_one_thread_large_variables_and_no_contention_are_kept() {
    const SMALL: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("many.c");
    let program = folder.path().join("many");
    let small: String = (0..SMALL).map(|at| format!("int small{at};\n")).collect();
    let text = format!("{small}char large[4096];\nint main(void) {{ return large[0]; }}\n");
    std::fs::write(&source, text).unwrap();
    let built = std::process::Command::new("cc")
        .arg("-o")
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());
    for (threads, expected) in [(1, 0), (2, SMALL)] {
        let folder = tempfile::tempdir().unwrap();
        let (engine, mut thread) = begun(folder.path());
        engine.write(&Record::Image {
            file: program.to_str().unwrap().to_owned(),
            start: 0x10_0000,
            end: 0x11_0000,
        });
        for page in 0..16 {
            thread.access::<true, false>(0x10_0000 + page * 4096, 8);
        }
        thread.end(0);
        if threads == 2 {
            engine.write(&Record::ThreadStart {
                thread: 1,
                path: "0.1".into(),
                tid: 2,
                time: 0,
                routine: 0,
            });
        }
        // As one of a line that threads may contend for.
        engine.write(&Record::Accesses {
            thread: 0,
            cells: Vec::new(),
        });
        engine.finish();
        let profile = assembled(folder.path());
        let named = |prefix: &str| {
            let variables = profile.objects().iter().flat_map(|of| &of.variables);
            variables.filter(|of| of.name.starts_with(prefix)).count()
        };
        assert_eq!((named("small"), named("large")), (expected, 1));
        let journal = std::fs::read_dir(folder.path()).unwrap();
        let journals = journal.map(|entry| entry.unwrap().path());
        let mut journals = journals.filter(|file| file.extension().is_some());
        let file = journals.next().unwrap();
        let bytes = std::fs::read(&file).unwrap();
        let mut meta = Meta::new("", Clock::Virtual);
        let space = load(&file, &bytes, &mut meta).unwrap().unwrap();
        let samples = space.records.iter();
        let samples = samples.filter(|record| matches!(record, Record::Accesses { .. }));
        assert_eq!(samples.count(), threads - 1);
        assert_eq!(space.records.capacity(), space.records.len());
    }
}

#[test]
fn a_journal_that_ends_before_its_process_makes_the_profile_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, mut thread) = begun(folder.path());
    thread.end(0);
    // As after a kill: everything but the end record.
    let cut = assembled(folder.path());
    assert!(!cut.meta().complete);
    assert!(
        cut.meta().notes[0].contains("cut short"),
        "{:?}",
        cut.meta().notes
    );
    engine.finish();
    assert!(assembled(folder.path()).meta().complete);
}
