//! MPI programs on two hosts, each with its own name, network and /dev/shm, under Open MPI and under Slurm: the cells
//! are those of a run on one host, and ranks are where planned.
//!
//! The hosts are namespaces of this machine (`mpi/two-hosts`). Where a user may not create namespaces, nothing is
//! tested, which each test reports.

#[path = "mpi/programs.rs"]
mod programs;
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use numaloc_model::{Layer, Profile};
use programs::workload;

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

/// Records on one host and on two, then plans for two and runs there: in a folder that both hosts see and, with
/// `--gather`, in `out`, where each host has files of its own.
fn recorded_planned_and_run(library: &str, one: &str, two: &str, options: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    cluster(dir.path());
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let options = [options, &["--hide", out.to_str().unwrap()]].concat();
    let program = format!("{} 100 40 10", workload(library, "pairs"));
    on_two_hosts(
        dir.path(),
        &options,
        &format!(
            "$numaloc record --mpi={library} -q -o one.numaloc -- {one} {program}
            $numaloc record --mpi={library} -q -o two.numaloc -- {two} {program}
            $numaloc record --mpi={library} -q --gather -o out/own.numaloc -- {two} {program}
            $numaloc plan out/own.numaloc --machine two.toml -o plan.json >planned
            h/agent n2 ls -A $TWO/out >left
            cd out
            $numaloc run --plan ../plan.json --machine ../two.toml --require 100 --gather -- {two} {program} 2>../ran
            cd ..
            h/agent n2 ls -A $TWO/out >>left"
        ),
    );
    let [one, two, own] =
        ["one", "two", "out/own"].map(|name| read(dir.path(), &format!("{name}.numaloc")));
    for on_two in [&two, &own] {
        assert!(on_two.meta().complete, "{:?}", on_two.meta().notes);
        assert_eq!(cells(&one, Layer::Message), cells(on_two, Layer::Message));
        assert_eq!(cells(on_two, Layer::Message).len(), 8);
    }
    let ran = std::fs::read_to_string(dir.path().join("ran")).unwrap();
    assert!(ran.contains("4 of 4"), "{ran}");
    // The other host had files of the ranks, and has none any more.
    let left = std::fs::read_to_string(dir.path().join("left")).unwrap();
    assert_eq!(left, "");
}

#[test]
fn ranks_of_open_mpi_on_two_hosts_are_recorded_and_are_where_planned() {
    if possible() {
        let one = "mpirun.openmpi --allow-run-as-root --oversubscribe -n 4";
        recorded_planned_and_run("openmpi", one, OPEN_MPI, &[]);
    }
}

#[test]
fn ranks_that_slurm_starts_on_two_hosts_are_recorded_and_are_where_planned() {
    if possible() {
        let one = "mpiexec.hydra -n 4";
        recorded_planned_and_run("mpich", one, SLURM, &["--slurm"]);
    }
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

#[test]
fn memory_that_ranks_share_is_counted_within_each_host() {
    if !possible() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = format!("{} 100 40 10", workload("openmpi", "pairs"));
    on_two_hosts(
        dir.path(),
        &[],
        &format!(
            "$numaloc record --mpi=openmpi --frontend qemu -q -o two.numaloc -- {OPEN_MPI} {program}"
        ),
    );
    let two = read(dir.path(), "two.numaloc");
    let rank = |thread: u32| two.threads()[thread as usize].rank.unwrap();
    let mut within = [0, 0];
    for ((src, dst), (events, _)) in cells(&two, Layer::WriteRead) {
        let hosts = [rank(src) / 2, rank(dst) / 2];
        assert_eq!(
            hosts[0],
            hosts[1],
            "ranks {} and {} share no memory",
            rank(src),
            rank(dst)
        );
        if rank(src) != rank(dst) {
            within[hosts[0] as usize] += events;
        }
    }
    assert!(within[0] > 0, "{within:?}");
    // Message cells are those of the program, whatever traces it.
    let bytes = |src, dst| {
        let cells = cells(&two, Layer::Message);
        let found = cells
            .iter()
            .find(|((s, d), _)| (rank(*s), rank(*d)) == (src, dst));
        found.map_or(0, |(_, (_, bytes))| *bytes)
    };
    assert_eq!([bytes(0, 1), bytes(0, 3), bytes(2, 1)], [32_000; 3]);
}
