/* Preloaded into the ranks of `numaloc run`: before the program begins, each rank writes its affinity mask
 * to NUMALOC_WHERE_DIR, one small file per rank. Processes that are no rank write
 * nothing. MPI is not affected. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host_name.h"

__attribute__((constructor)) static void say_where(void) {
    static const char *const names[] = {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    const char *folder = getenv("NUMALOC_WHERE_DIR"), *rank = NULL;
    int saved_errno = errno;
    for (unsigned i = 0; i < sizeof names / sizeof *names && rank == NULL; i++) rank = getenv(names[i]);
    if (folder == NULL || rank == NULL || rank[strspn(rank, "0123456789")] != '\0') return;
    char path[4096], text[16384], host[256];
    cpu_set_t mask;
    numaloc_host_name(host, sizeof host);
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) goto done;
    int length = snprintf(text, sizeof text, "%s %s", rank, host);
    for (int cpu = 0; cpu < CPU_SETSIZE && length < (int)sizeof text - 8; cpu++)
        if (CPU_ISSET(cpu, &mask)) length += snprintf(text + length, sizeof text - (size_t)length, " %d", cpu);
    text[length++] = '\n';
    int named = snprintf(path, sizeof path, "%s/where-%s", folder, rank);
    if (named < 0 || named >= (int)sizeof path) goto done;
    /* Exclusive: the first process of the rank is the one the launcher bound (it may be a script). */
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0) {
        ssize_t written = write(file, text, (size_t)length);
        (void)written; /* a reader ignores an incomplete line */
        close(file);
    }
done:
    errno = saved_errno;
}
