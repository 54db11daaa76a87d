//! What of a command line keeps the tracer's variables from the ranks: the user's own `LD_PRELOAD` is joined with the
//! tracer's, lists of variables get the tracer's names, and what cannot be changed is reported before the program
//! starts.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::launcher::Launcher;
use crate::shims::Environment;

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// Why ranks would not be traced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{words} keeps the tracer's variables from the ranks, so nothing would be recorded: {remedy}"
)]
pub struct Kept {
    /// The words of the command line, or the variable.
    pub words: String,
    /// What to do.
    pub remedy: &'static str,
}

/// The command line whose launcher passes `environment` to the ranks, as far as its own options say otherwise.
/// `variable`: the value of a variable of the recorder's own environment.
///
/// # Errors
/// [`Kept`] if an option keeps the variables from the ranks.
pub fn passing(
    argv: &[OsString],
    launcher: Launcher,
    environment: &Environment,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<OsString>, Kept> {
    let mut words = argv.to_vec();
    match launcher {
        Launcher::Slurm => slurm(&mut words, environment, variable)?,
        Launcher::Hydra | Launcher::Intel => hydra(&mut words, environment)?,
        Launcher::OpenMpi | Launcher::Prrte => {
            for at in 1..words.len() {
                if words[at - 1] == "-x" {
                    words[at] = joined(&words[at], environment);
                }
            }
        }
        Launcher::None => {}
    }
    program_env(&mut words, environment)?;
    Ok(words)
}

/// `LD_PRELOAD=VALUE` with the tracer's libraries first; other words as they are.
fn joined(word: &OsStr, environment: &Environment) -> OsString {
    let Some(value) = word.as_bytes().strip_prefix(PRELOAD) else {
        return word.to_owned();
    };
    OsString::from_vec([PRELOAD, &with_ours(value, environment)].concat())
}

/// The tracer's libraries, then those of `value`.
fn with_ours(value: &[u8], environment: &Environment) -> Vec<u8> {
    let ours = environment.iter().find(|(name, _)| *name == "LD_PRELOAD");
    let ours = ours.map_or(&b""[..], |(_, value)| value.as_bytes());
    match (ours.is_empty(), value.is_empty()) {
        (true, _) => value.to_vec(),
        (_, true) => ours.to_vec(),
        _ => [ours, value].join(&b':'),
    }
}

/// The list with the names of the tracer's variables that it lacks.
fn listed(list: &OsStr, environment: &Environment) -> OsString {
    let mut items: Vec<OsString> = list
        .as_bytes()
        .split(|&byte| byte == b',')
        .filter(|item| !item.is_empty())
        .map(|item| joined(OsStr::from_bytes(item), environment))
        .collect();
    for (name, _) in environment {
        let has = |item: &OsString| {
            let item = item.as_bytes();
            item.split(|&byte| byte == b'=').next() == Some(name.as_bytes())
        };
        if !items.iter().any(has) {
            items.push(OsString::from(name));
        }
    }
    items.join(OsStr::new(","))
}

fn slurm(
    words: &mut [OsString],
    environment: &Environment,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<(), Kept> {
    const OPTION: &[u8] = b"--export=";
    const REMEDY: &str = "use --export=ALL, or a list of the variables that the program needs";
    let none = |list: &OsStr| list == "NONE" || list == "NIL";
    let mut is_named = false;
    for at in 1..words.len() {
        let (list, inside) = match words[at].as_bytes().strip_prefix(OPTION) {
            Some(list) => (OsStr::from_bytes(list).to_owned(), true),
            None if words[at - 1] == "--export" => (words[at].clone(), false),
            None => continue,
        };
        is_named = true;
        if none(&list) {
            return Err(Kept {
                words: format!("srun --export={}", list.to_string_lossy()),
                remedy: REMEDY,
            });
        }
        let list = listed(&list, environment);
        words[at] = match inside {
            true => OsString::from_vec([OPTION, list.as_bytes()].concat()),
            false => list,
        };
    }
    match variable("SLURM_EXPORT_ENV") {
        Some(list) if !is_named && none(&list) => Err(Kept {
            words: format!("SLURM_EXPORT_ENV={}", list.to_string_lossy()),
            remedy: REMEDY,
        }),
        _ => Ok(()),
    }
}

fn hydra(words: &mut [OsString], environment: &Environment) -> Result<(), Kept> {
    for at in 1..words.len() {
        let name = words[at].to_string_lossy().into_owned();
        match name.as_str() {
            "-genvnone" | "-envnone" => {
                return Err(Kept {
                    words: name,
                    remedy: "leave it out, or name the variables that the program needs with -genvlist",
                });
            }
            "-genvlist" | "-envlist" if at + 1 < words.len() => {
                words[at + 1] = listed(&words[at + 1], environment);
            }
            "-genv" | "-env" if at + 2 < words.len() && words[at + 1] == "LD_PRELOAD" => {
                let value = with_ours(words[at + 2].as_bytes(), environment);
                words[at + 2] = OsString::from_vec(value);
            }
            _ => {}
        }
    }
    Ok(())
}

/// `env LD_PRELOAD=... program` between launcher and program; what comes after the program are its own arguments.
fn program_env(words: &mut [OsString], environment: &Environment) -> Result<(), Kept> {
    let Some(env) = words.iter().skip(1).position(|word| word == "env") else {
        return Ok(());
    };
    let mut at = env + 2;
    while let Some(word) = words.get(at) {
        let cleared = ["-", "-i", "--ignore-environment"]
            .iter()
            .any(|i| word == i);
        let unset = word == "-u" && words.get(at + 1).is_some_and(|name| name == "LD_PRELOAD");
        if cleared || unset {
            return Err(Kept {
                words: match unset {
                    true => "env -u LD_PRELOAD".to_owned(),
                    false => format!("env {}", word.to_string_lossy()),
                },
                remedy: "leave it out",
            });
        }
        if !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=') {
            return Ok(());
        }
        words[at] = joined(word, environment);
        at += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(launcher: Launcher, line: &str) -> Result<String, String> {
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let environment: Environment = vec![
            ("LD_PRELOAD", "/t/ours.so".into()),
            ("NUMALOC_MPI_DIR", "/t".into()),
        ];
        let passed = passing(&argv, launcher, &environment, |_| None);
        let passed = passed.map_err(|kept| kept.words)?;
        Ok(passed.join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn the_users_own_libraries_are_loaded_after_the_tracers() {
        for (launcher, line, expected) in [
            (
                Launcher::OpenMpi,
                "mpirun -x LD_PRELOAD=/u.so -x A=1 ./a",
                "mpirun -x LD_PRELOAD=/t/ours.so:/u.so -x A=1 ./a",
            ),
            (
                Launcher::Hydra,
                "mpiexec -genv LD_PRELOAD /u.so ./a",
                "mpiexec -genv LD_PRELOAD /t/ours.so:/u.so ./a",
            ),
            (
                Launcher::Hydra,
                "mpiexec -genvlist A,B ./a",
                "mpiexec -genvlist A,B,LD_PRELOAD,NUMALOC_MPI_DIR ./a",
            ),
            (
                Launcher::Slurm,
                "srun --export=ALL,LD_PRELOAD=/u.so ./a",
                "srun --export=ALL,LD_PRELOAD=/t/ours.so:/u.so,NUMALOC_MPI_DIR ./a",
            ),
            (
                Launcher::OpenMpi,
                "mpirun env A=1 LD_PRELOAD=/u.so ./a LD_PRELOAD=/v.so",
                "mpirun env A=1 LD_PRELOAD=/t/ours.so:/u.so ./a LD_PRELOAD=/v.so",
            ),
        ] {
            assert_eq!(passed(launcher, line).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn what_keeps_the_variables_from_the_ranks_is_reported() {
        for (launcher, line, expected) in [
            (
                Launcher::Slurm,
                "srun --export=NONE ./a",
                "srun --export=NONE",
            ),
            (
                Launcher::Slurm,
                "srun --export NIL ./a",
                "srun --export=NIL",
            ),
            (Launcher::Hydra, "mpiexec -genvnone ./a", "-genvnone"),
            (Launcher::OpenMpi, "mpirun env -i A=1 ./a", "env -i"),
            (
                Launcher::None,
                "./a env -u LD_PRELOAD ./b",
                "env -u LD_PRELOAD",
            ),
        ] {
            assert_eq!(passed(launcher, line), Err(expected.to_owned()));
        }
        let argv = ["srun", "./a"].map(OsString::from);
        let none = |name: &str| (name == "SLURM_EXPORT_ENV").then(|| "NONE".into());
        let kept = passing(&argv, Launcher::Slurm, &Environment::new(), none);
        assert_eq!(kept.unwrap_err().words, "SLURM_EXPORT_ENV=NONE");
    }
}
