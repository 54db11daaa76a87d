"""The pages on Python: every block runs as written, in order, in one folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import PROGRAM, ROOT

PAGES = ["docs/python.md", "docs/sweeps.md", "docs/store.md", "docs/commands/check.md", "docs/commands/store.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(page: str) -> list[tuple[str, str, int]]:
    """Language, text and first line of each block."""
    text = (ROOT / page).read_text()
    return [(m[1], m[2], text.count("\n", 0, m.start()) + 2) for m in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_as_written(page, ring, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{PROGRAM.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setenv("NUMALOC_PYTHON", sys.executable)
    Path("ring").symlink_to(ring)
    names = {"__name__": "__main__"}
    ran = 0
    for language, text, line in blocks(page):
        if language == "python":
            # Names of the page are those of a notebook: later blocks use them.
            exec(compile("\n" * (line - 1) + text, str(ROOT / page), "exec"), names)
            ran += 1
        elif language == "sh":
            done = subprocess.run(["bash", "-e", "-c", text], capture_output=True, text=True)
            assert done.returncode == 0, f"{page}:{line}: {done.stderr}"
            ran += 1
    assert ran >= 1
