"""A real Slurm of two nodes on this machine, and workers that are its jobs (dask-jobqueue)."""

import contextlib
import getpass
import os
import socket
import subprocess
import sys
import time

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


@contextlib.contextmanager
def two_nodes(folder):
    """Nodes n1 and n2, both on this machine, while the block runs; ``SLURM_CONF`` names them. Gives what the daemons
    logged."""
    port = free_ports()
    for name in ["state", "spool.n1", "spool.n2"]:
        (folder / name).mkdir()
    conf = folder / "slurm.conf"
    conf.write_text(
        CONF.format(port=port, first=port + 1, second=port + 2, here=folder, user=getpass.getuser(), pus=os.cpu_count())
    )
    os.environ["SLURM_CONF"] = str(conf)
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
        return "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob("*.log")))

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
        del os.environ["SLURM_CONF"]
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()


def cluster_of_jobs(folder):
    """A Dask cluster whose workers are jobs with a node of their own and one thread."""
    from dask_jobqueue import SLURMCluster

    return SLURMCluster(
        queue="all",
        cores=1,
        processes=1,
        memory="500MB",
        walltime="00:30:00",
        interface="lo",
        python=sys.executable,
        log_directory=str(folder / "logs"),
        local_directory=str(folder / "dask"),
        job_directives_skip=["--mem"],
        job_extra_directives=["--nodes=1", "--exclusive"],
        scheduler_options={"dashboard_address": "127.0.0.1:0"},
    )
