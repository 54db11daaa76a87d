//! The plugin for gcc that announces the accesses of a loop at once (`shims/gcc/loops.cc`).
//!
//! A plugin fits the very compiler whose headers it was built with. So it is built by that compiler when it is first used, tried on a
//! loop, and kept in the user's cache folder under what the compiler says of itself.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::compiler::Compiler;
use crate::error::CliError;

const SOURCE: &str = include_str!("../../../../../shims/gcc/loops.cc");

/// A loop that the plugin is tried on, and what must come out.
const TRIAL: &str =
    "void add(double *a, const double *b, long n) { for (long i = 0; i < n; i++) a[i] += b[i]; }";
const ANNOUNCED: &str = "__numaloc_loop_1";

/// Whether the accesses of loops are announced at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Loops {
    /// One call per loop if the compiler supports it: gcc with its plugin headers installed
    Auto,
    /// One call per access
    Off,
    /// Like auto, but fail if the compiler does not support it
    Require,
}

/// The plugin for `compiler`, built if this is the first time. An error says why there is none.
pub fn plugin(compiler: &Compiler) -> Result<PathBuf, CliError> {
    let Some(version) = compiler.version_of_gcc() else {
        return Err(CliError::tool("cannot announce loops at once")
            .expected("gcc, g++ or gfortran: the plugin is theirs")
            .hint("leave --loops out"));
    };
    let kept = cache_folder()?.join(name(compiler, version));
    if kept.is_file() {
        return Ok(kept);
    }
    // What has failed fails again until compiler, headers or plugin change.
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
            // Only saves the next attempt.
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
    // Where HOME is not set, as in services and containers, the account's folder is known.
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

/// A name of its own for each compiler and each version of the plugin.
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
        "cannot announce loops at once: the plugin headers of gcc {version} are missing ({})",
        folder.display()
    ))
    .hint(format!(
        "apt-get install gcc-{version}-plugin-dev (Debian), or use --loops off"
    )))
}

/// Builds the plugin, and moves it to `kept` when it works.
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
        // A wrapper's own libraries are not the plugin's.
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

/// What `command` writes when it reads `input`.
fn fed(command: &mut Command, input: &str, failed: &str) -> Result<String, CliError> {
    let failed = |reason: &str| CliError::tool(format!("{failed}: {reason}"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error.to_string()))?;
    // A compiler that ends early says why itself.
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
