/* Preloaded into the ranks of `numaloc record --mpi --frontend qemu` or `native`: before the program begins, a rank
 * executes an emulator, or our translator, that runs the same program with the same arguments and records it. The launcher's
 * command line stays unchanged, for any launcher. Processes that are no rank continue unchanged, and so
 * does a rank if the emulator cannot be started.
 *
 * NUMALOC_UNDER          the emulator or translator
 * NUMALOC_UNDER_PLUGIN   its -plugin option, without the thread path and the program
 * NUMALOC_UNDER_RECORD   instead: the translator's --record option, without the thread path
 * NUMALOC_UNDER_PRELOAD  LD_PRELOAD of the emulated program
 * NUMALOC_RANK_VARIABLE  the variable in which the launcher passes the rank
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The value as an argument of the plugin: QEMU splits at commas. */
static void escape(char *to, const char *from) {
    for (; *from; from++) {
        if (*from == '%' || *from == ',' || *from == '=') to += sprintf(to, "%%%02X", (unsigned char)*from);
        else *to++ = *from;
    }
    *to = '\0';
}

__attribute__((constructor)) static void become_the_emulator(int argc, char **argv, char **envp) {
    const char *emulator = getenv("NUMALOC_UNDER"), *plugin = getenv("NUMALOC_UNDER_PLUGIN");
    const char *record = getenv("NUMALOC_UNDER_RECORD");
    const char *preload = getenv("NUMALOC_UNDER_PRELOAD"), *variable = getenv("NUMALOC_RANK_VARIABLE");
    const char *rank = variable ? getenv(variable) : NULL;
    if (!emulator || (!plugin && !record) || !preload || !rank || !*rank || rank[strspn(rank, "0123456789")]) return;
    int saved_errno = errno, variables = 0;
    char program[PATH_MAX], escaped[3 * PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) goto native;
    program[length] = '\0';
    escape(escaped, program);
    while (envp[variables]) variables++;
    char *option = NULL, *inside = NULL;
    char **words = calloc((size_t)argc + 10, sizeof *words);
    char **environment = calloc((size_t)variables + 2, sizeof *environment);
    if (!words || !environment || asprintf(&option, "%s,path=r%s,program=%s", plugin ? plugin : "", rank, escaped) < 0
        || asprintf(&inside, "LD_PRELOAD=%s", preload) < 0)
        goto native;
    if (record && asprintf(&option, "%s,path=r%s", record, rank) < 0) goto native;
    int word = 0, kept = 0;
    words[word++] = (char *)emulator;
    words[word++] = record ? "--record" : "-plugin";
    words[word++] = option;
    for (int i = 0; i < variables; i++)
        if (strncmp(envp[i], "LD_PRELOAD=", 11) && strncmp(envp[i], "NUMALOC_UNDER", 13)) environment[kept++] = envp[i];
    /* -E sets it for the program only, but splits at commas too. */
    if (record || strchr(inside, ',')) environment[kept++] = inside;
    else words[word++] = "-E", words[word++] = inside;
    words[word++] = record ? "--path" : "-0";
    words[word++] = record ? program : argc > 0 ? argv[0] : program;
    if (record) words[word++] = "--";
    words[word++] = record && argc > 0 ? argv[0] : program;
    for (int i = 1; i < argc; i++) words[word++] = argv[i];
    execve(emulator, words, environment);
native:
    errno = saved_errno;
}
