//! Profiles and plans as files: read as they were written, and error messages for broken ones.

mod support;

use std::path::Path;

use numaloc_task_plan::{
    Options, PLAN_FOLDER, PROFILE_FOLDER, analyse, read_plan, read_profile, write_plan,
    write_profile,
};
use proptest::prelude::*;
use support::strands;

#[test]
fn profiles_and_plans_are_read_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let machine = numaloc_topology::resolve("numa:4 pu:2").unwrap();
    let profile = strands(4, 4);
    write_profile(folder.path(), &profile).unwrap();
    assert_eq!(
        read_profile(folder.path()).unwrap().tasks.len(),
        profile.tasks.len()
    );
    let plan = analyse(&profile, &machine, Options::default())
        .unwrap()
        .plan;
    write_plan(folder.path(), &plan).unwrap();
    assert_eq!(read_plan(folder.path()).unwrap(), plan);
}

/// With --force the files of an old profile or plan are removed; a remaining one would be read as part of the new.
#[test]
fn every_file_written_belongs_to_its_folder_kind() {
    let folder = tempfile::tempdir().unwrap();
    let machine = numaloc_topology::resolve("numa:4 pu:2").unwrap();
    let profile = strands(8, 6);
    let plan = analyse(&profile, &machine, Options::default())
        .unwrap()
        .plan;
    write_profile(&folder.path().join("profile"), &profile).unwrap();
    write_plan(&folder.path().join("plan"), &plan).unwrap();
    for (name, kind) in [("profile", PROFILE_FOLDER), ("plan", PLAN_FOLDER)] {
        for file in std::fs::read_dir(folder.path().join(name)).unwrap() {
            let file = file.unwrap().file_name();
            assert!((kind.owns)(Path::new(&file)), "{file:?} of a {name}");
        }
    }
}

#[test]
fn errors_in_broken_files_name_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let machine = numaloc_topology::resolve("numa:4 pu:2").unwrap();
    let plan = analyse(&strands(4, 4), &machine, Options::default())
        .unwrap()
        .plan;
    for (file, from, to, words) in [
        ("plan.csv", "version,1", "version,7", "version 7"),
        (
            "classes.csv",
            "class,template",
            "klass,template",
            "expected class,template",
        ),
        ("classes.csv", "0,main,0,,", "0,main,0,9,", "a node below 4"),
        (
            "classes.csv",
            "0,main,0,,",
            "0,main,many,,",
            "slots is \"many\"",
        ),
        (
            "transitions.csv",
            "0,0,start,0,1",
            "0,0,start,0,9999",
            "a class below",
        ),
        (
            "transitions.csv",
            "0,0,start,0,1",
            "0,4294967295,start,0,1",
            "position",
        ),
        (
            "blocks.csv",
            "class,position,node,bytes\n",
            "class,position,node,bytes\n1,2\n",
            "line 2",
        ),
    ] {
        write_plan(folder.path(), &plan).unwrap();
        let path = folder.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file}: {text}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = read_plan(folder.path()).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains(words), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn hints_for_nodes_that_the_profile_does_not_have_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut profile = strands(4, 4);
    profile.tasks[1].hint = Some(3);
    profile.blocks[1].hint = Some(3);
    write_profile(folder.path(), &profile).unwrap();
    assert_eq!(read_profile(folder.path()).unwrap().blocks, profile.blocks);
    profile.tasks[1].hint = Some(4);
    write_profile(folder.path(), &profile).unwrap();
    let error = read_profile(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("tasks.csv") && error.contains("line 3"),
        "{error}"
    );
    assert!(
        error.contains("hint 4") && error.contains("a node below 4"),
        "{error}"
    );
    profile.tasks[1].hint = None;
    profile.blocks[1].hint = Some(u16::MAX);
    write_profile(folder.path(), &profile).unwrap();
    let error = read_profile(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("blocks.csv") && error.contains("hint 65535"),
        "{error}"
    );
}

proptest! {
    /// Whatever the files contain, reading gives an error or a plan, never a panic.
    #[test]
    fn no_text_makes_the_reader_panic(text in "(?s).{0,200}", which in 0..4_usize) {
        let folder = tempfile::tempdir().unwrap();
        let machine = numaloc_topology::resolve("numa:4 pu:2").unwrap();
        let plan = analyse(&strands(4, 2), &machine, Options::default()).unwrap().plan;
        write_plan(folder.path(), &plan).unwrap();
        let file = ["plan.csv", "classes.csv", "transitions.csv", "blocks.csv"][which];
        std::fs::write(folder.path().join(file), text).unwrap();
        let _ = read_plan(folder.path());
    }
}

/// The error for a folder with a profile in which `good` was replaced by `bad` in `file`.
fn refusal_of(file: &str, good: &str, bad: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        (
            "run.csv",
            "key,value\nversion,1\nmachine,by hand\nnodes,2\nmethod,evict\n",
        ),
        (
            "tasks.csv",
            "task,creator,position,template,slots,hint,seconds,mark\n0,,0,main,0,,0.5,\n1,0,0,step,1,1,0.25,\n",
        ),
        (
            "blocks.csv",
            "block,creator,position,bytes,hint\n0,0,0,4096,1\n",
        ),
        ("accesses.csv", "task,slot,block,mode\n1,0,0,RW\n"),
        ("replays.csv", "task,far,seconds\n1,,0.25\n1,0,0.75\n"),
    ] {
        let text = if name == file {
            assert!(text.contains(good), "{name}");
            text.replacen(good, bad, 1)
        } else {
            text.to_owned()
        };
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    match read_profile(folder.path()) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn impossible_values_are_refused_with_file_and_line() {
    assert_eq!(refusal_of("tasks.csv", "0,,0,main", "0,,0,main"), "");
    // 2^48 bytes are the largest block.
    assert_eq!(refusal_of("blocks.csv", "4096", "281474976710656"), "");
    for (file, good, bad, line) in [
        ("blocks.csv", "4096", "281474976710657", 2),
        ("blocks.csv", "4096", "18446744073709551615", 2),
        ("blocks.csv", "4096", "18446744073709551616", 2),
        ("blocks.csv", "4096", "-1", 2),
        ("blocks.csv", "0,0,0,4096,1", "0,9,0,4096,1", 2),
        ("blocks.csv", "4096,1", "4096,2", 2),
        ("tasks.csv", "0.25", "-0.25", 3),
        ("tasks.csv", "0.25", "nan", 3),
        ("tasks.csv", "0.25", "1e999", 3),
        ("tasks.csv", "1,0,0,step", "1,1,0,step", 3),
        ("tasks.csv", "step,1,1", "step,1,2", 3),
        ("accesses.csv", "1,0,0,RW", "7,0,0,RW", 2),
        ("accesses.csv", "1,0,0,RW", "1,0,7,RW", 2),
        ("replays.csv", "0.75", "inf", 3),
        ("replays.csv", "1,0,0.75", "5,0,0.75", 3),
    ] {
        let error = refusal_of(file, good, bad);
        let place = format!("line {line}");
        assert!(
            error.contains(file) && error.contains(&place) && !error.contains('\n'),
            "{file}: {good} made {bad}: {error:?}"
        );
    }
}
