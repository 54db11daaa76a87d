//! MPI programs on two hosts, each with its own name, network and /dev/shm, under Open MPI and under Slurm: the cells
//! are those of a run on one host, and ranks are where planned.
//!
//! The hosts are namespaces of this machine (`mpi/two-hosts`). Where a user may not create namespaces, nothing is
//! tested, which each test reports.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use crate::programs::workload;
use numaloc_model::{Layer, Profile};

const TWO_HOSTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mpi/two-hosts");
const OPEN_MPI: &str = "mpirun.openmpi --allow-run-as-root --oversubscribe --host n1:2,n2:2 --mca plm_rsh_agent $TWO/h/agent \
    --mca btl_tcp_if_include 10.9.0.0/24 --mca oob_tcp_if_include 10.9.0.0/24 -n 4";
const SLURM: &str = "srun --mpi=pmi2 -N 2 --ntasks-per-node=2 --overcommit --exclusive -n 4";

/// Whether namespaces can be made here.
fn possible() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let tried = Command::new(TWO_HOSTS).arg(dir.path()).arg("true").output();
    let possible = tried.is_ok_and(|tried| tried.status.success());
    if !possible {
        eprintln!("not tested: this user may not create two hosts (namespaces) here");
    }
    possible
}

/// Runs a shell's lines on the first of two hosts, in `dir`.
fn on_two_hosts(dir: &Path, options: &[&str], lines: &str) -> Output {
    let output = Command::new(TWO_HOSTS)
        .args(options)
        .args(["h", "bash", "-e", "-c", lines])
        .current_dir(dir)
        .env("numaloc", env!("CARGO_BIN_EXE_numaloc"))
        .env("TWO", dir.canonicalize().unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{lines}\n{said}");
    output
}

/// Messages and bytes by layer, sender and receiver.
fn cells(profile: &Profile, layer: Layer) -> BTreeMap<(u32, u32), (u64, u64)> {
    let mut cells = BTreeMap::new();
    for row in profile.communication() {
        if row.layer == layer {
            let sum = cells.entry((row.src.0, row.dst.0)).or_insert((0, 0));
            *sum = (sum.0 + row.events, sum.1 + row.bytes);
        }
    }
    cells
}

fn read(dir: &Path, name: &str) -> Profile {
    numaloc_formats::profile::read(&dir.join(name)).unwrap()
}

/// A cluster of two such hosts.
fn cluster(dir: &Path) {
    let xml = Command::new("lstopo-no-graphics")
        .args(["--of", "xml"])
        .output()
        .unwrap();
    std::fs::write(dir.join("node.xml"), xml.stdout).unwrap();
    let text = format!(
        "name = \"two\"\ndescription = \"two hosts\"\n[cluster]\nnetwork = {{ kind = \"tree\", arities = [2] }}\n\
         [[cluster.hosts]]\nnames = \"n[1-2]\"\nmachine = \"{}/node.xml\"\n",
        dir.display()
    );
    std::fs::write(dir.join("two.toml"), text).unwrap();
}

/// Where the two hosts write.
#[derive(Clone, Copy, PartialEq)]
enum Folder {
    /// A folder that both see.
    Shared,
    /// A folder of each host's own: `--gather`.
    Own,
}

/// Records on one host and on two, then plans for two and runs there.
fn recorded_planned_and_run(library: &str, one: &str, two: &str, options: &[&str], folder: Folder) {
    if !possible() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    cluster(dir.path());
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let (mut options, mut gather) = (options.to_vec(), "");
    if folder == Folder::Own {
        options.extend(["--hide", out.to_str().unwrap()]);
        gather = "--gather";
    }
    let program = format!("{} 100 40 10", workload(library, "pairs"));
    on_two_hosts(
        dir.path(),
        &options,
        &format!(
            "cd out
            $numaloc record --mpi={library} -q -o one.numaloc -- {one} {program}
            $numaloc record --mpi={library} -q {gather} -o two.numaloc -- {two} {program}
            $numaloc plan two.numaloc --machine ../two.toml -o plan.json >planned
            $numaloc run --plan plan.json --machine ../two.toml --require 100 {gather} -- {two} {program} 2>ran
            $TWO/h/agent n2 ls -A $PWD >../left"
        ),
    );
    let [one, two] = ["one.numaloc", "two.numaloc"].map(|name| read(&out, name));
    assert!(two.meta().complete, "{:?}", two.meta().notes);
    assert_eq!(cells(&one, Layer::Message), cells(&two, Layer::Message));
    assert_eq!(cells(&two, Layer::Message).len(), 8);
    let ran = std::fs::read_to_string(out.join("ran")).unwrap();
    assert!(ran.contains("4 of 4"), "{ran}");
    if folder == Folder::Own {
        // The other host had files of the ranks, and has none any more.
        let left = std::fs::read_to_string(dir.path().join("left")).unwrap();
        assert_eq!(left, "");
    }
}

fn under_open_mpi(folder: Folder) {
    let one = "mpirun.openmpi --allow-run-as-root --oversubscribe -n 4";
    recorded_planned_and_run("openmpi", one, OPEN_MPI, &[], folder);
}

fn under_slurm(folder: Folder) {
    recorded_planned_and_run("mpich", "mpiexec.hydra -n 4", SLURM, &["--slurm"], folder);
}

#[test]
fn ranks_of_open_mpi_on_hosts_without_a_shared_folder_are_recorded_and_are_where_planned() {
    under_open_mpi(Folder::Own);
}

#[test]
fn ranks_that_slurm_starts_on_two_hosts_are_recorded_and_are_where_planned() {
    under_slurm(Folder::Shared);
}

#[test]
#[ignore = "as long as the others together: make test-mpi-hosts"]
fn ranks_of_open_mpi_and_slurm_are_where_planned_with_the_other_kind_of_folder() {
    under_open_mpi(Folder::Shared);
    under_slurm(Folder::Own);
}

#[test]
fn files_that_a_killed_recorder_left_on_two_hosts_are_gathered_later() {
    if !possible() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let program = workload("openmpi", "pairs");
    on_two_hosts(
        dir.path(),
        &["--hide", out.to_str().unwrap()],
        &format!(
            "cd out
            $numaloc record --mpi=openmpi -q --gather -o a.numaloc -- {OPEN_MPI} \
                sh -c \"{program} 100 40 10; touch $PWD/done.\\$OMPI_COMM_WORLD_RANK; sleep 1000\" &
            recorder=$!
            until [ -e done.0 -a -e done.1 ] && $TWO/h/agent n2 test -e $PWD/done.2 -a -e $PWD/done.3; do sleep 0.05; done
            launcher=$(pgrep -P $recorder)
            kill -KILL $recorder
            kill $launcher
            while kill -0 $launcher 2>/dev/null; do sleep 0.05; done
            $TWO/h/agent n2 ls $PWD/.a.numaloc.recording-*/ranks >../there
            $numaloc record --salvage .a.numaloc.recording-* -o ../a.numaloc -q
            $TWO/h/agent n2 ls -A $PWD >../left",
        )
    );
    let profile = read(dir.path(), "a.numaloc");
    assert!(profile.meta().complete, "{:?}", profile.meta().notes);
    assert_eq!(cells(&profile, Layer::Message).len(), 8);
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(read("there").matches(".nlmpi").count(), 2);
    assert_eq!(read("left"), "done.2\ndone.3\n");
}

#[test]
fn a_library_of_others_has_the_same_cells_on_two_hosts() {
    if !possible() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = "from mpi4py import MPI\nc = MPI.COMM_WORLD\nr, n = c.rank, c.size\n\
                   for i in range(20):\n    c.sendrecv(b'x' * 1000, (r + 1) % n, source=(r - 1) % n)\n\
                   \x20   c.Send(bytearray(80 * r + 80), r ^ 1) if r % 2 == 0 else c.Recv(bytearray(80 * r), r ^ 1)\n";
    std::fs::write(dir.path().join("app.py"), program).unwrap();
    on_two_hosts(
        dir.path(),
        &[],
        &format!(
            "$numaloc record --mpi=openmpi -q -o one.numaloc -- mpirun.openmpi --allow-run-as-root --oversubscribe -n 4 /usr/bin/python3 app.py
            $numaloc record --mpi=openmpi -q -o two.numaloc -- {OPEN_MPI} /usr/bin/python3 app.py"
        ),
    );
    let [one, two] = ["one.numaloc", "two.numaloc"].map(|name| read(dir.path(), name));
    assert_eq!(cells(&one, Layer::Message), cells(&two, Layer::Message));
    assert_eq!(cells(&two, Layer::Message).len(), 4);
}

/// Records ranks that share memory through a file with the same name on both hosts. With process ids of its own, the
/// second host has a folder of its own too.
fn sharing(own: bool) -> Profile {
    let dir = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mpi/same_name.c");
    let name = format!("/dev/shm/numaloc-same-{}-{own}", std::process::id());
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let (options, gather) = match own {
        true => (vec!["--pids", "--hide", out.to_str().unwrap()], "--gather"),
        false => (vec![], ""),
    };
    on_two_hosts(
        dir.path(),
        &options,
        &format!(
            "mpicc.openmpi -O1 -o same_name {source}
            cd out
            $numaloc record --mpi=openmpi --frontend qemu {gather} -q -o two.numaloc -- {OPEN_MPI} $TWO/same_name {name} 20
            rm {name}
            $TWO/h/agent n2 ls -A $PWD >../left"
        ),
    );
    if own {
        let left = std::fs::read_to_string(dir.path().join("left")).unwrap();
        assert_eq!(left, "");
    }
    let two = read(&out, "two.numaloc");
    let rank = |thread: u32| two.threads()[thread as usize].rank.unwrap();
    // Message cells are those of the program, whatever traces it.
    for ((src, dst), amount) in cells(&two, Layer::Message) {
        assert_eq!((rank(src) + 2) % 4, rank(dst));
        assert_eq!(amount, (5, 4000));
    }
    assert_eq!(cells(&two, Layer::Message).len(), 4);
    two
}

/// Events between different ranks of each host.
fn within(two: &Profile) -> [u64; 2] {
    let rank = |thread: u32| two.threads()[thread as usize].rank.unwrap();
    let mut within = [0, 0];
    for ((src, dst), (events, _)) in cells(two, Layer::WriteRead) {
        let (src, dst) = (rank(src), rank(dst));
        assert_eq!(src / 2, dst / 2, "ranks {src} and {dst} share no memory");
        if src != dst {
            within[src as usize / 2] += events;
        }
    }
    within
}

/// Ranks that touched the memory behind the name, for each of its objects.
fn sharers(two: &Profile) -> Vec<Vec<u32>> {
    let objects = two.objects().iter().enumerate();
    let mut sharers: Vec<Vec<u32>> = objects
        .filter(|(_, object)| object.name.contains("numaloc-same"))
        .map(|(index, _)| {
            let pages = two.pages().pages().iter();
            let pages = pages.filter(|page| page.object.is_some_and(|o| o.index() == index));
            let mut ranks: Vec<u32> = pages
                .flat_map(|page| two.pages().accesses(page))
                .map(|access| two.threads()[access.thread.index()].rank.unwrap())
                .collect();
            ranks.sort_unstable();
            ranks.dedup();
            ranks
        })
        .collect();
    sharers.sort();
    sharers
}

#[test]
#[ignore = "as long as the one below: make test-mpi-hosts"]
fn memory_of_one_name_on_two_hosts_is_counted_within_each_host() {
    if !possible() {
        return;
    }
    let two = sharing(false);
    let within = within(&two);
    // 64 lines in each of 20 rounds, and what the MPI library itself shares.
    assert!(within[0] >= 1280 && within[1] >= 1280, "{within:?}");
    assert_eq!(sharers(&two), [[0, 1], [2, 3]]);
}

#[test]
fn on_a_host_without_the_recorder_the_ranks_count_shared_memory_together() {
    if !possible() {
        return;
    }
    let two = sharing(true);
    let within = within(&two);
    assert!(within[0] >= 1280 && within[1] >= 1280, "{within:?}");
    assert_eq!(sharers(&two), [[0, 1], [2, 3]]);
    let notes = two.meta().notes.join("\n");
    assert!(!notes.contains("on its own"), "{notes}");
}
