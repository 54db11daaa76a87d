//! The gcc plugin that reports the accesses of a loop with one call (`shims/gcc/loops.cc`).
//!
//! A plugin works only with the compiler build whose headers it was compiled with. So it is built by that compiler on
//! first use, tested on a loop, and kept in the user's cache folder under a hash of the compiler's description.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::compiler::Compiler;
use crate::error::CliError;

const SOURCE: &str = include_str!("../../../../../shims/gcc/loops.cc");

/// A loop to test the plugin on, and the symbol that its output must contain.
const TRIAL: &str =
    "void add(double *a, const double *b, long n) { for (long i = 0; i < n; i++) a[i] += b[i]; }";
const ANNOUNCED: &str = "__numaloc_loop_1";

/// Whether the accesses of a loop are reported with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Loops {
    /// One call per loop if the compiler supports it: gcc with its plugin headers installed
    Auto,
    /// One call per access
    Off,
    /// Like auto, but fail if the compiler does not support it
    Require,
}

/// Path of the plugin for `compiler`, built on first use.
///
/// # Errors
/// Says why there is no plugin.
pub fn plugin(compiler: &Compiler) -> Result<PathBuf, CliError> {
    let Some(version) = compiler.version_of_gcc() else {
        return Err(CliError::tool("cannot report loops with one call")
            .expected("gcc, g++ or gfortran, which the plugin is for")
            .hint("leave --loops out"));
    };
    let kept = cache_folder()?.join(name(compiler, version));
    if kept.is_file() {
        return Ok(kept);
    }
    // A failure repeats until compiler, headers or plugin change.
    let headers = headers(compiler, version)?;
    let failed = kept.with_extension("failed");
    if let Ok(reason) = std::fs::read_to_string(&failed) {
        return Err(CliError::tool(reason).hint(format!(
            "remove {} to try again, or use --loops off",
            failed.display()
        )));
    }
    match build(compiler, &headers, &kept) {
        Ok(()) => Ok(kept),
        Err(error) => {
            // Best effort: the file only avoids the next attempt.
            let _ = std::fs::write(&failed, &error.message);
            Err(error)
        }
    }
}

fn cache_folder() -> Result<PathBuf, CliError> {
    let set = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    // HOME may be unset, as in services and containers; the account database still has the folder.
    let home = || set("HOME").or_else(std::env::home_dir);
    let base = set("XDG_CACHE_HOME").or_else(|| Some(home()?.join(".cache")));
    let base = base.ok_or_else(|| {
        CliError::tool("cannot keep the plugin for gcc: no cache folder")
            .hint("set XDG_CACHE_HOME or HOME, or use --loops off")
    })?;
    let folder = base.join("numaloc/gcc");
    std::fs::create_dir_all(&folder)
        .map_err(|error| CliError::tool(format!("cannot make {}: {error}", folder.display())))?;
    Ok(folder)
}

/// File name of the plugin, unique for each compiler and each version of the plugin.
fn name(compiler: &Compiler, version: u32) -> String {
    let mut hasher = DefaultHasher::new();
    (SOURCE, compiler.described()).hash(&mut hasher);
    format!("loops-{version}-{:016x}.so", hasher.finish())
}

/// The folder of the compiler's plugin headers.
fn headers(compiler: &Compiler, version: u32) -> Result<PathBuf, CliError> {
    let answer = compiler
        .command()
        .arg("-print-file-name=plugin")
        .output()
        .map_err(|error| compiler.cannot_run(&error))?;
    let folder = Path::new(String::from_utf8_lossy(&answer.stdout).trim()).join("include");
    if folder.join("gcc-plugin.h").is_file() {
        return Ok(folder);
    }
    Err(CliError::tool(format!(
        "cannot report loops with one call: the plugin headers of gcc {version} are missing ({})",
        folder.display()
    ))
    .hint(format!(
        "apt-get install gcc-{version}-plugin-dev (Debian), or use --loops off"
    )))
}

/// Builds the plugin, tests it, and moves it to `kept`.
fn build(compiler: &Compiler, headers: &Path, kept: &Path) -> Result<(), CliError> {
    let folder = kept.parent().expect("a file in the cache folder");
    let unwritten = |error| CliError::tool(format!("cannot write {}: {error}", kept.display()));
    let unfinished = tempfile::Builder::new()
        .prefix(".loops-")
        .suffix(".so")
        .tempfile_in(folder)
        .map_err(unwritten)?
        .into_temp_path();
    let mut building = compiler.command();
    building
        // Libraries that a wrapper adds are not needed by the plugin.
        .args(["-Wl,--as-needed", "-x", "c++", "-shared", "-fPIC", "-O2"])
        .args(["-fno-rtti", "-fno-exceptions", "-w", "-I"])
        .args([headers.as_os_str(), "-".as_ref(), "-o".as_ref()])
        .arg(&unfinished);
    fed(&mut building, SOURCE, "cannot build the plugin for gcc")?;
    let mut plugin = std::ffi::OsString::from("-fplugin=");
    plugin.push(&unfinished);
    let mut trying = compiler.command();
    trying
        .arg(plugin)
        .args(["-fsanitize=thread", "-fno-tree-loop-distribute-patterns"])
        .args(["-O2", "-x", "c", "-S", "-", "-o", "-"]);
    let assembly = fed(&mut trying, TRIAL, "cannot use the plugin for gcc")?;
    if !assembly.contains(ANNOUNCED) {
        return Err(CliError::tool(
            "cannot use the plugin for gcc: it changes nothing",
        ));
    }
    unfinished
        .persist(kept)
        .map_err(|error| unwritten(error.error))
}

/// Runs `command` with `input` on its standard input; returns its output.
fn fed(command: &mut Command, input: &str, failed: &str) -> Result<String, CliError> {
    let failed = |reason: &str| CliError::tool(format!("{failed}: {reason}"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error.to_string()))?;
    // A write error is ignored: a compiler that ends early reports why.
    let _ = child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes());
    let output = child
        .wait_with_output()
        .map_err(|error| failed(&error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find(|line| line.contains("error"));
    Err(failed(line.or(said.lines().next()).unwrap_or("no reason")))
}
