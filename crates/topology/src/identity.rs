//! The identity of this machine, which a plan must match. It is cached so that starting a program under
//! a plan does not wait for a full discovery (about 15 ms on two PUs, more on large machines).
//!
//! The cache is a file of the user (`$XDG_RUNTIME_DIR/numaloc`, else
//! `$XDG_CACHE_HOME/numaloc` or `~/.cache/numaloc`) keyed by everything that can change the identity: the boot, online
//! PUs and nodes, this process's PUs and nodes, its cgroup, hwloc's variables, and our version. Without
//! such a folder, or if the file does not match exactly, the machine is discovered.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::error::TopologyError;
use crate::source::from_this_machine;
use crate::tree::Topology;

/// Counts the changes of what the discovery finds on one machine.
const DISCOVERY: u32 = 2;

/// The identity of a machine, for comparison with a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// [`Topology::fingerprint`].
    pub fingerprint: String,
    /// [`Topology::summary`].
    pub summary: String,
    /// Number of NUMA nodes.
    pub nodes: usize,
}

impl From<&Topology> for Identity {
    fn from(machine: &Topology) -> Self {
        Self {
            fingerprint: machine.fingerprint(),
            summary: machine.summary(),
            nodes: machine.nodes().len(),
        }
    }
}

/// The identity of this machine, from the cache if nothing has changed since the last discovery.
///
/// # Errors
/// Those of [`from_this_machine`].
pub fn identity_of_this_machine() -> Result<Identity, TopologyError> {
    let state = state();
    let path = folder().map(|folder| folder.join("machine"));
    let stored = path
        .as_ref()
        .and_then(|path| std::fs::read_to_string(path).ok());
    if let Some(known) = stored.and_then(|text| parse(&text, &state)) {
        return Ok(known);
    }
    let identity = Identity::from(&from_this_machine()?);
    if let Some(path) = path {
        // Only a cache: if this fails, the next start takes some milliseconds longer.
        let _ = store(&path, &format(&identity, &state));
    }
    Ok(identity)
}

fn format(identity: &Identity, state: &str) -> String {
    let Identity {
        fingerprint,
        summary,
        nodes,
    } = identity;
    format!("{fingerprint}\n{nodes}\n{summary}\n{state}")
}

fn parse(text: &str, state: &str) -> Option<Identity> {
    let mut parts = text.splitn(4, '\n');
    let identity = Identity {
        fingerprint: parts.next()?.to_owned(),
        nodes: parts.next()?.parse().ok()?,
        summary: parts.next()?.to_owned(),
    };
    (parts.next()? == state && !state.is_empty()).then_some(identity)
}

/// Everything that the discovery depends on, as text; empty if the boot id is not known.
fn state() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let boot = read("/proc/sys/kernel/random/boot_id");
    if boot.is_empty() {
        return boot;
    }
    let mut state = format!("{} {DISCOVERY}\n{boot}", env!("CARGO_PKG_VERSION"));
    for path in [
        "/sys/devices/system/cpu/online",
        "/sys/devices/system/node/online",
        "/sys/devices/system/node/has_memory",
        "/proc/self/cgroup",
    ] {
        state += &read(path);
    }
    for line in read("/proc/self/status").lines() {
        if line.starts_with("Cpus_allowed_list") || line.starts_with("Mems_allowed_list") {
            let _ = writeln!(state, "{line}");
        }
    }
    let mut variables: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with("HWLOC_"))
        .collect();
    variables.sort();
    for (name, value) in variables {
        let _ = writeln!(state, "{name}={value}");
    }
    state
}

fn folder() -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let base = set("XDG_RUNTIME_DIR")
        .or_else(|| set("XDG_CACHE_HOME"))
        .or_else(|| Some(set("HOME").or_else(std::env::home_dir)?.join(".cache")))?;
    Some(base.join("numaloc"))
}

/// Writes the file atomically, also if two processes write at the same time.
fn store(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let unfinished = path.with_extension(std::process::id().to_string());
    std::fs::write(&unfinished, text)?;
    std::fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_valid_only_while_nothing_has_changed() {
        let identity = Identity {
            fingerprint: "0123".to_owned(),
            summary: "2 nodes, 4 cores".to_owned(),
            nodes: 2,
        };
        let text = format(&identity, "boot 1\nonline 0-3\n");
        assert_eq!(parse(&text, "boot 1\nonline 0-3\n"), Some(identity));
        assert_eq!(parse(&text, "boot 2\nonline 0-3\n"), None);
        assert_eq!(parse(&text[..text.len() - 4], "boot 1\nonline 0-3\n"), None);
        assert_eq!(parse("", ""), None);
        assert_eq!(parse("0123\nmany\nx\nboot", "boot"), None);
    }

    #[test]
    fn the_state_of_this_machine_is_known() {
        assert!(state().contains("Cpus_allowed_list"));
        assert_eq!(state(), state());
    }

    #[test]
    fn the_cached_and_the_discovered_identity_are_equal() {
        let discovered = Identity::from(&from_this_machine().unwrap());
        assert_eq!(identity_of_this_machine().unwrap(), discovered);
        assert_eq!(identity_of_this_machine().unwrap(), discovered);
    }
}
