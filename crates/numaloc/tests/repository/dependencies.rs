//! `use` points downward only: the crate table of ARCHITECTURE.md, checked. So is what the workspace promises of
//! third-party crates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Crate, and which of ours it may use, as the table says: a row begins with `crates/NAME` and ends with the names,
/// with "nothing of ours" or with "all".
fn table() -> BTreeMap<String, Option<BTreeSet<String>>> {
    let text = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let (_, table) = text
        .split_once("\n## Crates\n")
        .expect("a section on crates");
    let (table, _) = table.split_once("\n## ").expect("a section behind it");
    let rows = table.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `crates/")?.split_once("` |")?;
        let (_, uses) = rest.trim_end_matches([' ', '|']).rsplit_once('|')?;
        let uses = match uses.trim() {
            "all" => None,
            "nothing of ours" => Some(BTreeSet::new()),
            names => Some(
                names
                    .split(", ")
                    .map(|name| format!("numaloc-{name}"))
                    .collect(),
            ),
        };
        Some((name.to_owned(), uses))
    });
    rows.collect()
}

fn metadata(options: &[&str]) -> serde_json::Value {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--offline", "--locked"])
        .args(options)
        .current_dir(workspace())
        .output()
        .expect("cargo metadata runs");
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

/// The crates of the workspace as `cargo metadata` has them, by folder.
fn packages() -> Vec<(String, serde_json::Value)> {
    let metadata = metadata(&["--no-deps"]);
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let folder = |package: &serde_json::Value| {
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        let folder = manifest.parent().and_then(Path::file_name);
        folder.expect("a folder").to_string_lossy().into_owned()
    };
    packages
        .map(|package| (folder(package), package.clone()))
        .collect()
}

#[test]
fn crates_use_only_what_lies_below_them() {
    let mut table = table();
    for (folder, package) in packages() {
        let allowed = table.remove(&folder);
        let allowed = allowed
            .unwrap_or_else(|| panic!("ARCHITECTURE.md does not say what crates/{folder} may use"));
        let Some(mut allowed) = allowed else { continue };
        let all = allowed.clone();
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let used = dependency["name"].as_str().expect("name");
            // Tests may look across; shipped code may not.
            if used.starts_with("numaloc") && dependency["kind"] != "dev" {
                assert!(all.contains(used), "crates/{folder} may not use {used}");
                allowed.remove(used);
            }
        }
        assert!(
            allowed.is_empty(),
            "crates/{folder} does not use {allowed:?}, which ARCHITECTURE.md says"
        );
    }
    assert!(
        table.is_empty(),
        "ARCHITECTURE.md has crates that are not there: {table:?}"
    );
}

#[test]
fn the_workspace_chooses_the_version_of_every_dependency() {
    let read = |path: PathBuf| -> toml::Table {
        let text = std::fs::read_to_string(&path).unwrap();
        text.parse()
            .unwrap_or_else(|why| panic!("{}: {why}", path.display()))
    };
    for (folder, package) in packages() {
        let manifest = read(package["manifest_path"].as_str().expect("a path").into());
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let found = manifest.get(section).and_then(toml::Value::as_table);
            for (name, dependency) in found.into_iter().flatten() {
                let is_chosen = dependency.get("workspace").is_some();
                assert!(
                    is_chosen,
                    "crates/{folder}, {section}: {name} is not `{name}.workspace = true`"
                );
            }
        }
    }
}

/// Licenses under which a crate may be linked into binaries that are distributed under MIT or Apache-2.0.
const LICENSES: [&str; 10] = [
    "MIT",
    "Apache-2.0",
    // The exception permits more, and takes nothing back.
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "Zlib",
    "0BSD",
    "CC0-1.0",
    "Unlicense",
    "Unicode-3.0",
];

/// Whether a license expression, with `/` for `OR` as old crates have it, can be satisfied by these.
fn is_permissive(expression: &str) -> bool {
    let words = expression.replace(['(', ')'], "").replace('/', " OR ");
    let mut parts = words.split(" AND ");
    parts.all(|part| {
        part.split(" OR ")
            .any(|license| LICENSES.contains(&license.trim()))
    })
}

#[test]
fn every_dependency_may_be_distributed_with_us() {
    assert!(is_permissive("GPL-3.0 OR MIT") && is_permissive("MIT/Apache-2.0"));
    assert!(!is_permissive("GPL-3.0") && !is_permissive("(MIT OR Apache-2.0) AND GPL-3.0"));
    let metadata = metadata(&["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 100, "only {} packages", packages.len());
    for package in packages {
        let license = package["license"].as_str().unwrap_or("none");
        assert!(
            is_permissive(license),
            "{} is under {license}: may it be linked? (NOTICE)",
            package["name"]
        );
    }
}

/// What the injected code may not be linked with: readers of debugging information and writers of profiles. Both belong
/// to the recorder.
const NOT_INJECTED: [&str; 6] = [
    "addr2line",
    "cpp_demangle",
    "numaloc-assemble",
    "numaloc-formats",
    "parquet",
    "zstd",
];

#[test]
fn what_runs_inside_the_program_neither_symbolises_nor_writes_profiles() {
    let metadata = metadata(&["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let nodes = metadata["resolve"]["nodes"].as_array().expect("nodes");
    // What each package is linked with: build scripts and tests are not injected.
    let linked: BTreeMap<&str, Vec<&str>> = nodes
        .iter()
        .map(|node| {
            let dependencies = node["deps"].as_array().expect("dependencies").iter();
            let normal = dependencies.filter(|dependency| {
                let kinds = dependency["dep_kinds"].as_array().expect("kinds");
                kinds.iter().any(|kind| kind["kind"].is_null())
            });
            let ids = normal
                .filter_map(|dependency| dependency["pkg"].as_str())
                .collect();
            (node["id"].as_str().expect("id"), ids)
        })
        .collect();
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let names: BTreeMap<&str, &str> = packages
        .map(|package| {
            (
                package["id"].as_str().expect("id"),
                package["name"].as_str().expect("name"),
            )
        })
        .collect();
    for injected in [
        "numaloc-qemu",
        "numaloc-instrument",
        "numaloc-native",
        "numaloc-agent",
        "numaloc-deal",
        "numaloc-lab-plugin",
    ] {
        let (&start, _) = names
            .iter()
            .find(|(_, name)| **name == injected)
            .expect("it is there");
        let (mut open, mut seen) = (vec![start], BTreeSet::new());
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                open.extend(&linked[id]);
            }
        }
        let found: BTreeSet<&str> = seen.iter().map(|id| names[id]).collect();
        if injected == "numaloc-qemu" {
            assert!(
                found.contains("numaloc-trace"),
                "the graph is not read as it is: {found:?}"
            );
        }
        for name in NOT_INJECTED {
            assert!(!found.contains(name), "{injected} is linked with {name}");
        }
    }
}
