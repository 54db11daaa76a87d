//! Programs that are recorded under QEMU: those linked to addresses that the recorder needs, and those that a program
//! executes which writes code all the time, because a wrapper of a virtual machine usually executes another one.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use numaloc_launch::emulator::{HIDES_ALLOCATOR, allocator};
use numaloc_trace::Config;

use crate::loader;

/// What the user should know about a program that writes code all the time.
pub const ADVICE: &str =
    "the program writes code all the time: --frontend qemu records such programs at less cost";

/// Why a program that such a program executes is recorded there.
pub const WRITES_CODE: &str = "the program that executes it writes code all the time";

/// The emulator, and the settings of a recording under it; `None` if there is none, or nothing is recorded.
pub fn available(settings: Option<&Config>) -> Option<(CString, Config)> {
    let (emulator, plugin) = loader::emulator()?;
    let config = Config {
        plugin: PathBuf::from(OsStr::from_bytes(plugin)),
        ..settings?.clone()
    };
    Some((CString::new(emulator.clone()).ok()?, config))
}

/// The emulator's command line for the program at `path`. Adds to `environment` what the emulator needs.
pub fn command(
    emulator: &CString,
    config: Config,
    path: &CString,
    arguments: Vec<CString>,
    environment: &mut Vec<CString>,
) -> Vec<CString> {
    let file = Path::new(OsStr::from_bytes(path.as_bytes()));
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let own = |bytes: Vec<u8>| CString::new(bytes).unwrap_or_default();
    let program = own(file.clone().into_os_string().into_vec());
    let config = Config {
        program: file,
        ..config
    };
    let mut arguments = arguments.into_iter();
    let name = arguments.next().unwrap_or_default();
    let option = own(config.plugin_option().into_vec());
    let mut command = vec![emulator.clone()];
    let entries = environment.iter();
    if let Some(entry) = allocator(entries.map(|entry| OsStr::from_bytes(entry.as_bytes()))) {
        command.extend(HIDES_ALLOCATOR.map(|word| own(word.into())));
        environment.push(own(entry.into_vec()));
    }
    command.extend([c"-plugin".to_owned(), option]);
    command.extend([c"-0".to_owned(), name, program]);
    command.extend(arguments);
    command
}
