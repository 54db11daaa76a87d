//! Whether two commands run the same program: a plan names threads and objects by their creation in one program, and
//! means nothing in another.

use std::ffi::OsString;
use std::path::Path;

/// Programs whose first argument is the program proper.
const INTERPRETERS: [&str; 18] = [
    "Rscript", "bash", "dash", "guile", "java", "julia", "ksh", "lua", "luajit", "node", "perl",
    "php", "pypy", "python", "ruby", "sh", "tclsh", "zsh",
];

/// The names that make up a program: that of the file, without the version of an interpreter, and that of its script.
fn names(command: &[OsString]) -> Vec<String> {
    let Some((first, arguments)) = command.split_first() else {
        return Vec::new();
    };
    let name = name_of(first);
    let interpreter = unversioned(&name);
    if !INTERPRETERS.contains(&interpreter) {
        return vec![name];
    }
    let mut names = vec![interpreter.to_owned()];
    for argument in arguments {
        match argument.to_str() {
            // Code on the command line, which differs as arguments do.
            Some("-c" | "-e" | "-E") => break,
            Some(option) if option.starts_with('-') => {}
            _ => {
                names.push(name_of(argument));
                break;
            }
        }
    }
    names
}

/// The last part of a path.
fn name_of(word: &OsString) -> String {
    let name = Path::new(word).file_name().unwrap_or(word);
    name.to_string_lossy().into_owned()
}

/// `python` for `python3.11`.
fn unversioned(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
}

/// Whether `command` runs the program of the `recorded` command, either of them itself or through other programs
/// (`env`, `numactl`, `time`), whose threads come before those of the program. True if the recorded command is
/// not known.
pub fn is_in(recorded: &[String], command: &[OsString]) -> bool {
    let recorded: Vec<OsString> = recorded.iter().map(Into::into).collect();
    let within = |whole: &[OsString], wanted: &[String]| {
        (0..whole.len()).any(|at| names(&whole[at..]) == wanted)
    };
    recorded.is_empty() || within(command, &names(&recorded)) || within(&recorded, &names(command))
}

/// The program of a command, for messages.
pub fn shown(command: &[OsString]) -> String {
    names(command).join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_same(recorded: &str, now: &str) -> bool {
        let words = |text: &str| {
            text.split_whitespace()
                .map(String::from)
                .collect::<Vec<_>>()
        };
        let now: Vec<OsString> = words(now).into_iter().map(OsString::from).collect();
        is_in(&words(recorded), &now)
    }

    #[test]
    fn the_same_program_in_another_place_with_other_arguments_or_through_others() {
        for now in [
            "./app",
            "/opt/bin/app --size 9",
            "env A=1 ./app",
            "numactl -N 0 -- ./app 7",
        ] {
            assert!(is_same("./app --size 1", now), "{now}");
        }
        assert!(is_same("env A=1 ./app", "./app"));
        assert!(is_same("sh -c ./a;./b", "/bin/sh -c ./a;./c"));
        assert!(is_same(
            "python3 work.py 5",
            "/usr/bin/python3.11 -u ../work.py"
        ));
        assert!(is_same("java -jar x.jar", "java -Xmx1g -jar /a/x.jar"));
        // Its first line names the interpreter.
        assert!(is_same("python3 a.py", "./a.py"));
        // A plan made by hand.
        assert!(is_same("", "./anything"));
    }

    #[test]
    fn another_program_or_another_script_of_the_same_interpreter() {
        for (recorded, now) in [
            ("./app", "./app2"),
            ("./app", "true"),
            ("./app", "sh -c ./apps"),
            ("python3 a.py", "python3 b.py"),
            ("sh run.sh", "bash run.sh"),
        ] {
            assert!(!is_same(recorded, now), "{recorded}: {now}");
        }
    }
}
