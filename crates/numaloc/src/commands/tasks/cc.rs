//! `numaloc tasks cc`: runs the compiler with our header and library.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::code_of;
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

/// Location of ocr.h and the library: `NUMALOC_OCR_HOME` (with `include` and `lib`), the installation of
/// this program, or its build tree.
struct Home {
    include: PathBuf,
    library: PathBuf,
}

impl Home {
    fn find() -> Result<Self, CliError> {
        let mut tried = Vec::new();
        let mut candidates = Vec::new();
        if let Some(home) = std::env::var_os("NUMALOC_OCR_HOME") {
            let home = PathBuf::from(home);
            candidates.push((home.join("include"), home.join("lib")));
        }
        if let Some(bin) = std::env::current_exe()
            .ok()
            .as_deref()
            .and_then(Path::parent)
        {
            candidates.push((bin.join("../include"), bin.join("../lib")));
            for up in ["../..", "../../.."] {
                candidates.push((bin.join(up).join("crates/tasks/include"), bin.to_owned()));
            }
        }
        for (include, library) in candidates {
            if include.join("ocr.h").is_file() && library.join("libnumaloc_ocr.so").is_file() {
                let real = |path: &Path| path.canonicalize().unwrap_or(path.to_owned());
                return Ok(Self {
                    include: real(&include),
                    library: real(&library),
                });
            }
            tried.push(format!("{} and {}", include.display(), library.display()));
        }
        Err(
            CliError::tool("cannot find ocr.h and libnumaloc_ocr.so".to_owned())
                .expected(format!("them in {}", tried.join("; or ")))
                .hint("cargo build -p numaloc-ocr, or set NUMALOC_OCR_HOME")
                .status(125),
        )
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
        Ok(code_of(status))
    }
}
