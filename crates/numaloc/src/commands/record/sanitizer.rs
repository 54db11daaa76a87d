//! Programs built with a sanitizer, which needs the addresses where a recorder has its tables, or traces the program.

use object::{Object as _, ObjectSymbol as _};

use super::CANNOT_RUN;
use super::program::Program;
use crate::error::CliError;

/// Prefixes of the functions of sanitizers that programs cannot be recorded with, and the compiler's option; `address`
/// has those of `leak` too. The one for undefined behaviour has neither shadow memory nor a tracer.
const SANITIZERS: [(&str, &str); 5] = [
    ("__asan_", "address"),
    ("__hwasan_", "hwaddress"),
    ("__lsan_", "leak"),
    ("__msan_", "memory"),
    ("__tsan_", "thread"),
];

/// Refuses a program without our run-time library that was built with a sanitizer.
///
/// # Errors
/// Says which sanitizer.
pub fn refuse(program: &Program) -> Result<(), CliError> {
    let Some(option) = of(program) else {
        return Ok(());
    };
    let file = program.file.display();
    Err(CliError::tool(format!(
        "cannot record {file}: it was built with -fsanitize={option}, which uses the addresses of the recorder's tables or traces the program"
    ))
    .hint("build it without the sanitizer")
    .status(CANNOT_RUN))
}

/// The option of the sanitizer that the program was built with.
fn of(program: &Program) -> Option<&'static str> {
    let file = object::ReadCache::new(std::fs::File::open(&program.file).ok()?);
    let file = object::File::parse(&file).ok()?;
    // Linked statically, their functions are exported too, for libraries.
    let names: Vec<&str> = file
        .dynamic_symbols()
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    let used = |prefix: &str| names.iter().any(|name| name.starts_with(prefix));
    let found = SANITIZERS.iter().find(|(prefix, _)| used(prefix));
    found.map(|&(_, option)| option)
}
