//! Names that programs give to their threads, processes and memory reach the profile and the page of `show`.

use crate::native::{compile, read, recording};
use crate::support::{numaloc, ok};

/// The main thread names its thread, which waits, through the file of its name, and memory; its child, a process, and
/// that one's thread name themselves.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#define LENGTH (64 << 12)
static volatile char *memory;
static pthread_barrier_t both;
static void *work(void *argument)
{
    pthread_barrier_wait(&both);
    for (int i = 0; i < LENGTH; i++) memory[i] = 1;
    return argument;
}
static void *collect(void *argument)
{
    prctl(PR_SET_NAME, "collector 7");
    for (int i = 0; i < LENGTH; i++) memory[i] = 2;
    return argument;
}
int main(int count, char **arguments)
{
    pthread_t thread;
    memory = mmap(0, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    prctl(0x53564d41, 0, memory, LENGTH, "buffers");
    pthread_barrier_init(&both, 0, 2);
    pthread_create(&thread, 0, work, 0);
    int status = pthread_setname_np(thread, "io_thd_1");
    pthread_barrier_wait(&both);
    pthread_join(thread, 0);
    if (fork() == 0) {
        strcpy(arguments[0], "server: checkpointer");
        pthread_create(&thread, 0, collect, 0);
        pthread_join(thread, 0);
        return 0;
    }
    wait(0);
    return status;
}
"#;

#[test]
fn names_that_a_program_gives_are_recorded_next_to_the_identity() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "named.c", PROGRAM, &["-O1"]);
    // Only the native frontend knows where the arguments are.
    for (frontend, title) in [("native", "server: checkpointer"), ("qemu", "program")] {
        let folder = dir.path().join(format!("{frontend}.numaloc"));
        ok(recording(frontend, &folder, 1).arg(&program));
        let profile = read(&folder);
        let threads = profile.threads().iter();
        let threads: Vec<_> = threads
            .map(|t| (t.path.as_str(), t.name.as_deref(), t.title.as_deref()))
            .collect();
        let expected = [
            ("0", None, None),
            ("0.1", Some("io_thd_1"), None),
            ("0/1", None, Some(title)),
            ("0/1.1", Some("collector 7"), None),
        ];
        assert_eq!(threads, expected, "{frontend}");
        let label = profile.threads()[1].role.label();
        assert_eq!(label.as_deref(), Some("work"), "{frontend}");
        let named = |object: &&numaloc_model::profile::Object| {
            object.variables.iter().any(|part| part.name == "buffers")
        };
        let object = profile.objects().iter().find(named).unwrap();
        assert_eq!((object.name.as_str(), object.size), ("[anon]", 64 << 12));
        let shown = ok(numaloc(&["show", "--why"]).arg(&folder));
        for row in [
            "io_thd_1: buffers",
            &format!("{title}: "),
            "collector 7: buffers",
        ] {
            assert!(shown.contains(row), "{row}: {shown}");
        }
    }
}
