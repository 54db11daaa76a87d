//! `numaloc tasks analyse` destroys no profile, and writes no plan that is worse than none without `--force`.

use std::path::Path;
use std::process::{Command, Output};

use numaloc_task_plan::{Access, Block, Task, TaskProfile, read_profile, write_profile};

/// A chain of tasks that use all of eight blocks that the main task's children created.
fn chain() -> TaskProfile {
    let task = |creator, position, template: &str, slots| Task {
        creator,
        position,
        template: template.to_owned(),
        slots,
        seconds: 1e-4,
        ..Task::default()
    };
    let mut profile = TaskProfile {
        machine: "by hand".to_owned(),
        nodes: 4,
        method: "none".to_owned(),
        tasks: vec![task(None, 0, "mainEdt", 1)],
        ..TaskProfile::default()
    };
    for part in 0..8 {
        profile.tasks.push(task(Some(0), part, "init", 0));
        profile.blocks.push(Block {
            creator: Some(part + 1),
            position: 0,
            bytes: 4096,
            hint: None,
        });
    }
    let mut last = 0;
    for _ in 0..20 {
        let at = profile.tasks.len() as u32;
        profile
            .tasks
            .push(task(Some(last), 8 * u32::from(last == 0), "all", 8));
        last = at;
        for slot in 0..8 {
            profile.accesses.push(Access {
                task: at,
                slot,
                block: slot,
                mode: "RW".to_owned(),
            });
        }
    }
    profile
}

fn analyse(profile: &Path, plan: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_numaloc"))
        .args([
            "tasks",
            "analyse",
            "--machine",
            "skylake-4s",
            "--data",
            "block",
        ])
        .arg(profile)
        .arg("-o")
        .arg(plan)
        .args(more)
        .output()
        .expect("it runs")
}

#[test]
fn a_plan_never_overwrites_a_profile() {
    let folder = tempfile::tempdir().unwrap();
    let profile = chain();
    write_profile(folder.path(), &profile).unwrap();
    let output = analyse(folder.path(), folder.path(), &["--force"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("holds a profile"), "{said}");
    assert_eq!(read_profile(folder.path()).unwrap(), profile);
}

#[test]
fn a_plan_that_is_slower_than_none_is_refused_and_can_be_forced() {
    let folder = tempfile::tempdir().unwrap();
    let (profile, plan) = (folder.path().join("profile"), folder.path().join("plan"));
    write_profile(&profile, &chain()).unwrap();
    let output = analyse(&profile, &plan, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("slower than no plan") && said.contains("--force"),
        "{said}"
    );
    for row in ["no plan ", "hints ", "plan "] {
        assert!(printed.contains(row), "{printed}");
    }
    assert!(!plan.exists());
    let output = analyse(&profile, &plan, &["--force"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("slower than no plan"), "{said}");
    assert!(plan.join("plan.csv").exists());
}

#[test]
fn analyze_is_still_accepted_as_a_spelling_of_analyse() {
    let folder = tempfile::tempdir().unwrap();
    write_profile(folder.path(), &chain()).unwrap();
    let [analyse, analyze] = ["analyse", "analyze"].map(|command| {
        Command::new(env!("CARGO_BIN_EXE_numaloc"))
            .args(["tasks", command, "--machine", "skylake-4s"])
            .arg(folder.path())
            .arg("-o")
            .arg(folder.path().join("plan"))
            .output()
            .expect("it runs")
    });
    assert!(!analyse.stdout.is_empty());
    assert_eq!(analyse.stdout, analyze.stdout);
    assert_eq!(analyse.status, analyze.status);
}
