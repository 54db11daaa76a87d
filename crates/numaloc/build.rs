//! Passes the git commit that is built to the program, as `NUMALOC_BUILD`: text that follows the version.
//!
//! `NUMALOC_COMMIT` overrides it, for packages built from a source archive. Without both there is no commit. Debug
//! builds do not ask git, because every new commit would then compile the program again.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=NUMALOC_COMMIT");
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let given = std::env::var("NUMALOC_COMMIT").ok();
    let given = given.filter(|commit| !commit.is_empty());
    let build = match given.or_else(|| release.then(commit).flatten()) {
        Some(commit) => format!(" ({commit})"),
        None if release => String::new(),
        None => " (debug build)".to_owned(),
    };
    println!("cargo:rustc-env=NUMALOC_BUILD={build}");
}

/// The commit of the folder that contains this crate; `None` outside a git repository of numaloc.
fn commit() -> Option<String> {
    // A source archive may be unpacked inside the repository of another project.
    let root = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    let own = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR")?).join("../..");
    if root.canonicalize().ok()? != own.canonicalize().ok()? {
        return None;
    }
    // The log changes with every commit and checkout; repositories without logs have HEAD.
    for file in ["logs/HEAD", "HEAD"] {
        let path = PathBuf::from(git(&["rev-parse", "--git-path", file])?);
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
