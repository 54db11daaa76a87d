//! The preload libraries and the environment that loads them into the ranks.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::read::elf::{Dyn, ElfFile64, FileHeader};

use crate::launcher::Launcher;

/// The MPI library of a program, as far as tracing depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpiLibrary {
    /// Open MPI: its monitoring layer reports every message it sends.
    OpenMpi,
    /// MPICH and libraries with its binary interface (Intel MPI, MVAPICH, Cray MPICH): traced by the profiling
    /// interface.
    Mpich,
}

const OPEN_MPI: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/numaloc-openmpi.so"));
const MPICH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/numaloc-mpich.so"));

/// The library through which a rank becomes an emulator ([`crate::under`]), and its file name.
pub(crate) const UNDER: (&str, &[u8]) = (
    "numaloc-under.so",
    include_bytes!(concat!(env!("OUT_DIR"), "/numaloc-under.so")),
);
/// The library through which a rank reports where it is ([`crate::run`]), and its file name.
pub(crate) const WHERE: (&str, &[u8]) = (
    "numaloc-where.so",
    include_bytes!(concat!(env!("OUT_DIR"), "/numaloc-where.so")),
);

/// The content of the library with this file name.
pub(crate) fn content_of(name: &OsStr) -> Option<&'static [u8]> {
    let tracers = [MpiLibrary::OpenMpi, MpiLibrary::Mpich];
    let mut tracers = tracers.into_iter();
    let tracer = tracers.find(|library| name == &*library.shim_name());
    let others = [UNDER, WHERE];
    let other = || others.into_iter().find(|(known, _)| name == *known);
    tracer
        .map(MpiLibrary::shim)
        .or_else(|| other().map(|(_, content)| content))
}

impl MpiLibrary {
    /// Name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
        }
    }

    /// The preload library's bytes.
    #[must_use]
    pub fn shim(self) -> &'static [u8] {
        match self {
            Self::OpenMpi => OPEN_MPI,
            Self::Mpich => MPICH,
        }
    }

    /// File name of the preload library.
    #[must_use]
    pub fn shim_name(self) -> String {
        format!("numaloc-{}.so", self.name())
    }

    /// The library that uses this soname.
    fn of_soname(name: &[u8]) -> Option<Self> {
        // MPICH's binary interface is libmpi.so.12 (Debian: libmpich.so.12); Open MPI's is libmpi.so.40 and up.
        if name.starts_with(STANDARD) {
            None
        } else if name.starts_with(b"libmpich.so") || name == b"libmpi.so.12" {
            Some(Self::Mpich)
        } else if name.starts_with(b"libmpi.so") || name.starts_with(b"libmpi_") {
            Some(Self::OpenMpi)
        } else {
            None
        }
    }

    /// The name that users know.
    fn title(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        }
    }

    /// The MPI library that an executable is linked against; `None` for scripts, statically linked
    /// programs and anything that is not a 64-bit ELF file.
    #[must_use]
    pub fn of_executable(path: &Path) -> Option<Self> {
        find_needed(path, Self::of_soname)
    }

    /// The MPI library of a command line: that of the first word that names an executable linked against MPI
    /// (looked up in `PATH` as a shell does), else that of the launcher.
    #[must_use]
    pub fn of_command(argv: &[OsString], launcher: Launcher) -> Option<Self> {
        let programs = argv.iter().skip(usize::from(launcher != Launcher::None));
        programs
            .filter_map(|word| numaloc_launch::find(word).ok())
            .find_map(|path| Self::of_executable(&path))
            .or(match launcher {
                Launcher::OpenMpi | Launcher::Prrte => Some(Self::OpenMpi),
                Launcher::Hydra | Launcher::Intel => Some(Self::Mpich),
                Launcher::Slurm | Launcher::None => None,
            })
    }
}

/// The soname of the interface that MPI 5 standardises.
const STANDARD: &[u8] = b"libmpi_abi.so";

/// The first answer of `of` for the libraries that an executable is linked against.
fn find_needed<T>(path: &Path, of: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let bytes = std::fs::read(path).ok()?;
    let elf = ElfFile64::<object::Endianness>::parse(&*bytes).ok()?;
    let endian = elf.endian();
    let sections = elf.elf_header().sections(endian, &*bytes).ok()?;
    let (dynamic, link) = sections.dynamic(endian, &*bytes).ok()??;
    let strings = sections.strings(endian, &*bytes, link).ok()?;
    dynamic
        .iter()
        .filter(|entry| entry.d_tag(endian) == u64::from(object::elf::DT_NEEDED))
        .filter_map(|entry| entry.string(endian, strings).ok())
        .find_map(of)
}

/// The first program of a command line that is linked against the standard binary interface.
#[must_use]
pub fn standard_interface(argv: &[OsString]) -> Option<String> {
    let uses = |path: &Path| find_needed(path, |name| name.starts_with(STANDARD).then_some(()));
    let mut words = argv.iter();
    let found =
        words.find(|word| numaloc_launch::find(word).is_ok_and(|path| uses(&path).is_some()));
    found.map(|word| word.to_string_lossy().into_owned())
}

/// What happens if the launcher is another library's than the program's: its processes do not find each other.
#[must_use]
pub fn foreign(argv: &[OsString], launcher: Launcher) -> Option<String> {
    let of_launcher = match launcher {
        Launcher::OpenMpi | Launcher::Prrte => MpiLibrary::OpenMpi,
        Launcher::Hydra | Launcher::Intel => MpiLibrary::Mpich,
        Launcher::Slurm | Launcher::None => return None,
    };
    let (program, library) = argv.iter().skip(1).find_map(|word| {
        let path = numaloc_launch::find(word).ok()?;
        Some((word, MpiLibrary::of_executable(&path)?))
    })?;
    (library != of_launcher).then(|| {
        format!(
            "{} is linked against {}, but {} is {}'s: each process will be a program of one rank",
            program.to_string_lossy(),
            library.title(),
            argv[0].to_string_lossy(),
            of_launcher.title()
        )
    })
}

/// The environment that ranks need, in the order in which it must be set.
pub type Environment = Vec<(&'static str, OsString)>;

/// The value of `LD_PRELOAD` that loads `library` before all libraries in the present value.
///
/// # Errors
/// For a path that the loader would split: it separates libraries by blanks and colons and supports no quotes
/// (ld.so(8)).
pub(crate) fn preloaded(library: &Path) -> std::io::Result<OsString> {
    let mut preload = library.as_os_str().to_owned();
    let cuts = |byte: &u8| *byte == b':' || byte.is_ascii_whitespace();
    if preload.as_bytes().iter().any(cuts) {
        let message = "the loader cannot load a library from a folder with a blank or a colon in its path: choose another folder";
        return Err(std::io::Error::new(ErrorKind::InvalidInput, message));
    }
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    Ok(preload)
}

/// Enables Open MPI's monitoring layer.
const MONITORING: &str = "OMPI_MCA_pml_monitoring_enable";

/// The value that enables the monitoring layer. Values above 1 distinguish the messages of collectives; 3 lets the
/// preload library leave the library's own counters at 0. If the user enabled monitoring, 3 is not used, so the
/// counters work.
fn monitoring() -> &'static str {
    let chosen = std::env::var_os(MONITORING);
    if chosen.is_some_and(|value| value != "0") {
        "2"
    } else {
        "3"
    }
}

/// Writes the preload library into `folder`, which every host must see. Returns the environment
/// with which each rank writes its file there. `zero_ns`: realtime clock at the start of the run.
///
/// # Errors
/// The kernel's error if the library cannot be written.
pub fn install(library: MpiLibrary, folder: &Path, zero_ns: u64) -> std::io::Result<Environment> {
    let shim = folder.join(library.shim_name());
    let preload = preloaded(&shim)?;
    std::fs::write(&shim, library.shim())?;
    let mut environment = vec![
        ("LD_PRELOAD", preload),
        ("NUMALOC_MPI_DIR", folder.as_os_str().to_owned()),
        ("NUMALOC_MPI_T0", zero_ns.to_string().into()),
    ];
    if library == MpiLibrary::OpenMpi {
        environment.push((MONITORING, monitoring().into()));
    }
    Ok(environment)
}

/// The command line that passes `environment` on to ranks on other hosts. Open MPI forwards only
/// variables named in options; Hydra and Slurm forward everything.
#[must_use]
pub fn forwarding(
    argv: &[OsString],
    launcher: Launcher,
    environment: &Environment,
) -> Vec<OsString> {
    let mut forwarded = argv.to_vec();
    if matches!(launcher, Launcher::OpenMpi | Launcher::Prrte) {
        let options = environment
            .iter()
            .flat_map(|(name, _)| ["-x", name])
            .map(OsString::from);
        forwarded.splice(1..1, options);
    }
    forwarded
}

/// The rank files in `folder`, ordered by name.
///
/// # Errors
/// The kernel's error if the folder cannot be listed.
pub fn rank_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("nlmpi")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_the_loader_would_cut_is_refused() {
        assert!(preloaded(Path::new("/tmp/p.numaloc/ranks/a.so")).is_ok());
        for path in [
            "/tmp/with blanks/a.so",
            "/tmp/1:2/a.so",
            "/tmp/tab\tbed/a.so",
        ] {
            assert!(preloaded(Path::new(path)).is_err(), "{path}");
        }
    }
}
