"""The pages on Python: every block runs as written, in order, in one folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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


#: Lines of the pipelines that get and build things: what they need is not here.
PREPARES = re.compile(r"^(sudo )?(apt-get|make|git) ")


def pipelines():
    """Name and shell lines of each pipeline of `check`'s page."""
    github, gitlab = (yaml.safe_load(text) for language, text, _ in blocks("docs/commands/check.md") if language == "yaml")
    steps = github["jobs"]["locality"]["steps"]
    assert all("uses" in step or "run" in step for step in steps)
    yield "github", [step["run"] for step in steps if "run" in step]
    yield "gitlab", gitlab["locality"]["before_script"] + gitlab["locality"]["script"]


@pytest.mark.parametrize("which", ["github", "gitlab"])
def test_a_pipeline_runs_as_written(which, ring, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{PROGRAM.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    for app in ["app", "base/app", "new/app"]:
        Path(app).parent.mkdir(exist_ok=True)
        Path(app).write_text(f"#!/bin/sh\nexec {ring}\n")
        Path(app).chmod(0o755)
    lines = dict(pipelines())[which]
    run = [line for line in lines if not PREPARES.match(line)]
    assert any("numaloc record" in line for line in run) and any("numaloc check" in line for line in run)
    # GitHub runs each step in a shell of its own, GitLab all lines in one; both stop at the first failure.
    shells = run if which == "github" else ["\n".join(run)]
    for shell in shells:
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", shell], capture_output=True, text=True)
        # Two recordings of one program may differ by chance; anything but 0 and 3 is an error.
        checks = "numaloc check" in shell
        assert done.returncode in ([0, 3] if checks else [0]), f"{shell}\n{done.stderr}"
    summary = Path("summary.md" if which == "github" else "locality.md").read_text()
    assert summary.count("|") > 8 and "remote" in summary, summary
