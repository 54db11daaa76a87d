//! Compiles the guest's agent: a static program at a fixed address, embedded in the library.

use std::path::PathBuf;
use std::process::Command;

/// The plugin recognises the agent's code by this address (`AGENT` in `crates/lab-plugin/src/hooks.rs`).
const AGENT_BASE: &str = "0x7a000000";

fn main() {
    println!("cargo::rerun-if-changed=guest");
    println!("cargo::rerun-if-env-changed=CC");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("agent");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args([
            "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-no-pie", "-fno-pie", "-s",
        ])
        .arg(format!("-Wl,-Ttext-segment={AGENT_BASE}"))
        .args(["guest/agent.c", "-o"])
        .arg(&out)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{compiler} could not build the lab's guest agent: {status}"),
        Err(error) => panic!("cannot run {compiler} to build the lab's guest agent: {error}"),
    }
}
