"""A sweep on a real Slurm of two nodes, started and stopped by the test: workers are its jobs (dask-jobqueue)."""

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

import numaloc

CONF = """
ClusterName=numaloctest
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation={here}/state
SlurmdSpoolDir={here}/spool.%n
SlurmctldPidFile={here}/ctld.pid
SlurmdPidFile={here}/d.%n.pid
SlurmctldLogFile={here}/ctld.log
SlurmdLogFile={here}/d.%n.log
NodeName=n[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{second}] CPUs={pus}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def free_ports():
    """First of three free ports in a row, below those of outgoing connections."""
    for first in range(14_000 + os.getpid() % 1_000 * 3, 20_000, 3):
        try:
            for port in range(first, first + 3):
                with socket.socket() as one:
                    one.bind(("0.0.0.0", port))
        except OSError:
            continue
        return first
    raise RuntimeError("no three free ports in a row")


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """The environment of a Slurm with nodes n1 and n2, both on this machine."""
    if shutil.which("sbatch") is None:
        pytest.skip("slurm-wlm is not installed (make packages)")
    port = free_ports()
    for name in ["state", "spool.n1", "spool.n2"]:
        (tmp_path / name).mkdir()
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        CONF.format(port=port, first=port + 1, second=port + 2, here=tmp_path, user=getpass.getuser(), pus=os.cpu_count())
    )
    monkeypatch.setenv("SLURM_CONF", str(conf))
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    daemons = [
        subprocess.Popen(words, **quiet)
        for words in [
            ["/usr/sbin/slurmctld", "-D"],
            ["/usr/sbin/slurmd", "-D", "-N", "n1"],
            ["/usr/sbin/slurmd", "-D", "-N", "n2"],
        ]
    ]

    def logs():
        return "\n".join(path.read_text(errors="replace") for path in sorted(tmp_path.glob("*.log")))

    try:
        deadline = time.monotonic() + 300
        while True:
            idle = subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], capture_output=True, text=True)
            if idle.stdout.strip() == "2":
                break
            assert all(daemon.poll() is None for daemon in daemons), logs()
            assert time.monotonic() < deadline, logs()
            time.sleep(0.2)
        yield logs
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()


def test_a_sweep_runs_as_jobs_of_slurm_and_survives_a_cancelled_job(slurm, synthetic, tmp_path):
    from dask_jobqueue import SLURMCluster
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

    cluster = SLURMCluster(
        queue="all",
        cores=1,
        processes=1,
        memory="500MB",
        walltime="00:30:00",
        interface="lo",
        python=sys.executable,
        log_directory=str(tmp_path / "logs"),
        local_directory=str(tmp_path / "dask"),
        job_directives_skip=["--mem"],
        job_extra_directives=["--nodes=1", "--exclusive"],
        scheduler_options={"dashboard_address": "127.0.0.1:0"},
    )
    with cluster, Client(cluster) as client:
        cluster.scale(jobs=2)
        client.wait_for_workers(2, timeout=300)
        frame = numaloc.sweep(synthetic, "numa:4 core:4 pu:1", ["packed", where], seeds=range(10), cluster=client)
        assert len(frame) == 20 and frame.error.isna().all(), frame
        assert sorted(path.name for path in seen.iterdir()) == ["n1", "n2"], slurm()
        jobs = subprocess.run(["squeue", "-h", "-o", "%i"], capture_output=True, text=True).stdout.split()
        assert len(jobs) == 2
        subprocess.run(["scancel", "--signal=KILL", "--full", jobs[0]], check=True)
        again = numaloc.sweep(synthetic, "numa:4 core:4 pu:1", ["packed", where], seeds=range(10, 20), cluster=client)
        assert len(again) == 20 and again.error.isna().all(), again
