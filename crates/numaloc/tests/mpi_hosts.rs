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
const OPEN_MPI: &str = "mpirun.openmpi --allow-run-as-root --oversubscribe --host n1:2,n2:2 --mca plm_rsh_agent $PWD/h/agent \
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
    let text = "name = \"two\"\ndescription = \"two hosts\"\n[cluster]\nnetwork = { kind = \"tree\", arities = [2] }\n\
                [[cluster.hosts]]\nnames = \"n[1-2]\"\nmachine = \"node.xml\"\n";
    std::fs::write(dir.join("two.toml"), text).unwrap();
}

/// Records on one host and on two, then plans for two and runs there.
fn recorded_planned_and_run(library: &str, one: &str, two: &str, options: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    cluster(dir.path());
    let program = format!("{} 100 40 10", workload(library, "pairs"));
    on_two_hosts(
        dir.path(),
        options,
        &format!(
            "$numaloc record --mpi={library} -q -o one.numaloc -- {one} {program}
            $numaloc record --mpi={library} -q -o two.numaloc -- {two} {program}
            $numaloc plan two.numaloc --machine two.toml -o plan.json >planned
            $numaloc run --plan plan.json --machine two.toml --require 100 -- {two} {program} 2>ran"
        ),
    );
    let [one, two] = ["one.numaloc", "two.numaloc"].map(|name| read(dir.path(), name));
    assert!(two.meta().complete, "{:?}", two.meta().notes);
    assert_eq!(cells(&one, Layer::Message), cells(&two, Layer::Message));
    assert_eq!(cells(&two, Layer::Message).len(), 8);
    let ran = std::fs::read_to_string(dir.path().join("ran")).unwrap();
    assert!(ran.contains("4 of 4"), "{ran}");
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
