//! Which bytes of a line its last writer has written decides what is false sharing: translated code sets their bits.

use super::native::{compile, read, recording};
use crate::support::ok;

/// For each way to store to a line and each of its bytes: one thread stores, after a store to the last byte, by which
/// it takes the line; then the other loads the byte.
const WAYS: &str = r#"
#include <pthread.h>
static _Alignas(4096) char line[64];
static pthread_barrier_t barrier;
__attribute__((noipa)) static void take(void) { asm volatile("movb $1, 63(%0)" :: "r"(line) : "memory"); }
__attribute__((noipa)) static void store(int way)
{
    switch (way) {
    case 0: asm volatile("movq $1, 8(%0)\n movq $1, 24(%0)" :: "r"(line) : "memory"); break;
    case 1: asm volatile("movl $1, 4(%0)\n movl $1, 12(%0)" :: "r"(line) : "memory"); break;
    case 2: asm volatile("movb $1, 5(%0)" :: "r"(line) : "memory"); break;
    case 3: asm volatile("movups %%xmm0, 32(%0)" :: "r"(line) : "memory"); break;
    case 4: asm volatile("movups %%xmm0, (%0)\n movups %%xmm0, 16(%0)\n movups %%xmm0, 32(%0)\n movups %%xmm0, 48(%0)" :: "r"(line) : "memory"); break;
    case 5: asm volatile("movw $1, 2(%0)" :: "r"(line) : "memory"); break;
    case 6: asm volatile("addl $1, 20(%0)" :: "r"(line) : "memory"); break;
    case 7: asm volatile("movb $1, 41(%0)\n movb $1, 43(%0)" :: "r"(line) : "memory"); break;
    }
}
__attribute__((noipa)) static void load(const char *at) { asm volatile("movb (%0), %%al" :: "r"(at) : "rax"); }
static void *work(void *other)
{
    for (int way = 0; way < 8; way++)
        for (int byte = 0; byte < 64; byte++) {
            if (!other) take(), store(way);
            pthread_barrier_wait(&barrier);
            if (other) load(line + byte);
            pthread_barrier_wait(&barrier);
        }
    return 0;
}
int main(void)
{
    pthread_barrier_init(&barrier, 0, 2);
    pthread_t thread;
    pthread_create(&thread, 0, work, &thread);
    work(0);
    return pthread_join(thread, 0);
}
"#;

#[test]
fn loads_of_bytes_that_were_not_stored_are_false_sharing() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "ways.c", WAYS, &["-O1"]);
    let folder = dir.path().join("w.numaloc");
    ok(recording("native", &folder, 2).arg(&program));
    let profile = read(&folder);
    let lines = profile.shared_lines().iter();
    let most = lines.max_by_key(|line| line.events).unwrap();
    let stored = [17, 9, 2, 17, 64, 3, 5, 3].iter().sum::<u64>();
    // The first load, of a byte that was not stored, is not classified.
    assert_eq!(
        (most.events, most.false_events),
        (512, 512 - stored - 1),
        "{most:?}"
    );
}
