/* Runs a command under a seccomp filter that refuses some system calls with EPERM, as containers do:
 *   refuses ptrace|memory COMMAND ARGS
 * or kills who calls ptrace: refuses ptrace-dead COMMAND ARGS */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 3)
        return 9;
    int ptrace = strncmp(argv[1], "ptrace", 6) == 0;
    int dead = strcmp(argv[1], "ptrace-dead") == 0;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ptrace ? SYS_ptrace : SYS_mbind, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ptrace ? SYS_ptrace : SYS_move_pages, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, dead ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return 8;
    execvp(argv[2], argv + 2);
    return 7;
}
