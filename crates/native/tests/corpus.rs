//! Programs have the same output and status in the code cache as natively.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::*;

#[test]
fn shells_run_pipes_loops_and_substitutions() {
    same_shell("i=0; while [ $i -lt 200 ]; do i=$((i + 1)); done; echo $i; (exit 5); echo $?");
    same_shell(
        "ls / | wc -l; echo $(echo a | tr a b) | cat; seq 9 | sort -rn | head -3; kill -9 $$",
    );
    same(
        Path::new("/bin/bash"),
        &[
            "-c",
            "a=(1 2 3); trap 'echo bye' EXIT; echo ${#a[@]}; cat <(echo x); (sleep 0.01 & wait); exit 3",
        ],
    );
}

#[test]
fn tools_of_the_system_run() {
    same_shell("seq 3000 | sort -R --random-source=/bin/sh | sort -n | md5sum");
    same_shell(
        "gzip -9 < /bin/sh | gzip -d | cmp - /bin/sh && echo same; xz -V >/dev/null 2>&1; echo $?",
    );
    same_shell(
        "find /usr/include -name 'std*.h' | sort | xargs grep -c define | awk -F: '{s += $2} END {print s}'",
    );
    same_shell(
        "printf 'b\\na\\n' | sed s/a/z/ | sort; date -d @0 -u; /bin/false; echo $?; /no/such; echo $?",
    );
}

#[test]
fn perl_runs() {
    let script = "my %h; $h{$_ % 97} .= $_ for 1..20000; print length(join '', values %h), `echo sub`; \
        $SIG{ALRM} = sub { die \"alarm\\n\" }; eval { alarm 1; 1 while 1 }; print $@; fork or exec 'echo', 'child'; wait; exit 9";
    same(Path::new("/usr/bin/perl"), &["-e", script]);
}

#[test]
fn python_runs_with_threads_and_processes() {
    let script = "import threading, subprocess, hashlib, re, json, os\n\
        out = []\n\
        def work(n): out.append(hashlib.sha256(b'x' * 10000 * n).hexdigest())\n\
        ts = [threading.Thread(target=work, args=(n,)) for n in range(8)]\n\
        [t.start() for t in ts]; [t.join() for t in ts]\n\
        print(sorted(out))\n\
        print(subprocess.run(['sh', '-c', 'echo hi; exit 4'], capture_output=True))\n\
        try: subprocess.run(['/no/such'])\n\
        except FileNotFoundError as e: print(e)\n\
        print(json.dumps({'a': re.findall('[0-9]+', 'a1b22')}), 2 ** 0.5)\n\
        os.abort()";
    same_but_for_paths(&python(), &["-c", script]);
}

fn python() -> PathBuf {
    let usual = PathBuf::from("/usr/bin/python3");
    if usual.exists() {
        return usual;
    }
    let found = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .expect("python3");
    String::from_utf8_lossy(&found.stdout).trim().into()
}

#[test]
fn a_full_cache_is_flushed() {
    let script = "import json; print(json.dumps([1, 2]), sorted('cab'))";
    same_with(&["--cache", "512"], &python(), &["-c", script]);
    same_with(&["--cache", "256"], &ours("threads.c", &["-O1"]), &["32"]);
}

#[test]
fn exceptions_unwind_through_many_frames() {
    same(&ours("throw.cc", &[]), &[]);
    same_but_for_paths(&ours("throw.cc", &["-static"]), &[]);
}

#[test]
fn longjmp_leaves_many_frames() {
    same(&ours("jumps.c", &[]), &[]);
}

#[test]
fn handlers_of_faults_repair_skip_and_jump() {
    same(&ours("faults.c", &[]), &[]);
}

#[test]
fn a_timer_signal_has_no_side_effects() {
    same(&ours("timer.c", &[]), &[]);
}

#[test]
fn threads_signals_and_forks_work_together() {
    same(&ours("threads.c", &[]), &["256"]);
    same(&ours("threads.c", &["-static-pie"]), &["64"]);
}

#[test]
fn flags_of_the_processor_are_kept() {
    same(&ours("alignment.c", &[]), &[]);
}

#[test]
fn all_halves_of_vector_registers_are_kept() {
    same(&ours("vectors.c", &[]), &[]);
}

#[test]
fn code_that_is_written_is_retranslated() {
    same(&ours("writes_code.c", &[]), &[]);
}

#[test]
fn code_that_changes_elsewhere_is_retranslated() {
    same(&ours("rewritten.c", &[]), &[]);
}

#[test]
fn nested_functions_run_on_all_stacks() {
    same(&ours("nested.c", &[]), &[]);
    same(&ours("downwards.c", &["-Wl,-z,noexecstack"]), &[]);
}

#[test]
fn memory_that_may_be_read_may_be_executed_where_the_program_wants_it() {
    same(&ours("personality.c", &["-O1", "-no-pie"]), &[]);
}

#[test]
fn all_memory_is_the_programs() {
    same(&ours("locks.c", &[]), &[]);
}

#[test]
fn reservations_come_and_go_without_memory() {
    same(&ours("reservations.c", &[]), &[]);
}

#[test]
fn instructions_that_cannot_be_copied_are_executed() {
    same(&ours("singly.c", &[]), &[]);
}

/// What cannot be executed in the cache: the process goes on natively, with one line.
#[test]
fn processes_go_on_natively_from_instructions_that_cannot_be_executed() {
    use std::os::unix::process::ExitStatusExt as _;
    let program = ours("leaves.c", &[]);
    let ways = [
        "far", "iret", "threads", "handler", "calls", "filter", "limits", "vfork", "enter",
        "string", "traced", "listener", "dispatch", "steps", "stepped",
    ];
    for way in ways {
        let alone = natively(&program, &[way]);
        let journals = tempfile::tempdir().expect("a folder");
        let settings = format!("folder={}", journals.path().display());
        for options in [&[][..], &["--record", &settings]] {
            let found = translated(options, &program, &[way]);
            let both = format!("{way}: {}\n{}", shown(&alone), shown(&found));
            assert_eq!(found.status.code(), alone.status.code(), "{both}");
            assert_eq!(found.status.signal(), alone.status.signal(), "{both}");
            assert_eq!(found.stdout, alone.stdout, "{both}");
            let said = String::from_utf8_lossy(&found.stderr).into_owned();
            assert_eq!(said.lines().count(), 1, "{both}");
            assert!(said.contains("it runs natively from here on"), "{both}");
        }
    }
}

#[test]
fn a_program_finds_itself() {
    same(&ours("themselves.c", &[]), &["x"]);
    same(&ours("themselves.c", &["-static"]), &[]);
    same(&ours("themselves.c", &["-no-pie"]), &[]);
}

#[test]
fn programs_are_executed_in_unusual_ways_with_the_errors_of_the_kernel() {
    same(&ours("executes.c", &[]), &[]);
    same(&ours("executes.c", &["-static"]), &[]);
}

#[test]
fn limits_are_those_of_the_program() {
    same(&ours("limits.c", &[]), &[]);
}

#[test]
fn filters_of_system_calls_apply_to_the_program() {
    same(&ours("filters.c", &[]), &[]);
}

#[test]
fn the_base_of_gs_is_the_programs() {
    same(&ours("bases.c", &[]), &[]);
}

#[test]
fn a_program_that_maps_memory_over_the_tables_goes_on_natively() {
    let program = ours("taken.c", &[]);
    for (options, address) in [
        (&[][..], "6a000000"),
        (&["--record", "folder=."], "80000000"),
    ] {
        for way in ["map", "move", "attach"] {
            let expected = natively(&program, &[address, way]);
            let output = translated(options, &program, &[address, way]);
            let err = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status, expected.status, "{way}: {err}");
            assert_eq!(output.stdout, expected.stdout, "{way}: {err}");
            assert_eq!(err.lines().count(), 1, "{way}: {err}");
        }
    }
}

#[test]
fn descriptors_of_the_engine_are_hidden() {
    same(&ours("descriptors.c", &[]), &[]);
}

/// The kernel needs no descriptor to execute a program.
#[test]
fn a_process_with_all_its_descriptors_open_executes_programs() {
    let program = ours("descriptors.c", &[]);
    let limited = |engine: Option<&str>| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n 64; exec \"$@\"", "sh"]);
        command.args(engine).arg(&program).arg("full");
        run(command)
    };
    let (alone, found) = (limited(None), limited(Some(NATIVE)));
    let both = format!("{}\n{}", shown(&alone), shown(&found));
    let out = String::from_utf8_lossy(&alone.stdout).into_owned();
    assert!(out.ends_with("executed\nended 0\n"), "{both}");
    assert_eq!(found.stdout, alone.stdout, "{both}");
    let said = String::from_utf8_lossy(&found.stderr).into_owned();
    assert_eq!(said.lines().count(), 1, "{both}");
    assert!(
        said.contains("no descriptor is free: it runs natively"),
        "{both}"
    );
}

#[test]
fn variables_of_the_dynamic_linker_reach_only_the_program() {
    let program = ours("themselves.c", &["-fno-plt"]);
    let mut command = Command::new(NATIVE);
    command.arg(&program);
    command.env("LD_PRELOAD", "libm.so.6");
    let output = run(command);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("\nlibm.so.6\n"), "{}", shown(&output));
}

#[test]
fn a_script_runs_by_its_first_line() {
    use std::os::unix::fs::PermissionsExt;
    let script = folder().join("script");
    std::fs::write(&script, "#!/bin/sh -e\necho $0 $1\nfalse\necho no\n").expect("written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("executable");
    same(&script, &["one"]);
    same_shell("./script two; echo $?");
}

#[test]
fn openmp_workloads_run() {
    for name in ["ring", "stencil2d", "transpose", "pthread_ring"] {
        let source = workloads().join(format!("{name}.c"));
        let program = compiled(&source, name, &["-fopenmp"]);
        let expected = natively(&program, &[]);
        let got = translated(&[], &program, &[]);
        assert_eq!(got.status.code(), expected.status.code(), "{}", shown(&got));
    }
}

#[test]
fn what_cannot_run_is_refused_in_one_line() {
    let output = translated(&[], Path::new("/no/such/program"), &[]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(127), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
}
