//! The exact frontend for unmodified programs on their own processor: `numaloc-native`.

use std::path::PathBuf;
use std::process::Command;

use numaloc_launch::{Part, sibling};
use numaloc_trace::Config;
use object::{Object as _, ObjectSegment as _};

use super::OWN_FAILURE;
use super::program::Program;
use super::qemu::PLUGIN_DIR;
use crate::error::CliError;

const TRANSLATOR: &str = "numaloc-native";
/// Addresses of the table of lines (docs/native.md, Limits).
const LINES: std::ops::Range<u64> = 0x7000_0000..512 << 30;

/// The command that runs `program`, recorded as `settings` say.
pub fn command(program: &Program, settings: &Config) -> Result<Command, CliError> {
    let mut command = Command::new(translator()?);
    command.arg("--record").arg(settings.encode());
    command.arg("--path").arg(&program.file).arg("--");
    command.args(&program.arguments);
    Ok(command)
}

/// Why the program cannot be recorded so; `None` if nothing is known against it.
pub fn unsuitable(program: &Program) -> Option<String> {
    if let Err(missing) = translator() {
        return Some(
            missing
                .message
                .trim_start_matches("cannot record: ")
                .to_owned(),
        );
    }
    if !cfg!(target_arch = "x86_64") || !has_fsgsbase() {
        return Some("it needs an x86-64 processor with FSGSBASE and Linux 5.9".to_owned());
    }
    let file = object::ReadCache::new(std::fs::File::open(&program.file).ok()?);
    let image = object::File::parse(&file).ok()?;
    if image.architecture() != object::Architecture::X86_64 || !image.is_64() {
        return Some("the program is for another processor".to_owned());
    }
    let within = |segment: object::Segment<'_, '_, _>| {
        let (begin, end) = (segment.address(), segment.address() + segment.size());
        begin < LINES.end && end > LINES.start
    };
    let fixed = image.kind() == object::ObjectKind::Executable;
    (fixed && image.segments().any(within))
        .then(|| "the program is linked to addresses that the recorder needs".to_owned())
}

/// Whether programs may set the bases of fs and gs themselves, as the kernel shows them.
fn has_fsgsbase() -> bool {
    const HWCAP2: u64 = 26;
    const FSGSBASE: u64 = 2;
    let vector = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let words: Vec<u64> = vector
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
        .collect();
    let mut entries = words.chunks_exact(2);
    entries.any(|entry| entry[0] == HWCAP2 && entry[1] & FSGSBASE != 0)
}

/// The translator lies next to this executable, or where `NUMALOC_PLUGIN_DIR` says.
pub fn translator() -> Result<PathBuf, CliError> {
    sibling(TRANSLATOR, Part::Library, std::env::var_os(PLUGIN_DIR)).map_err(|why| {
        CliError::tool(format!("cannot record: {why}"))
            .hint(why.hint(PLUGIN_DIR))
            .status(OWN_FAILURE)
    })
}
