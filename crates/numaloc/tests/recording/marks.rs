//! Marks: both exact frontends record the places of a program that every run passes, with the same counts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{numaloc, ok, root};
use numaloc_model::marks::is_recorded;
use numaloc_model::{MarkKind, Profile};

/// Five steps, of which two have a second region; 2,000 barriers of two threads; a thread of the program's own.
const PROGRAM: &str = r#"
#include <numaloc.h>
#include <pthread.h>
static long total, times;
static void *alone(void *argument) { return argument; }
static void first(void)
{
#pragma omp parallel num_threads(2)
    {
#pragma omp atomic
        total++;
#pragma omp barrier
#pragma omp atomic
        total++;
    }
}
static void second(void)
{
#pragma omp parallel num_threads(2)
    for (long i = 0; i < times; i++) {
#pragma omp barrier
#pragma omp atomic
        total++;
    }
}
int main(int argc, char **argv)
{
    times = argc > 1 ? 1000 : 1;
    for (int step = 0; step < 5; step++) {
        numaloc_mark("step");
        first();
        if (step % 2)
            second();
    }
    pthread_t thread;
    pthread_create(&thread, 0, alone, 0);
    pthread_join(thread, 0);
    return total != 5 * 4 + 2 * 2 * times;
}
"#;

const FRONTENDS: [&str; 3] = ["qemu", "native", "instrument"];

fn build(folder: &Path, instrumented: bool) -> PathBuf {
    let source = folder.join("steps.c");
    std::fs::write(&source, PROGRAM).unwrap();
    let program = folder.join(if instrumented { "built" } else { "steps" });
    let mut command = match instrumented {
        true => numaloc(&["cc", "--", "gcc"]),
        false => Command::new("gcc"),
    };
    command.arg("-I").arg(root().join("shims/include"));
    command.args(["-O1", "-fopenmp", "-pthread", "-o"]);
    ok(command.arg(&program).arg(&source));
    program
}

fn recorded(folder: &Path, frontend: &str, arguments: &[&str]) -> Profile {
    let program = build(folder, frontend == "instrument");
    let profile = folder.join("recorded.numaloc");
    let _ = std::fs::remove_dir_all(&profile);
    let mut command = numaloc(&["record", "--quiet", "--frontend", frontend, "-o"]);
    ok(command.arg(&profile).arg("--").arg(program).args(arguments));
    numaloc_formats::profile::read(&profile).unwrap()
}

/// By kind and name (of regions' functions the part that the program names), the recorded passes.
fn passes(profile: &Profile) -> BTreeMap<(MarkKind, String), Vec<u64>> {
    let mut found: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for mark in profile.marks() {
        let name = mark.place.name.split('.').next().unwrap().to_owned();
        let passes = found.entry((mark.place.kind, name)).or_default();
        passes.push(mark.occurrence);
    }
    found.values_mut().for_each(|passes| passes.sort_unstable());
    found
}

#[test]
fn the_frontends_record_the_same_passes_of_regions_barriers_threads_and_user_marks() {
    let folder = tempfile::tempdir().unwrap();
    for frontend in FRONTENDS {
        let profile = recorded(folder.path(), frontend, &[]);
        let found: BTreeMap<_, u64> = passes(&profile)
            .into_iter()
            .map(|((kind, name), passes)| {
                // Few passes are all recorded, each once.
                let count = passes.len() as u64;
                assert_eq!(passes, (1..=count).collect::<Vec<_>>(), "{kind:?} {name}");
                ((kind, name), count)
            })
            .collect();
        let expected = [
            (MarkKind::Region, "first", 5),
            (MarkKind::Region, "second", 2),
            // Two threads at each barrier.
            (MarkKind::Barrier, "GOMP_barrier", 2 * (5 + 2)),
            // The team's second thread, and the program's own.
            (MarkKind::Thread, "pthread_create", 2),
            (MarkKind::User, "step", 5),
        ];
        let expected = expected.map(|(kind, name, count)| ((kind, name.to_owned()), count));
        assert_eq!(found, BTreeMap::from(expected), "{frontend}");
        // A step's mark comes before its region, in the profile's clock.
        let times = |kind, name: &str| -> Vec<u64> {
            let marks = profile.marks().iter();
            let of = marks.filter(|m| m.place.kind == kind && m.place.name.starts_with(name));
            of.map(|mark| mark.time).collect()
        };
        let steps = times(MarkKind::User, "step");
        let regions = times(MarkKind::Region, "first");
        assert!(
            steps
                .iter()
                .zip(&regions)
                .all(|(step, region)| step <= region)
        );
        assert!(
            regions
                .iter()
                .zip(&steps[1..])
                .all(|(region, next)| region <= next)
        );
    }
}

#[test]
fn a_place_that_is_passed_often_has_few_rows() {
    let folder = tempfile::tempdir().unwrap();
    for frontend in FRONTENDS {
        let profile = recorded(folder.path(), frontend, &["often"]);
        let barriers = (MarkKind::Barrier, "GOMP_barrier".to_owned());
        let all = 2 * (5 + 2 * 1000);
        let expected: Vec<u64> = (1..=all).filter(|&pass| is_recorded(pass)).collect();
        assert!(expected.len() < 2100);
        assert_eq!(passes(&profile)[&barriers], expected, "{frontend}");
    }
}
