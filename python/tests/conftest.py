"""What tests share: the built program, a recorded profile, a synthetic one, a small machine with hardware figures."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PROGRAM = TARGET / "debug" / "numaloc"

os.environ["NUMALOC"] = str(PROGRAM)

SMALL = """
name = "small"
description = "two nodes with small caches"
synthetic = "numa:2(memory=4GiB) l3:1(size=512KiB) l2:2(size=64KiB) core:1 pu:1"
[hardware]
clock_hz = 2e9
line_bytes = 64
memory_latency_ns = 80
memory_bandwidth_bytes_per_s = 10e9
caches = [
  { level = 1, size_bytes = 32768, associativity = 8, latency_cycles = 4 },
  { level = 2, size_bytes = 65536, associativity = 8, latency_cycles = 12 },
  { level = 3, size_bytes = 524288, associativity = 16, latency_cycles = 40 },
]
links = [
  { from = 0, to = 1, bandwidth_bytes_per_s = 10e9, latency_ns = 60 },
  { from = 1, to = 0, bandwidth_bytes_per_s = 10e9, latency_ns = 60 },
]
"""


def generated(folder: Path, *sizes: int) -> Path:
    """A synthetic profile: threads, slices, pages, rows."""
    generate = TARGET / "debug" / "examples" / "generate-profile"
    subprocess.run([generate, folder, *map(str, sizes)], check=True)
    return folder


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory) -> Path:
    """16 threads, 50 slices, 400 pages; nothing was recorded."""
    return generated(tmp_path_factory.mktemp("synthetic") / "app.numaloc", 16, 50, 400)


@pytest.fixture(scope="session")
def ring() -> Path:
    """A program of 4 OpenMP threads that pass a buffer around."""
    return TARGET / "workloads" / "ring"


@pytest.fixture(scope="session")
def traced(tmp_path_factory, ring) -> Path:
    """A recording of it with an access trace."""
    import numaloc

    folder = tmp_path_factory.mktemp("traced") / "ring.numaloc"
    env = {**os.environ, "OMP_NUM_THREADS": "4"}
    numaloc.record([ring], folder, options=["--quiet", "--trace", "--trace-l2", "64K/8"], env=env)
    return folder


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Path:
    """The file of a machine that can be simulated: 2 nodes, 4 PUs."""
    path = tmp_path_factory.mktemp("machine") / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def damaged(synthetic, tmp_path):
    """A function that copies the synthetic profile and changes a byte of one of its files."""

    def change(name: str) -> Path:
        copy = tmp_path / "damaged.numaloc"
        shutil.copytree(synthetic, copy)
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 0xFF
        (copy / name).write_bytes(content)
        return copy

    return change
