//! `numaloc tasks cc`: runs the compiler with our header and library.

use std::path::{Path, PathBuf};
use std::process::Command;

use numaloc_launch::{OWN_FAILURE, Part, exit_status, sibling};

use crate::error::CliError;

/// Compile an OCR program: the C compiler with our ocr.h and libnumaloc_ocr
#[derive(clap::Args)]
pub(super) struct Cc {
    /// Compiler to run
    #[arg(long, value_name = "COMPILER", default_value = "cc")]
    compiler: String,
    /// Link libnumaloc_ocr.a into the program instead of the shared library
    #[arg(long)]
    r#static: bool,
    /// Arguments for the compiler
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    arguments: Vec<String>,
}

/// Environment variable with a folder that has ocr.h in `include` and the libraries in `lib`.
const CHOSEN: &str = "NUMALOC_OCR_HOME";

/// The folders of ocr.h and of the library: those in `NUMALOC_OCR_HOME`, or those that belong to this program.
struct Home {
    include: PathBuf,
    library: PathBuf,
}

impl Home {
    fn find() -> Result<Self, CliError> {
        let home = std::env::var_os(CHOSEN).map(PathBuf::from);
        let folder = |name: &str, part, inside: &str| -> Result<PathBuf, CliError> {
            let chosen = home.as_ref().map(|home| home.join(inside).into());
            let file = sibling(name, part, chosen).map_err(|why| {
                CliError::tool(format!("cannot compile an OCR program: {why}"))
                    .hint(why.hint(CHOSEN))
                    .status(OWN_FAILURE)
            })?;
            Ok(file.parent().map(Path::to_owned).unwrap_or_default())
        };
        Ok(Self {
            include: folder("ocr.h", Part::Header, "include")?,
            library: folder("libnumaloc_ocr.so", Part::Library, "lib")?,
        })
    }
}

impl Cc {
    pub(super) fn run(&self) -> Result<u8, CliError> {
        let home = Home::find()?;
        let mut command = Command::new(&self.compiler);
        command.arg(format!("-I{}", home.include.display()));
        command.args(&self.arguments);
        // When only compiling, libraries are left out: compilers warn about unused ones.
        let compiles_only = ["-c", "-S", "-E", "-fsyntax-only"]
            .iter()
            .any(|flag| self.arguments.iter().any(|given| given == flag));
        if !compiles_only {
            if self.r#static {
                command.arg(home.library.join("libnumaloc_ocr.a"));
                command.args([
                    "-lhwloc",
                    "-ltbb",
                    "-ltbbmalloc",
                    "-lstdc++",
                    "-lm",
                    "-lpthread",
                    "-ldl",
                ]);
            } else {
                command.arg(format!("-L{}", home.library.display()));
                command.arg(format!("-Wl,-rpath,{}", home.library.display()));
                command.args(["-lnumaloc_ocr", "-lm"]);
            }
        }
        let status = command.status().map_err(|error| {
            CliError::tool(format!(
                "cannot run the compiler {}: {error}",
                self.compiler
            ))
            .status(127)
        })?;
        Ok(exit_status(status))
    }
}
