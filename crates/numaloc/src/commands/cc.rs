//! `numaloc cc`: a compiler prefix that builds instrumented programs.

mod compiler;
mod loops;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use numaloc_launch::Part;

use self::compiler::Compiler;
use self::loops::Loops;
use crate::error::CliError;
use crate::ui::Ui;

/// Compile and link a program for the instrumentation frontend: put it before the compiler
///
/// The compiler's thread-sanitizer instrumentation reports every load, store and atomic to numaloc's
/// run-time library, which is linked instead of the sanitizer's. With gcc, a plugin reports the
/// accesses of a loop with one call, so that loops stay nearly as fast as in a native build. The
/// program records nothing unless `numaloc record` starts it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc cc -- gcc -O2 -fopenmp stencil.c -o stencil
  make CC=\"numaloc cc -- gcc\" FC=\"numaloc cc -- gfortran\"
  numaloc record -o stencil.numaloc -- ./stencil")]
pub struct Args {
    /// Whether the accesses of a loop are reported with one call, by a gcc plugin that is built on
    /// first use
    #[arg(long, value_enum, default_value_t = Loops::Auto, value_name = "WHEN")]
    loops: Loops,
    /// The compiler and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMPILER ARGS"
    )]
    command: Vec<OsString>,
}

const LIBRARY: &str = "libnumaloc_instrument.a";

/// Symbols that libraries may call although the program does not: linked from our library in any case.
const WANTED: &[&str] = &[
    "__tsan_init",
    "__numaloc_loop_1",
    "__numaloc_looped_1",
    "pthread_create",
    "pthread_join",
    "malloc",
    "calloc",
    "realloc",
    "free",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "mmap",
    "mremap",
    "munmap",
    "mlockall",
    "munlockall",
    "memcpy",
    "memmove",
    "memset",
    "_exit",
];

/// What a compiler invocation produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Objects, assembly or preprocessed text; nothing is linked.
    Compile,
    /// A shared object; the program that loads it provides the library.
    Shared,
    /// A program.
    Program,
}

fn step(arguments: &[OsString]) -> Step {
    let has = |wanted: &[&str]| arguments.iter().any(|a| wanted.iter().any(|w| a == w));
    if has(&[
        "-c",
        "-S",
        "-E",
        "-M",
        "-MM",
        "-fsyntax-only",
        "--version",
        "-v",
        "-dumpversion",
        "-dumpmachine",
    ]) {
        Step::Compile
    } else if has(&["-shared"]) {
        Step::Shared
    } else {
        Step::Program
    }
}

impl Args {
    /// Runs the compiler and returns its status.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let (compiler, arguments) = self.command.split_first().expect("clap requires one");
        if arguments.iter().any(|a| a == "-static") {
            return Err(
                CliError::usage("cannot instrument a program linked with -static")
                    .expected("a dynamically linked program")
                    .hint(
                        "leave -static out, or record the static program as it is (frontend qemu)",
                    ),
            );
        }
        let compiler = Compiler::ask(compiler)?;
        let stubs = tempfile::tempdir()
            .map_err(|error| CliError::tool(format!("cannot make a temporary folder: {error}")))?;
        let mut command = compiler.command();
        command
            .args(arguments)
            .args(["-fsanitize=thread", "-U__SANITIZE_THREAD__", "-g"]);
        if compiler.is_clang() {
            // A load followed by a store to the same address is reported too, with one call for both.
            command.args(["-mllvm", "-tsan-compound-read-before-write=1"]);
            // Function entry and exit are not recorded; without these calls small functions stay small.
            command.args(["-mllvm", "-tsan-instrument-func-entry-exit=0"]);
            command.args(["-mllvm", "-tsan-handle-cxx-exceptions=0"]);
            // clang vectorises before it instruments and does not instrument accesses of more than 16 bytes.
            command.arg("-mprefer-vector-width=128");
        } else {
            if compiler.version_of_gcc() >= Some(11) {
                command.arg("--param=tsan-instrument-func-entry-exit=0");
            }
            // Copies and fills of known size become calls, which are recorded; inline ones are not instrumented.
            command.args([
                "-mmemcpy-strategy=libcall:-1:noalign",
                "-mmemset-strategy=libcall:-1:noalign",
            ]);
            // Loops must not become fills or copies, whose accesses would be recorded a second time.
            command.arg("-fno-tree-loop-distribute-patterns");
        }
        let step = step(arguments);
        if let Some(plugin) = self.plugin(&compiler, step, ui)? {
            command.arg(plugin);
        }
        match step {
            Step::Compile => {}
            Step::Shared => {
                without_sanitizer(&mut command, &compiler, stubs.path())?;
            }
            Step::Program => {
                without_sanitizer(&mut command, &compiler, stubs.path())?;
                // Resets a language set by earlier arguments: this file is for the linker.
                command.args(["-x", "none"]).arg(library()?);
                for symbol in WANTED {
                    command.arg(format!("-Wl,-u,{symbol}"));
                }
                for symbols in ["__tsan_*", "__numaloc_loop*"] {
                    command.arg(format!("-Wl,--export-dynamic-symbol={symbols}"));
                }
                command.arg("-lm");
            }
        }
        let status = command
            .status()
            .map_err(|error| compiler.cannot_run(&error))?;
        Ok(status.code().map_or(crate::error::TOOL, |code| code as u8))
    }

    /// The option that loads the loop plugin, if wanted and possible.
    fn plugin(
        &self,
        compiler: &Compiler,
        step: Step,
        ui: &Ui,
    ) -> Result<Option<OsString>, CliError> {
        if self.loops == Loops::Off || self.loops == Loops::Auto && compiler.is_clang() {
            return Ok(None);
        }
        match loops::plugin(compiler) {
            Ok(path) => {
                let mut option = OsString::from("-fplugin=");
                option.push(path);
                Ok(Some(option))
            }
            Err(error) if self.loops == Loops::Require => Err(error),
            Err(error) => {
                // Shown only when linking on a terminal: scripts parse the output of compilers.
                if step == Step::Program && ui.progress() {
                    let hint = error.hint.as_deref().unwrap_or_default();
                    ui.remark(format_args!(
                        "loops will be slower than necessary: {}; {hint}",
                        error.message
                    ));
                }
                Ok(None)
            }
        }
    }
}

/// Keeps the sanitizer's own library out of the link.
fn without_sanitizer(
    command: &mut Command,
    compiler: &Compiler,
    stubs: &Path,
) -> Result<(), CliError> {
    if compiler.is_clang() {
        command.arg("-fno-sanitize-link-runtime");
        return Ok(());
    }
    // gcc links these two by name and searches this folder first: an archive without members and an empty
    // linker script.
    let write = |name: &str, content: &str| {
        std::fs::write(stubs.join(name), content).map_err(|error| {
            CliError::tool(format!(
                "cannot write {}: {error}",
                stubs.join(name).display()
            ))
        })
    };
    write("libtsan.a", "!<arch>\n")?;
    write("libtsan_preinit.o", "/* nothing */\n")?;
    let mut prefix = OsString::from("-B");
    prefix.push(stubs);
    prefix.push("/");
    let mut folder = OsString::from("-L");
    folder.push(stubs);
    command.arg(prefix).arg(folder);
    Ok(())
}

/// Path of the run-time library that belongs to this program, or the one in `NUMALOC_PLUGIN_DIR`.
pub fn library() -> Result<PathBuf, CliError> {
    const CHOSEN: &str = "NUMALOC_PLUGIN_DIR";
    numaloc_launch::sibling(LIBRARY, Part::Library, std::env::var_os(CHOSEN)).map_err(|why| {
        CliError::tool(format!("cannot find the run-time library: {why}")).hint(why.hint(CHOSEN))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_is_detected_from_the_arguments() {
        let of = |line: &str| step(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of("-c a.c"), Step::Compile);
        assert_eq!(of("-O2 a.c -o a"), Step::Program);
        assert_eq!(of("-shared -fPIC a.o -o a.so"), Step::Shared);
    }
}
