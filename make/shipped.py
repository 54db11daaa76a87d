"""The crates that numaloc's binaries link."""

import json
import subprocess

SHIPPED = ["numaloc", "numaloc-native", "numaloc-qemu", "numaloc-lab-plugin", "numaloc-agent", "numaloc-deal", "numaloc-ocr", "numaloc-instrument"]


def metadata():
    """Cargo's description of the workspace; `cargo` must have fetched the crates."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform=x86_64-unknown-linux-gnu"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def linked(workspace):
    """The packages that the shipped ones link, these included, with the packages that each links itself: neither what
    builds need nor what tests need. In order of name and version."""
    nodes = {node["id"]: node for node in workspace["resolve"]["nodes"]}
    packages = {package["id"]: package for package in workspace["packages"]}
    pending = [ident for ident, package in packages.items() if package["name"] in SHIPPED]
    seen = {}
    while pending:
        ident = pending.pop()
        if ident in seen:
            continue
        seen[ident] = [dependency["pkg"] for dependency in nodes[ident]["deps"]
                       if any(kind["kind"] is None for kind in dependency["dep_kinds"])]
        pending += seen[ident]
    found = [(packages[ident], [packages[other] for other in links]) for ident, links in seen.items()]
    return sorted(found, key=lambda entry: (entry[0]["name"], entry[0]["version"]))
