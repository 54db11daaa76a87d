"""Recording, running and simulating with the installed program."""

import os
import sys
import sysconfig

import pytest

import numaloc
from numaloc import _program


def test_a_recording_is_a_profile(traced):
    profile = numaloc.Profile.open(traced)
    assert profile.meta["command"][0].endswith("ring") and profile.meta["complete"]
    assert len(profile.threads) >= 4 and profile.matrix("write_read").sum() > 0


def test_functions_are_simulated_next_to_our_policies(traced, small):
    def backwards(matrix, machine):
        return list(reversed(range(machine.pus)))[: len(matrix)]

    found = numaloc.simulate(traced, str(small), ["scatter", backwards], ["first-touch", "locality"], jobs=1)
    combinations = {(row["threads"], row["pages"]) for row in found.rows}
    assert combinations == {(t, p) for t in ("scatter", "backwards") for p in ("first-touch", "locality")}
    times = [row["time_ns"] for row in found.rows]
    assert times == sorted(times) and times[0] > 0 and found.best is found.rows[0]
    frame = found.dataframe()
    assert len(frame) == 4 and {"machine", "threads", "pages", "time_ns", "remote_percent"} <= set(frame.columns)
    assert "backwards" in found._repr_html_()


def test_advice_names_changes_with_their_times(traced, small):
    found = numaloc.Profile(traced).advise(str(small), jobs=1)
    assert found.basis == "access_trace"
    assert found.best_s <= found.as_it_is_s and found.bound_s > 0 and found.plus_minus_s >= 0
    assert found.alone and {"bind", "interleave_all"} <= {row["change"] for row in found.alone}
    times = [row["after_s"] for row in found.alone]
    assert times == sorted(times)
    if found.changes:
        assert found.changes[-1]["after_s"] == pytest.approx(found.best_s)
    assert list(found.dataframe()["change"]) == [row["change"] for row in found.alone]
    assert "<table>" in found._repr_html_()


def test_failures_are_the_errors_of_the_program(synthetic, small, tmp_path, monkeypatch):
    with pytest.raises(numaloc.NumalocError, match="trace"):
        numaloc.simulate(synthetic, str(small))
    with pytest.raises(numaloc.NumalocError, match="no-such-program"):
        numaloc.record(["no-such-program"], tmp_path / "x.numaloc", options=["--quiet"])
    with pytest.raises(numaloc.NumalocError, match="ended with status 7"):
        numaloc.record(["sh", "-c", "exit 7"], tmp_path / "x.numaloc", options=["--quiet"])
    assert len(numaloc.Profile.open(tmp_path / "x.numaloc").threads) == 1
    with pytest.raises(numaloc.NumalocError, match="one text"):
        numaloc.record("ls -l", tmp_path / "y.numaloc")
    monkeypatch.setenv("NUMALOC", "/nowhere/numaloc")
    with pytest.raises(numaloc.NumalocError, match="cannot find the program numaloc by NUMALOC=/nowhere"):
        numaloc.run(["true"], tmp_path / "plan.json")


def test_what_a_program_prints_is_passed_on(tmp_path, capfd):
    script = "import sys; print('out'); print('err', file=sys.stderr)"
    numaloc.record([sys.executable, "-c", script], tmp_path / "p.numaloc", options=["--quiet"], env=dict(os.environ))
    printed = capfd.readouterr()
    assert "out\n" in printed.out and "err\n" in printed.err


def test_the_program_of_the_environment_comes_before_that_of_the_path(tmp_path, monkeypatch):
    scripts, elsewhere = tmp_path / "scripts", tmp_path / "elsewhere"
    for folder in (scripts, elsewhere):
        folder.mkdir()
        (folder / "numaloc").write_text("#!/bin/sh\n")
        (folder / "numaloc").chmod(0o755)
    monkeypatch.delenv("NUMALOC", raising=False)
    monkeypatch.setenv("PATH", str(elsewhere))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(scripts) if name == "scripts" else None)
    assert _program.program() == str(scripts / "numaloc")
    (scripts / "numaloc").unlink()
    assert _program.program() == str(elsewhere / "numaloc")
