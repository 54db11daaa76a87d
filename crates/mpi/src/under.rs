//! Traces the memory accesses of ranks too: inserts a frontend into the ranks through any launcher.
//!
//! The launcher's command line stays unchanged. For QEMU and the native frontend, a preloaded library makes each rank
//! execute the emulator or translator before its program begins (`shims/mpi/under.c`); programs built with `numaloc cc`
//! trace themselves. Either way the paths of the rank's threads start with the rank number given by the launcher: `r3`,
//! `r3.1`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::launcher::Launcher;
use crate::shims::{Environment, MpiLibrary, UNDER};

/// How the ranks' memory accesses are traced.
#[derive(Clone, Debug)]
pub struct Under {
    /// Runs the ranks' program; `None` for programs that trace themselves.
    pub emulator: Option<Emulator>,
    /// Environment for the tracer or the program.
    pub environment: Environment,
}

/// An emulator with a plugin, or our translator.
#[derive(Clone, Debug)]
pub struct Emulator {
    /// Its file.
    pub file: PathBuf,
    /// Settings of the recording, without the thread path.
    pub settings: Settings,
}

/// How an emulator gets the settings of a recording.
#[derive(Clone, Debug)]
pub enum Settings {
    /// QEMU: in its `-plugin` option, without the program.
    Plugin(OsString),
    /// The native frontend: in its `--record` option.
    Record(OsString),
}

/// The variable in which a launcher passes a process its rank.
#[must_use]
pub fn rank_variable(launcher: Launcher, library: MpiLibrary) -> &'static str {
    match (launcher, library) {
        (Launcher::OpenMpi, _) => "OMPI_COMM_WORLD_RANK",
        (Launcher::Prrte, _) => "PMIX_RANK",
        (Launcher::Hydra | Launcher::Intel, _) => "PMI_RANK",
        (Launcher::Slurm, _) => "SLURM_PROCID",
        // A script that starts a launcher internally: the variable of its library.
        (Launcher::None, MpiLibrary::OpenMpi) => "OMPI_COMM_WORLD_RANK",
        (Launcher::None, MpiLibrary::Mpich) => "PMI_RANK",
    }
}

/// Changes the ranks' environment (see [`crate::shims::install`]) so that they are traced. Every host must see
/// `folder`.
///
/// # Errors
/// The kernel's error if the library cannot be written.
pub fn install(
    under: &Under,
    folder: &Path,
    variable: &'static str,
    library: MpiLibrary,
    environment: &mut Environment,
) -> std::io::Result<()> {
    environment.extend(under.environment.iter().cloned());
    environment.push(("NUMALOC_RANK_VARIABLE", variable.into()));
    let Some(Emulator { file, settings }) = &under.emulator else {
        return Ok(());
    };
    let (name, content) = UNDER;
    let shim = folder.join(name);
    std::fs::write(&shim, content)?;
    let preload = environment
        .iter_mut()
        .find(|(name, _)| *name == "LD_PRELOAD");
    let inside = preload.map(|(_, value)| std::mem::replace(value, shim.into_os_string()));
    environment.extend([
        ("NUMALOC_UNDER", file.clone().into_os_string()),
        match settings {
            Settings::Plugin(plugin) => ("NUMALOC_UNDER_PLUGIN", plugin.clone()),
            Settings::Record(settings) => ("NUMALOC_UNDER_RECORD", settings.clone()),
        },
        ("NUMALOC_UNDER_PRELOAD", inside.unwrap_or_default()),
    ]);
    if library == MpiLibrary::OpenMpi {
        // The emulator does not provide process_vm_readv, which the library would try for each long message; copies by
        // the kernel would not be recorded natively. The component's name up to 4.1, and from 5.0 on.
        environment.push(("OMPI_MCA_btl_vader_single_copy_mechanism", "none".into()));
        environment.push(("OMPI_MCA_smsc", "^cma".into()));
    } else if std::env::var_os("UCX_TLS").is_none() {
        // Debian's MPICH uses UCX, whose TCP transport hangs in MPI_Finalize under the emulator (three runs of eight,
        // without any plugin). Shared memory does not hang, and is traced.
        environment.push(("UCX_TLS", "posix,self".into()));
    }
    Ok(())
}
