//! Records a program under its launcher and checks the profile.

mod support;

use std::ffi::OsString;

use numaloc_model::Layer;
use numaloc_model::profile::{Amount, Profile};
use numaloc_mpi::record::{Recording, record};
use numaloc_mpi::shims::MpiLibrary::{self, OpenMpi};
use numaloc_mpi::{MergeError, Options};
use support::workload;

fn recorded(argv: &[OsString], options: Options) -> (i32, Result<Profile, MergeError>) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut with_root = vec![
        "mpirun.openmpi".into(),
        "--allow-run-as-root".into(),
        "--oversubscribe".into(),
    ];
    with_root.extend_from_slice(argv);
    let spool = folder.path().join("spool");
    let recording = Recording {
        under: None,
        merging: None,
        gathering: None,
        argv: with_root,
        library: None,
        spool,
        slice_ns: None,
        options,
    };
    let recorded =
        record(&recording, &|mut command| command.status(), &|_| ()).expect("launcher runs");
    assert_eq!(recorded.library, OpenMpi);
    assert!(recorded.running.is_empty());
    (
        recorded.status,
        recorded.merged.map(|merged| merged.profile),
    )
}

#[test]
fn pairs_make_a_profile_with_two_halves() {
    let argv = [
        "-n".into(),
        "8".into(),
        workload(OpenMpi, "pairs").into(),
        "100".into(),
        "40".into(),
        "300".into(),
    ];
    let (status, profile) = recorded(&argv, Options::default());
    let profile = profile.expect("merges");
    assert_eq!(status, 0);
    assert!(profile.meta().complete, "{:?}", profile.meta().notes);
    let ranks: Vec<_> = profile
        .threads()
        .iter()
        .map(|t| (t.path.as_str(), t.rank))
        .collect();
    assert_eq!(ranks[7], ("r7", Some(7)));
    assert!(
        profile
            .threads()
            .iter()
            .all(|t| t.pid > 0 && t.end > t.start)
    );

    // 40 messages of 100 doubles = 32000 bytes to r^1 and to 7-r; the program sends nothing else.
    let bytes = profile.matrix(Layer::Message, Amount::Bytes).unwrap();
    let events = profile.matrix(Layer::Message, Amount::Events).unwrap();
    for r in 0..8 {
        assert_eq!(
            (bytes.get(r, r ^ 1), bytes.get(r, 7 - r)),
            (32_000.0, 32_000.0)
        );
        assert_eq!((events.get(r, r ^ 1), events.get(r, 7 - r)), (40.0, 40.0));
    }
    assert_eq!(bytes.total(), 16.0 * 32_000.0);
    assert_eq!(profile.layers(), [Layer::Message]);

    // There is a pause of 300 ms between the halves: no slice has both partners of rank 0 (1 and 7).
    let slices = profile.slices().len() as u32;
    for s in 0..slices {
        let m = profile
            .matrix_of_slices(Layer::Message, Amount::Bytes, s..s + 1)
            .unwrap();
        assert!(m.get(0, 1) == 0.0 || m.get(0, 7) == 0.0, "slice {s}");
    }
    let windows = profile.slices().windows(2);
    assert!(
        windows
            .into_iter()
            .all(|w| w[0].end == w[1].start && w[0].start < w[0].end)
    );
}

#[test]
fn collectives_are_a_layer_of_their_own() {
    // 4 ranks: 25 * 200 doubles to each neighbour in a line (3 pairs, both directions), and an Allreduce of
    // 8 bytes.
    let (_, profile) = recorded(
        &[
            "-n".into(),
            "4".into(),
            workload(OpenMpi, "halo_module").into(),
        ],
        Options::default(),
    );
    let profile = profile.expect("merges");
    let total = |layer| profile.matrix(layer, Amount::Bytes).unwrap().total();
    assert_eq!(total(Layer::Message), 6.0 * 40_000.0);
    // Recursive doubling: each of 4 ranks sends 8 bytes twice.
    assert_eq!(total(Layer::Collective), 4.0 * 2.0 * 8.0);
}

#[test]
fn limits_coarsen_time_and_keep_sums() {
    let argv = ["-n".into(), "8".into(), workload(OpenMpi, "pairs").into()];
    let (_, profile) = recorded(
        &argv,
        Options {
            slices: 4,
            rows: 40,
            ..Options::default()
        },
    );
    let profile = profile.expect("merges");
    assert!(profile.slices().len() <= 4);
    let bytes = profile.matrix(Layer::Message, Amount::Bytes).unwrap();
    assert_eq!(bytes.total(), 16.0 * 400_000.0);
}

#[test]
fn the_programs_exit_status_passes_through() {
    let (status, merged) = recorded(
        &[
            "-n".into(),
            "1".into(),
            "sh".into(),
            "-c".into(),
            "exit 7".into(),
        ],
        Options::default(),
    );
    assert_eq!(status, 7);
    assert!(matches!(merged, Err(MergeError::NoRanks)));
}

#[test]
fn the_library_of_a_program_is_read_from_its_file() {
    for library in [MpiLibrary::OpenMpi, MpiLibrary::Mpich] {
        let program = workload(library, "ring");
        assert_eq!(MpiLibrary::of_executable(&program), Some(library));
    }
    assert_eq!(MpiLibrary::of_executable("/bin/sh".as_ref()), None);
    assert_eq!(MpiLibrary::of_executable("/etc/hostname".as_ref()), None);
}

/// The notes of a profile of these rank files.
fn notes(files: &[std::path::PathBuf]) -> String {
    let merged = numaloc_mpi::merge(files, &["it".to_owned()], Options::default());
    merged.expect("merges").profile.meta().notes.join("\n")
}

#[test]
fn what_is_left_out_is_reported() {
    // Messages to itself: two times 500 of 8 bytes.
    for library in [OpenMpi, MpiLibrary::Mpich] {
        let mut argv = vec![workload(library, "pingpong").into()];
        argv.extend(support::words(&["500", "2"]));
        let notes_text = notes(&support::trace_ok(library, 1, &argv, &[]).files);
        let to_self = "1000 messages of ranks to themselves, 8000 bytes together, are left out";
        assert!(
            notes_text.contains(to_self),
            "{}: {notes_text}",
            library.name()
        );
    }
    for library in [OpenMpi, MpiLibrary::Mpich] {
        let ring = workload(library, "ring");
        let run = support::trace_ok(library, 3, &[ring.into()], &[]);
        let whole = notes(&run.files);
        assert!(
            !whole.contains("left out") && !whole.contains("wrote no file"),
            "{whole}"
        );
        // The host of a rank does not see the folder: reported with its number and the hosts that do.
        let kept = run.files.iter().filter(|file| {
            !file
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("rank-1-"))
        });
        let kept: Vec<_> = kept.into_iter().cloned().collect();
        let notes_text = notes(&kept);
        let host = numaloc_mpi::rank_file::RankFile::open(&kept[0])
            .expect("opens")
            .header()
            .host
            .clone();
        let missing = format!(
            "1 of 3 ranks wrote no file, rank 1 first; files came from {host}: do all hosts see"
        );
        assert!(
            !host.is_empty() && notes_text.contains(&missing),
            "{notes_text}"
        );
        // A rank that was started without a launcher is a world of its own, not one of MPI_Comm_spawn.
        let alone = std::process::Command::new(workload(library, "ep"))
            .envs(
                numaloc_mpi::shims::install(library, run.folder.path(), 0).expect("shim installs"),
            )
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .output()
            .expect("runs");
        assert!(alone.status.success(), "{alone:?}");
        let notes_text =
            notes(&numaloc_mpi::shims::rank_files(run.folder.path()).expect("folder lists"));
        let single = "1 processes of 1 other worlds are left out: of one process each, started without a launcher";
        assert!(
            notes_text.contains(single) && !notes_text.contains("spawn"),
            "{}: {notes_text}",
            library.name()
        );
    }
}
