//! Programs that change their user, root or namespaces, that cannot be recorded, or have rights of their file, with the
//! native frontend.

use std::process::Command;

use super::native::{compile, linked_high, read, recording};
use crate::support;

/// Works and executes itself in processes that give up their user, have another root, process ids of their own, or
/// other folders, and after deleting the folder of the recording; the argument is a folder with a copy of the program.
const ELSEWHERE: &str = r#"
#define _GNU_SOURCE
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
static char stack[1 << 16], *self;
static volatile int table[50000];
static int again(void *how)
{
    execl(self, self, (char *)how, (char *)0);
    execl("/program", "program", (char *)how, (char *)0);
    perror("execl");
    return 9;
}
static void report(const char *what)
{
    int status;
    wait(&status);
    printf("%s: %x\n", what, status);
    fflush(stdout);
}
int main(int argc, char **argv)
{
    for (int i = 0; i < 50000; i++) table[i] = i;
    if (argc == 2) {
        printf("%s: user %d process %d\n", argv[1], getuid(), getpid() == 1);
        fflush(stdout);
        if (!fork()) _exit(!!strcmp(argv[1], "deleted") + table[7]);
        report("child");
        return 3;
    }
    self = argv[0];
    if (!fork()) {
        if (setgroups(0, 0) || setgid(65534) || setuid(65534)) perror("setuid");
        _exit(again("user"));
    }
    report("user");
    if (!fork()) {
        if (chroot(argv[1]) || chdir("/")) perror("chroot");
        _exit(again("root"));
    }
    report("root");
    for (int i = 0; i < 3; i++) {
        clone(again, stack + sizeof stack, CLONE_NEWPID | SIGCHLD, "first");
        report("first");
    }
    if (!fork()) {
        if (unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0)) perror("unshare");
        if (chdir(argv[1]) || mount("none", argv[2], "tmpfs", 0, 0)) perror("mount");
        self = "./program";
        _exit(again("hidden"));
    }
    report("hidden");
    if (!fork()) {
        char command[200];
        sprintf(command, "rm -rf %s/.*.recording-*", argv[2]);
        if (argc > 3 && system(command)) perror("rm");
        _exit(again("deleted"));
    }
    report("deleted");
    return 0;
}
"#;

#[test]
fn programs_that_change_their_user_root_or_namespaces_are_recorded_like_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "elsewhere.c", ELSEWHERE, &["-static"]);
    let root = dir.path().join("root");
    std::fs::create_dir(&root).unwrap();
    std::fs::copy(&program, root.join("program")).unwrap();
    for open in [dir.path(), &root, &program] {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(open, mode).unwrap();
    }
    // The profile lies in a folder that is hidden and cannot be entered by others.
    let hidden = tempfile::tempdir().unwrap();
    let arguments = [root.as_path(), hidden.path()];
    let alone = Command::new(&program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&alone.stderr);
    if said.contains("Operation not permitted") {
        return support::skip("only root may change its user, root and namespaces");
    }
    assert!(said.is_empty(), "{said}");
    let folder = hidden.path().join("p.numaloc");
    let recorded = recording("native", &folder, 1)
        .arg(&program)
        .args(arguments)
        .arg("deletes")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&recorded.stderr);
    assert_eq!(recorded.status.code(), Some(0), "{said}");
    assert_eq!(
        String::from_utf8_lossy(&recorded.stdout),
        String::from_utf8_lossy(&alone.stdout)
    );
    assert!(said.is_empty(), "{said}");
    let profile = read(&folder);
    let meta = profile.meta();
    assert!(meta.complete, "{:?}", meta.notes);
    // Each of the 7 processes has a child; one runs a shell, which runs a program.
    let threads = profile.threads();
    assert_eq!(threads.len(), 1 + 7 * 2 + 2, "{:?}", meta.notes);
    // The first, and those that execute themselves, which work twice.
    let worked = threads.iter().filter(|t| t.accesses > 300_000).count();
    assert_eq!(worked, 1 + 7, "{threads:?}");
}

#[test]
fn an_executed_program_that_cannot_be_recorded_runs_natively_and_is_missed_in_the_profile() {
    let dir = tempfile::tempdir().unwrap();
    linked_high(dir.path());
    let folder = dir.path().join("p.numaloc");
    let output = recording("native", &folder, 1)
        .args(["sh", "-c", "./program && echo done"])
        .env("NUMALOC_QEMU", "/no/such")
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("./program cannot be recorded"), "{said}");
    let profile = read(&folder);
    let meta = profile.meta();
    assert!(!meta.complete);
    let missing = "process 0/1 (./program) is missing from ";
    let notes = &meta.notes;
    assert!(notes.iter().any(|n| n.starts_with(missing)), "{notes:?}");
}

#[test]
fn a_program_that_goes_on_natively_is_missed_in_the_profile() {
    let dir = tempfile::tempdir().unwrap();
    let text = "#include <stdio.h>\n#include <signal.h>\n#include <unistd.h>\n#include <sys/wait.h>\n\
        static int sum(void) { volatile int s = 0; for (int i = 0; i < 100000; i++) s += i; return s != 0; }\n\
        int main(void) { int ok = sum(), r; if (!fork()) { sum(); _exit(0); } wait(&r);\n\
        __asm__ volatile(\"int $0x80\" : \"=a\"(r) : \"0\"(174), \"b\"(SIGUSR1), \"c\"(0), \"d\"(0), \"S\"(8) : \"memory\");\n\
        if (!fork()) { sum(); _exit(0); } wait(0); printf(\"%d %d\\n\", r, ok + sum()); return 6; }";
    let program = compile(dir.path(), "leaves.c", text, &[]);
    let folder = dir.path().join("p.numaloc");
    let mut command = recording("native", &folder, 1);
    let output = command.arg(&program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 2\n", "{said}");
    assert!(said.contains("it runs natively from here on"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let profile = read(&folder);
    let meta = profile.meta();
    assert!(!meta.complete);
    let missing =
        |note: &String| note.starts_with("process 0 (") && note.contains("is missing from ");
    assert!(meta.notes.iter().any(missing), "{:?}", meta.notes);
    // What came before is recorded, with the process that it created then.
    let threads = profile.threads();
    assert_eq!(threads.len(), 2, "{threads:?}");
    assert!(threads.iter().all(|t| t.accesses > 100_000), "{threads:?}");
}

#[test]
fn a_program_with_rights_of_its_file_keeps_them_and_is_not_recorded() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    let dir = tempfile::tempdir().unwrap();
    let text = "#include <stdio.h>\n#include <unistd.h>\n\
        int main(void) { printf(\"%d\\n\", getegid() != getgid()); return 5; }";
    let program = compile(dir.path(), "rights.c", text, &[]);
    if chown(&program, None, Some(65534)).is_err() {
        return support::skip("only root may give a file to another group");
    }
    let mode = std::fs::Permissions::from_mode(0o2755);
    std::fs::set_permissions(&program, mode).unwrap();
    let folder = dir.path().join("p.numaloc");
    for arguments in [&[][..], &["sh", "-c", "$0; exit $?"][..]] {
        let mut command = recording("auto", &folder, 1);
        let output = command.args(arguments).arg(&program).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n", "{said}");
        assert!(said.contains("set-group-id: it runs natively"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(folder.exists(), !arguments.is_empty());
    }
}
