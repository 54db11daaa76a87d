//! Identifies a compiler by the output of `-v`, also through wrappers such as `mpicc`.

use std::ffi::{OsStr, OsString};
use std::process::Command;

use crate::error::CliError;

/// A compiler, by the command that runs it.
pub struct Compiler {
    command: OsString,
    /// The lines of `-v` on version, target and configuration.
    described: String,
}

impl Compiler {
    /// Runs `command -v`.
    pub fn ask(command: &OsStr) -> Result<Self, CliError> {
        let answer = Command::new(command)
            .arg("-v")
            .env("LC_ALL", "C")
            .output()
            .map_err(|error| cannot_run(command, &error))?;
        let answer = String::from_utf8_lossy(&answer.stderr);
        let lines = answer.lines().filter(|line| {
            let starts = ["Target: ", "Configured with: "];
            line.contains(" version ") || starts.iter().any(|start| line.starts_with(start))
        });
        Ok(Self {
            command: command.to_owned(),
            described: lines.collect::<Vec<_>>().join("\n"),
        })
    }

    /// Runs it.
    pub fn command(&self) -> Command {
        Command::new(&self.command)
    }

    /// The error if the compiler cannot be run.
    pub fn cannot_run(&self, error: &std::io::Error) -> CliError {
        cannot_run(&self.command, error)
    }

    /// Its description, which differs between compilers and between builds of one compiler.
    pub fn described(&self) -> &str {
        &self.described
    }

    /// Whether it accepts clang's options.
    pub fn is_clang(&self) -> bool {
        self.described.contains("clang version")
    }

    /// Major version, if the compiler is gcc.
    pub fn version_of_gcc(&self) -> Option<u32> {
        let mut lines = self.described.lines();
        let version = lines.find_map(|line| line.strip_prefix("gcc version "))?;
        version.split(['.', ' ']).next()?.parse().ok()
    }
}

fn cannot_run(command: &OsStr, error: &std::io::Error) -> CliError {
    CliError::tool(format!(
        "cannot run the compiler {}: {error}",
        command.to_string_lossy()
    ))
    .hint("numaloc cc -- gcc ARGS: the compiler comes after the two dashes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_are_distinguished() {
        let of = |described: &str| Compiler {
            command: OsString::new(),
            described: described.to_owned(),
        };
        let gcc = of(
            "Using built-in specs.\nTarget: x86_64-linux-gnu\ngcc version 12.2.0 (Debian 12.2.0-14) \n",
        );
        assert_eq!((gcc.is_clang(), gcc.version_of_gcc()), (false, Some(12)));
        let clang = of(
            "Debian clang version 14.0.6\nSelected GCC installation: /usr/lib/gcc/x86_64-linux-gnu/12\n",
        );
        assert_eq!((clang.is_clang(), clang.version_of_gcc()), (true, None));
    }
}
