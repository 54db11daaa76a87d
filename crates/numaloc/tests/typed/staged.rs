//! A folder with the files that the shown command lines read, made with the real commands.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use crate::support;

/// An OpenMP program that accepts any arguments: threads use neighbouring parts of an array that the main thread made.
const APP: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    enum { cells = 1 << 16, rounds = 8 };
    double *from = malloc(cells * sizeof *from), *to = malloc(cells * sizeof *to), sum = 0;
    for (int i = 0; i < cells; i++)
        from[i] = to[i] = i % 7;
    for (int round = 0; round < rounds; round++) {
        #pragma omp parallel for
        for (int i = 1; i < cells - 1; i++)
            to[i] = (from[i - 1] + from[i] + from[i + 1]) / 3;
        double *other = from;
        from = to;
        to = other;
    }
    for (int i = 0; i < cells; i++)
        sum += from[i];
    printf("%.3f\n", sum);
    free(from);
    free(to);
    return 0;
}
"#;

/// Ranks in a ring, each with a parallel loop: the `./app` of mpirun.
const RANKS: &str = r#"
#include <mpi.h>
int main(int argc, char **argv)
{
    int rank, ranks;
    static double mine[4096], theirs[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = 0; round < 4; round++) {
        #pragma omp parallel for num_threads(2)
        for (int i = 0; i < 4096; i++)
            mine[i] += theirs[i] + rank;
        MPI_Sendrecv(mine, 4096, MPI_DOUBLE, (rank + 1) % ranks, 0, theirs, 4096, MPI_DOUBLE,
                     (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return MPI_Finalize();
}
"#;

/// Inputs of all lines, made once.
static INPUTS: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path());
    folder
});

/// All lines print to one stream, as in a terminal: `numaloc` is on the PATH, ranks share the cores.
pub fn shell(folder: &Path, line: &str) -> Command {
    let tool = Path::new(env!("CARGO_BIN_EXE_numaloc"));
    let path = std::env::var("PATH").expect("a PATH");
    let tools = tool.parent().expect("a folder").display();
    let mut command = Command::new("bash");
    command
        .args(["-c", &format!("exec 2>&1; set -o pipefail; {line}")])
        .current_dir(folder)
        .env("PATH", format!("{tools}:{path}"))
        .env_remove("OMP_NUM_THREADS")
        .env("GITHUB_STEP_SUMMARY", "summary.md")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    command
}

/// A folder for one page with all inputs in it.
pub fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(INPUTS.path()).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        symlink(&path, folder.path().join(name)).expect("a link");
    }
    std::fs::create_dir(folder.path().join("demo-out")).expect("a folder");
    std::fs::create_dir(folder.path().join("target")).expect("a folder");
    let workloads = support::workload("stencil2d");
    let workloads = workloads.parent().expect("a folder");
    let workloads = workloads.canonicalize().expect("a path");
    symlink(workloads, folder.path().join("target/workloads")).expect("a link");
    folder
}

/// Makes `name` that of another input: `app` is the program with ranks where mpirun starts it.
pub fn point(folder: &Path, name: &str, input: &str) {
    let link = folder.join(name);
    remove(&link);
    symlink(INPUTS.path().join(input), link).expect("a link");
}

/// Removes what an earlier line or the stage left under the name of an output.
pub fn remove(path: &Path) {
    let is_folder = path.symlink_metadata().is_ok_and(|data| data.is_dir());
    if is_folder {
        std::fs::remove_dir_all(path).expect("removed");
    } else if path.symlink_metadata().is_ok() {
        std::fs::remove_file(path).expect("removed");
    }
}

fn make(folder: &Path) {
    let run = |line: &str| {
        support::ok(&mut shell(folder, line));
    };
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).expect("written");
    };
    write("app.c", APP);
    write("stencil.c", APP);
    write("ranks.c", RANKS);
    // For `make CC=...`: the shown line builds whatever project the user has.
    write("Makefile", "built: stencil.c\n\t$(CC) -fopenmp -o $@ $<\n");
    run("gcc -O1 -fopenmp app.c -o app && cp app server && cp app stencil");
    run("mpicc.openmpi -O1 -fopenmp ranks.c -o ranks && cp ranks hybrid");
    let workloads = support::root().join("workloads/ocr");
    let workloads = workloads.canonicalize().expect("a path");
    let stencil = std::fs::read_to_string(workloads.join("stencil2d/stencil2d.c")).expect("text");
    write(
        "stencil2d.c",
        &stencil.replace("../", &format!("{}/", workloads.display())),
    );
    run("numaloc record --quiet --trace -o app.numaloc -- ./app");
    for name in [
        "before", "after", "small", "medium", "large", "run1", "run2", "run3", "baseline", "b1",
        "b2",
    ] {
        symlink("app.numaloc", folder.join(format!("{name}.numaloc"))).expect("a link");
    }
    run("numaloc simulate app.numaloc --machine purple --json > simulated.json");
    run("numaloc record --quiet --mpi -o ranks.numaloc -- mpirun -n 16 ./ranks");
    run("numaloc export ranks.numaloc --layer message -o bytes.csv");
    run("numaloc lab topology --output lab.xml");
    run("lstopo-no-graphics node.xml");
    write("hosts", "n01 slots=8\nn02 slots=8\n");
    run("numaloc topology --hostfile hosts --host node.xml -o cluster.toml");
    run("numaloc plan app.numaloc -o plan.json && cp plan.json joint.json");
    run("numaloc plan app.numaloc --machine lab.xml -o lab.json");
    run("numaloc lab topology --nodes 2 --cpus 4 --output two.xml");
    run("numaloc plan app.numaloc --machine two.xml -o two.json");
    run("numaloc plan ranks.numaloc -o ranks.json");
    run("numaloc plan ranks.numaloc --machine cluster.toml -o cluster.json");
    for policy in ["locality", "deloc"] {
        run(&format!(
            "numaloc plan app.numaloc --machine epyc-7501 --threads {policy} --pages mixed -o {policy}.json"
        ));
    }
    run(
        "numaloc export app.numaloc -o matrix.csv && cp matrix.csv sp.csv && cp matrix.csv SP-OMP.csv",
    );
    run("numaloc export app.numaloc --format npy -o matrix.npy");
    run("numaloc export app.numaloc --format eagermap -o app.full.6.comm.csv");
    run("numaloc export app.numaloc --pages -o app.full.page.csv");
    write("mesh.mtx", &mesh(32));
    // A recording whose recorder was killed leaves this folder. Its program, which goes on, holds no output open.
    run(
        "numaloc record --quiet -o cut.numaloc -- sleep 60 > cut.out 2>&1 & \
         until ls .cut.numaloc.recording-*/*.journal > found 2>&1; do sleep 0.1; done; \
         kill -9 %1 && mv .cut.numaloc.recording-* .app.numaloc.recording-x1",
    );
    run("perf record -q -d -c 1 -e page-faults:u -o perf.data -- ./app");
}

/// A square mesh as MatrixMarket: each point with its right and its lower neighbour.
fn mesh(side: usize) -> String {
    let at = |x: usize, y: usize| y * side + x + 1;
    let mut pairs = Vec::new();
    for y in 0..side {
        for x in 0..side {
            if x + 1 < side {
                pairs.push((at(x + 1, y), at(x, y)));
            }
            if y + 1 < side {
                pairs.push((at(x, y + 1), at(x, y)));
            }
        }
    }
    let rows: String = pairs.iter().map(|(i, j)| format!("{i} {j}\n")).collect();
    let head = "%%MatrixMarket matrix coordinate pattern symmetric";
    let points = side * side;
    format!("{head}\n{points} {points} {}\n{rows}", pairs.len())
}
