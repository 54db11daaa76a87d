/* The name of a rank's host. A task that srun started itself is on the Slurm node of that name, which
 * need not be the host's own name (NodeName and NodeHostname differ, several slurmd share a machine). Under
 * mpirun or hydra the variable may have come from the host where the launcher runs, so the task's own
 * process id, or its parent's, must be the one that Slurm started. */
#ifndef NUMALOC_HOST_NAME_H
#define NUMALOC_HOST_NAME_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void numaloc_host_name(char *name, size_t size) {
    const char *node = getenv("SLURMD_NODENAME"), *task = getenv("SLURM_TASK_PID");
    long started = task != NULL ? strtol(task, NULL, 10) : 0;
    name[0] = name[size - 1] = '\0';
    if (node != NULL && *node != '\0' && started > 0 && (started == getpid() || started == getppid()))
        (void)snprintf(name, size, "%s", node);
    else
        gethostname(name, size - 1);
}

#endif
