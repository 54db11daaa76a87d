"""Sweeps: every combination once, the figures of the single calls, resumption, failures, killed workers, Slurm."""

import json
import os
import signal
import time

import pytest
from distributed import Client, LocalCluster

import numaloc

MACHINE = "numa:4 core:4 pu:1"


def backwards(matrix, machine):
    return list(reversed(range(len(matrix))))


def test_plans_of_every_combination_are_those_of_single_calls(synthetic):
    frame = numaloc.sweep(
        synthetic, [MACHINE, "epyc-7501"], ["packed", "deloc", backwards], ["locality", "mixed"], [1, 2], workers=2
    )
    assert len(frame) == 2 * 3 * 2 * 2 and frame.error.isna().all()
    assert set(frame.kind) == {"plan"} and list(frame.threads.unique()) == ["packed", "deloc", "backwards"]
    row = frame[(frame.machine == MACHINE) & (frame.threads == "deloc") & (frame.pages == "mixed")].iloc[0]
    plan = numaloc.plan(synthetic, MACHINE, "deloc", "mixed")
    assert row.cost == plan.cost and row.remote_accesses == plan.pages[-1]["remote_accesses"]


def test_simulations_are_those_of_single_calls(traced, small):
    frame = numaloc.sweep(traced, str(small), ["scatter", "os", backwards], "first-touch", workers=2)
    assert set(frame.kind) == {"simulate"} and frame.error.isna().all()
    single = numaloc.simulate(traced, str(small), "scatter", "first-touch")
    assert frame[frame.threads == "scatter"].time_ns.iloc[0] == single.best["time_ns"]
    assert (frame.time_ns > 0).all()


def test_an_interrupted_sweep_continues(synthetic, tmp_path, capsys):
    results = tmp_path / "sweep.jsonl"
    arguments = dict(threads=["packed", "scatter"], seeds=range(5), workers=2, results=results)
    first = numaloc.sweep(synthetic, MACHINE, **arguments)
    assert first.attrs["resumed"] == 0
    lines = results.read_bytes().splitlines(keepends=True)
    assert len(lines) == 10
    # Interrupted while the seventh row was written.
    results.write_bytes(b"".join(lines[:6]) + lines[6][:20])
    again = numaloc.sweep(synthetic, MACHINE, progress=True, **arguments)
    assert again.attrs["resumed"] == 6
    assert "4 of 4, 6 from before" in capsys.readouterr().err
    compared = ["threads", "seed", "cost", "remote_accesses"]
    assert again[compared].equals(first[compared])
    # Another machine is another combination; nothing of the file is lost.
    numaloc.sweep(synthetic, "numa:2 core:8 pu:1", results=results, workers=1)
    assert len(results.read_bytes().splitlines()) == 11
    results.write_text("something else\n")
    with pytest.raises(numaloc.NumalocError, match="line 1 is no finished row"):
        numaloc.sweep(synthetic, MACHINE, results=results)
    assert results.read_text() == "something else\n"


def test_a_failed_task_is_retried_and_reported_and_the_others_finish(synthetic, tmp_path, capsys):
    tries = tmp_path / "tries"

    def always(matrix, machine):
        with open(tries, "a") as file:
            file.write("x")
        raise RuntimeError("no idea")

    def at_second(matrix, machine):
        if not (tmp_path / "once").exists():
            (tmp_path / "once").touch()
            raise RuntimeError("not yet")
        return range(len(matrix))

    results = tmp_path / "sweep.jsonl"
    arguments = dict(threads=["packed", always, at_second], workers=2, retries=1, results=results)
    frame = numaloc.sweep(synthetic, MACHINE, **arguments)
    errors = dict(zip(frame.threads, frame.error))
    assert "no idea" in errors["always"]
    assert list(frame[frame.error.isna()].threads) == ["packed", "at_second"]
    assert tries.read_text() == "xx" and frame.attrs["failed"] == 1
    assert "'threads': 'always'" in capsys.readouterr().err
    # What failed is not kept as finished.
    assert len(results.read_bytes().splitlines()) == 2


def test_a_killed_worker_costs_no_task(synthetic, tmp_path):
    """Worker processes on this machine; one is killed while it works. Its tasks run again on the others."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def kills_once(matrix, machine):
        try:
            (marks / "killed").touch(exist_ok=False)
        except FileExistsError:
            return range(len(matrix))
        os.kill(os.getpid(), signal.SIGKILL)

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        frame = numaloc.sweep(synthetic, MACHINE, ["packed", kills_once], seeds=range(6), cluster=client)
    assert (marks / "killed").exists()
    assert len(frame) == 12 and frame.error.isna().all()


def test_an_address_is_a_cluster(synthetic):
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        frame = numaloc.sweep(synthetic, MACHINE, cluster=cluster.scheduler_address)
    assert len(frame) == 1 and frame.error.isna().all()


def test_what_cannot_be_swept_is_said_before_anything_runs(synthetic, tmp_path):
    with pytest.raises(numaloc.NumalocError, match="kind"):
        numaloc.sweep(synthetic, MACHINE, kind="guess")
    with pytest.raises(numaloc.NumalocError, match="nowhere"):
        numaloc.sweep([synthetic, tmp_path / "nowhere"], MACHINE)
    with pytest.raises(numaloc.NumalocError, match="no such file"):
        numaloc.sweep(synthetic, ["nowhere"])
    frame = numaloc.sweep(synthetic, MACHINE, "packd", retries=0)
    assert "unknown thread policy" in frame.error.iloc[0]


def test_rows_are_written_as_they_finish(synthetic, tmp_path):
    results = tmp_path / "sweep.jsonl"
    seen = tmp_path / "seen"

    def looks(matrix, machine):
        time.sleep(0.2)
        with open(seen, "a") as file:
            file.write(f"{len(results.read_bytes().splitlines())}\n")
        return range(len(matrix))

    numaloc.sweep(synthetic, MACHINE, ["packed", looks], seeds=range(3), workers=1, results=results)
    assert max(int(line) for line in seen.read_text().split()) >= 1
    assert all(set(json.loads(line)) == {"digest", "row"} for line in results.read_text().splitlines())
