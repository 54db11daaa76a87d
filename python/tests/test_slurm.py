"""A sweep on a real Slurm of two nodes, started and stopped by the test: workers are its jobs (dask-jobqueue)."""

import shutil
import subprocess

import pytest
from slurm_nodes import cluster_of_jobs, two_nodes

import numaloc


@pytest.fixture
def slurm(tmp_path):
    """A Slurm with nodes n1 and n2, both on this machine; gives its logs."""
    if shutil.which("sbatch") is None:
        pytest.skip("slurm-wlm is not installed (make packages)")
    with two_nodes(tmp_path) as logs:
        yield logs


def test_a_sweep_runs_as_jobs_of_slurm_survives_a_cancelled_job_and_continues(slurm, synthetic, tmp_path):
    from distributed import Client

    seen = tmp_path / "seen"
    seen.mkdir()

    def where(matrix, machine):
        import os
        import pathlib
        import time

        pathlib.Path(seen, os.environ["SLURMD_NODENAME"]).touch()
        time.sleep(0.1)
        return range(len(matrix))

    with cluster_of_jobs(tmp_path) as cluster, Client(cluster) as client:
        cluster.scale(jobs=2)
        client.wait_for_workers(2, timeout=300)
        arguments = dict(threads=["packed", where], cluster=client, results=tmp_path / "results")
        frame = numaloc.sweep(synthetic, "numa:4 core:4 pu:1", seeds=range(10), **arguments)
        assert len(frame) == 20 and frame.error.isna().all(), frame
        assert sorted(path.name for path in seen.iterdir()) == ["n1", "n2"], slurm()
        jobs = subprocess.run(["squeue", "-h", "-o", "%i"], capture_output=True, text=True).stdout.split()
        assert len(jobs) == 2
        subprocess.run(["scancel", "--signal=KILL", "--full", jobs[0]], check=True)
        again = numaloc.sweep(synthetic, "numa:4 core:4 pu:1", seeds=range(20), **arguments)
        assert len(again) == 40 and again.error.isna().all(), again
        assert again.attrs["resumed"] == 20
