//! Processes are threads here; a real MPI carries the messages in `tests/merging.rs`.

use super::*;
use crate::peers::threads::threads;
use crate::shims::rank_files;

#[path = "../../../tests/support/ranks.rs"]
mod ranks;

use ranks::Halo;

fn shared(folder: &Path, options: Options, size: usize) -> Result<Merged, MergeError> {
    let peers = threads(size);
    std::thread::scope(|scope| {
        for mut peers in peers {
            scope.spawn(move || share(&mut peers, folder, options).unwrap());
        }
    });
    result(folder, &["mpirun".to_owned()], options)
}

fn serial(folder: &Path, options: Options) -> Result<Merged, MergeError> {
    let files = rank_files(folder).unwrap();
    super::super::merge(&files, &["mpirun".to_owned()], options)
}

/// 36 ranks, one of them without a file, one with a damaged end, and a file that is none.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let halo = Halo {
        grid: [3, 3, 4],
        seconds: 3,
        period_ms: 7,
    };
    for rank in (0..halo.ranks()).filter(|rank| *rank != 5) {
        halo.write(rank, folder.path()).unwrap();
    }
    let cut = folder.path().join("rank-7-7-0.nlmpi");
    let length = cut.metadata().unwrap().len();
    let file = std::fs::File::options().write(true).open(cut).unwrap();
    file.set_len(length - 100).unwrap();
    std::fs::write(folder.path().join("rank-8.nlmpi"), "none").unwrap();
    folder
}

#[test]
fn any_number_of_processes_merges_to_the_same_profile() {
    let folder = folder();
    for rows in [usize::MAX >> 1, 5000, 900, 10] {
        let options = Options {
            slices: 500,
            rows,
            memory: false,
        };
        let one = serial(folder.path(), options).unwrap();
        assert!(one.profile.communication().len() <= rows.max(1000));
        assert!(!one.profile.meta().complete);
        for size in [1, 2, 3, 5, 40] {
            let many = shared(folder.path(), options, size).unwrap();
            assert_eq!(one.profile, many.profile, "{size} processes, {rows} rows");
            assert_eq!(one.sites, many.sites);
        }
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 36, "only rank files");
}

#[test]
fn an_error_of_any_process_is_the_error_of_the_merge() {
    let folder = folder();
    // In a world of one rank, the file's peers are outside.
    let small = Halo {
        grid: [2, 2, 2],
        seconds: 1,
        period_ms: 500,
    };
    for rank in (1..8).filter(|rank| *rank != 5) {
        let elsewhere = tempfile::tempdir().unwrap();
        small.write(rank, elsewhere.path()).unwrap();
        let name = format!("rank-{rank}-{rank}-0.nlmpi");
        let mut bytes = std::fs::read(elsewhere.path().join(&name)).unwrap();
        bytes[20..24].copy_from_slice(&36u32.to_le_bytes());
        let end = bytes[12] as usize - 4;
        let sum = crc32fast::hash(&bytes[..end]);
        bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
        // A block with a peer that the world lacks.
        let first = end + 4;
        let payload = u32::from_le_bytes(bytes[first + 4..first + 8].try_into().unwrap()) as usize;
        bytes[first + 24..first + 28].copy_from_slice(&99u32.to_le_bytes());
        let sum = crc32fast::hash(&bytes[first..first + 24 + payload]);
        bytes[first + 24 + payload..first + 28 + payload].copy_from_slice(&sum.to_le_bytes());
        let original = std::fs::read(folder.path().join(&name)).unwrap();
        std::fs::write(folder.path().join(&name), bytes).unwrap();
        let one = serial(folder.path(), Options::default())
            .unwrap_err()
            .to_string();
        assert!(one.contains("names peer 99"), "{one}");
        for size in [1, 2, 5] {
            let many = shared(folder.path(), Options::default(), size).unwrap_err();
            assert_eq!(one, many.to_string(), "{size} processes");
        }
        std::fs::write(folder.path().join(&name), original).unwrap();
    }
    let empty = tempfile::tempdir().unwrap();
    let one = serial(empty.path(), Options::default()).unwrap_err();
    let many = shared(empty.path(), Options::default(), 3).unwrap_err();
    assert_eq!(one.to_string(), many.to_string());
}

#[test]
fn a_damaged_result_is_refused() {
    let folder = folder();
    shared(folder.path(), Options::default(), 2).unwrap();
    let mut alone = threads(1).remove(0);
    share(&mut alone, folder.path(), Options::default()).unwrap();
    let whole = std::fs::read(folder.path().join(RESULT)).unwrap();
    for at in [0, 9, 20, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x41;
        for bytes in [&damaged[..], &whole[..at]] {
            std::fs::write(folder.path().join(RESULT), bytes).unwrap();
            assert!(
                result(folder.path(), &[], Options::default()).is_err(),
                "{at}"
            );
        }
    }
}
