//! Ranks whose memory accesses are traced too: how a frontend gets into them through any launcher.
//!
//! The launcher's command line stays as it is. Under QEMU, a preloaded library makes each rank become the emulator before its
//! program begins (`shims/mpi/under.c`); programs built with `numaloc cc` trace themselves. Either way the rank's threads are
//! named after the rank that the launcher told it: `r3`, `r3.1`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::launcher::Launcher;
use crate::shims::{Environment, MpiLibrary};

const UNDER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/numaloc-under.so"));

/// How the ranks' memory accesses are traced.
#[derive(Clone, Debug)]
pub struct Under {
    /// What runs the ranks' program; `None` for programs that trace themselves.
    pub emulator: Option<Emulator>,
    /// What the tracer, or the program, is told.
    pub environment: Environment,
}

/// An emulator with a plugin.
#[derive(Clone, Debug)]
pub struct Emulator {
    /// Its file.
    pub file: PathBuf,
    /// Its `-plugin` option, without the thread path and the program.
    pub plugin: OsString,
}

/// The variable in which a launcher tells a process its rank.
#[must_use]
pub fn rank_variable(launcher: Launcher, library: MpiLibrary) -> &'static str {
    match (launcher, library) {
        (Launcher::OpenMpi, _) => "OMPI_COMM_WORLD_RANK",
        (Launcher::Prrte, _) => "PMIX_RANK",
        (Launcher::Hydra, _) => "PMI_RANK",
        (Launcher::Slurm, _) => "SLURM_PROCID",
        // A script that calls a launcher somewhere inside: that of its library.
        (Launcher::None, MpiLibrary::OpenMpi) => "OMPI_COMM_WORLD_RANK",
        (Launcher::None, MpiLibrary::Mpich) => "PMI_RANK",
    }
}

/// Changes the ranks' environment (see [`crate::shims::install`]) so that they are traced. `folder` is one that every host sees.
///
/// # Errors
/// The kernel's, when the library cannot be written.
pub fn install(
    under: &Under,
    folder: &Path,
    variable: &'static str,
    library: MpiLibrary,
    environment: &mut Environment,
) -> std::io::Result<()> {
    environment.extend(under.environment.iter().cloned());
    environment.push(("NUMALOC_RANK_VARIABLE", variable.into()));
    let Some(Emulator { file, plugin }) = &under.emulator else {
        return Ok(());
    };
    let shim = folder.join("numaloc-under.so");
    std::fs::write(&shim, UNDER)?;
    let preload = environment
        .iter_mut()
        .find(|(name, _)| *name == "LD_PRELOAD");
    let inside = preload.map(|(_, value)| std::mem::replace(value, shim.into_os_string()));
    environment.extend([
        ("NUMALOC_UNDER", file.clone().into_os_string()),
        ("NUMALOC_UNDER_PLUGIN", plugin.clone()),
        ("NUMALOC_UNDER_PRELOAD", inside.unwrap_or_default()),
    ]);
    if library == MpiLibrary::OpenMpi {
        // The emulator has no process_vm_readv for its programs, which the library would try for each long message. The
        // component's name up to 4.1, and from 5.0 on.
        environment.push(("OMPI_MCA_btl_vader_single_copy_mechanism", "none".into()));
        environment.push(("OMPI_MCA_smsc", "^cma".into()));
    } else if std::env::var_os("UCX_TLS").is_none() {
        // Debian's MPICH sits on UCX, whose TCP transport hangs in MPI_Finalize under the emulator (three runs of eight, without
        // any plugin). Shared memory does not, and is seen.
        environment.push(("UCX_TLS", "posix,self".into()));
    }
    Ok(())
}
