//! Compiles the preload libraries of `shims/mpi` with the system's C compiler. They need no MPI header
//! and link no MPI library, so they build everywhere; `include_bytes!` embeds them.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let shims = PathBuf::from(env("CARGO_MANIFEST_DIR")).join("../../shims/mpi");
    let out = PathBuf::from(env("OUT_DIR"));
    println!("cargo:rerun-if-changed={}", shims.display());
    println!("cargo:rerun-if-env-changed=CC");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let common = [
        "profiling.c",
        "collective_model.c",
        "library.c",
        "rank_file.c",
        "timing.c",
    ];
    let open_mpi = [&["openmpi.c"], &common[..]].concat();
    let libraries: [(&str, &[&str], &[&str]); 4] = [
        ("openmpi", &open_mpi, &["-DNUMALOC_FOR_OPEN_MPI"]),
        ("mpich", &common, &[]),
        ("where", &["where.c"], &[]),
        ("under", &["under.c"], &[]),
    ];
    for (library, sources, defines) in libraries {
        let status = Command::new(&compiler)
            .args(["-std=gnu11", "-O2", "-g0", "-fPIC", "-shared", "-pthread"])
            .args(["-Wall", "-Wextra", "-fvisibility=hidden", "-Wl,-z,lazy"])
            .args(defines)
            .arg("-o")
            .arg(out.join(format!("numaloc-{library}.so")))
            .args(sources.iter().map(|source| shims.join(source)))
            .arg("-ldl")
            .status()
            .unwrap_or_else(|error| panic!("cannot run the C compiler {compiler}: {error}"));
        assert!(
            status.success(),
            "{compiler} did not compile {sources:?}: {status}"
        );
    }
    merge_nodes(&compiler, &shims, &out);
}

/// Compiles the program that carries the messages of a merge, for each binary interface.
fn merge_nodes(compiler: &str, shims: &std::path::Path, out: &std::path::Path) {
    for (library, defines) in [("openmpi", &["-DNUMALOC_FOR_OPEN_MPI"][..]), ("mpich", &[])] {
        let status = Command::new(compiler)
            .args(["-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra"])
            .args(defines)
            .arg("-o")
            .arg(out.join(format!("numaloc-merge-{library}")))
            .args([shims.join("merge_node.c").as_os_str(), "-ldl".as_ref()])
            .status()
            .unwrap_or_else(|error| panic!("cannot run the C compiler {compiler}: {error}"));
        assert!(
            status.success(),
            "{compiler} did not compile merge_node.c: {status}"
        );
    }
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
