//! The symbols and the debugging information of an ELF file: in the file itself, or where packages and tools put them.
//!
//! | where | what is checked |
//! |---|---|
//! | sections of the file, plain or compressed by zlib or zstd | size |
//! | `/usr/lib/debug/.build-id/XX/REST.debug`, the cache of debuginfod | build id |
//! | the file named by `.gnu_debuglink`: next to this one, in `.debug` there, or below `/usr/lib/debug` | checksum |
//! | the file named by `.gnu_debugaltlink`, where several packages' information has common parts (dwz) | build id |
//! | `.gnu_debugdata`: symbols only, compressed by xz | size |
//!
//! Nothing is fetched. What is damaged, too large or does not belong to the file is left out. Of the C library symbols
//! are read and nothing else: no reader of a profile looks for its lines, and its debugging information, where it is
//! installed, took two thirds of the time of a short recording.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gimli::{EndianSlice, LittleEndian, SectionId};
use object::{CompressionFormat, File, Object as _, ObjectSection as _};

use crate::system;

/// Largest `.debug_info` section read, in bytes: a larger one would take longer than a second or two.
pub(crate) const DEBUG_INFO_MAX: u64 = 256 << 20;
/// Largest section that is decompressed, in bytes.
const DECOMPRESSED_MAX: u64 = 1 << 30;

/// Bytes of debugging information.
pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;
type Loaded<'a> = gimli::DwarfSections<Cow<'a, [u8]>>;

/// An ELF file with what belongs to it.
#[derive(Debug)]
pub struct Debug {
    own: Vec<u8>,
    /// The file with its debugging information, if that is another one.
    separate: Option<Vec<u8>>,
    /// What several files with debugging information have in common.
    common: Option<Vec<u8>>,
    /// An ELF file with symbols that was compressed.
    symbols: Option<Vec<u8>>,
    /// Whether only symbols are of use.
    has_only_symbols: bool,
}

/// Where separate files are searched.
struct Folders {
    /// Like `/usr/lib/debug`.
    system: PathBuf,
    /// Like `~/.cache/debuginfod_client`.
    caches: Vec<PathBuf>,
}

impl Folders {
    fn of_system() -> Self {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        let home = || variable("HOME");
        let caches = [
            variable("DEBUGINFOD_CACHE_PATH"),
            variable("XDG_CACHE_HOME")
                .or_else(|| Some(home()?.join(".cache")))
                .map(|cache| cache.join("debuginfod_client")),
            home().map(|home| home.join(".debuginfod_client_cache")),
        ];
        Self {
            system: PathBuf::from("/usr/lib/debug"),
            caches: caches.into_iter().flatten().collect(),
        }
    }

    /// The files that may have the information of the file with this build id.
    fn of_build_id(&self, id: &[u8]) -> Vec<PathBuf> {
        let Some((first, rest)) = id.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return Vec::new();
        };
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        let name = format!(".build-id/{first:02x}/{}.debug", hex(rest));
        let caches = self.caches.iter();
        let cached = caches.map(|cache| cache.join(hex(id)).join("debuginfo"));
        std::iter::once(self.system.join(name))
            .chain(cached)
            .collect()
    }

    /// The files that the file at `path` may mean by `name`.
    fn of_link(&self, path: &Path, name: &OsStr) -> Vec<PathBuf> {
        let Some(folder) = path.parent().filter(|_| is_base_name(name)) else {
            return Vec::new();
        };
        let below = folder.strip_prefix("/").unwrap_or(folder);
        vec![
            folder.join(name),
            folder.join(".debug").join(name),
            self.system.join(below).join(name),
        ]
    }
}

fn is_base_name(name: &OsStr) -> bool {
    !name.is_empty() && name != ".." && !name.as_bytes().contains(&b'/')
}

impl Debug {
    /// Reads the file at `path`; `None` if it is no readable ELF file.
    #[must_use]
    pub fn open(path: &str) -> Option<Self> {
        Self::open_in(Path::new(path), &Folders::of_system())
    }

    fn open_in(path: &Path, folders: &Folders) -> Option<Self> {
        let own = read(path)?;
        let file = File::parse(&*own).ok()?;
        let complete = has(&file, ".debug_info") && has(&file, ".symtab");
        let separate = (!complete)
            .then(|| separate(path, &file, folders))
            .flatten();
        let symbols = (separate.is_none() && !has(&file, ".symtab"))
            .then(|| file.section_by_name(".gnu_debugdata"))
            .flatten()
            .and_then(|section| unpacked(section.data().ok()?));
        let has_only_symbols = path.to_str().is_some_and(system::is_c_library);
        let common = match &separate {
            _ if has_only_symbols => None,
            Some((path, bytes)) => File::parse(&**bytes)
                .ok()
                .and_then(|file| common(path, &file, folders)),
            None => common(path, &file, folders),
        };
        Some(Self {
            own,
            separate: separate.map(|(_, bytes)| bytes),
            common,
            symbols,
            has_only_symbols,
        })
    }

    /// The file itself.
    pub(crate) fn file(&self) -> Option<File<'_>> {
        File::parse(&*self.own).ok()
    }

    /// The files that have symbols of the file, which is one of them.
    pub(crate) fn files(&self) -> Vec<File<'_>> {
        let files = [
            Some(&self.own),
            self.separate.as_ref(),
            self.symbols.as_ref(),
        ];
        let files = files.into_iter().flatten();
        files
            .filter_map(|bytes| File::parse(&**bytes).ok())
            .collect()
    }

    /// The debugging information; `None` if there is none, or too much.
    pub(crate) fn sections(&self) -> Option<Sections<'_>> {
        if self.has_only_symbols {
            return None;
        }
        let mut files = self.files().into_iter();
        let file = files.find(|file| has(file, ".debug_info"))?;
        let info = file.section_by_name(".debug_info")?;
        if info.compressed_data().ok()?.uncompressed_size > DEBUG_INFO_MAX {
            return None;
        }
        let common = self.common.as_ref();
        let common = common.and_then(|bytes| File::parse(&**bytes).ok());
        Some(Sections {
            own: loaded(&file)?,
            common: common.and_then(|file| loaded(&file)),
        })
    }
}

/// Debugging information, decompressed.
pub(crate) struct Sections<'a> {
    own: Loaded<'a>,
    common: Option<Loaded<'a>>,
}

impl Sections<'_> {
    pub(crate) fn dwarf(&self) -> gimli::Dwarf<Bytes<'_>> {
        let slice = |bytes| EndianSlice::new(bytes, LittleEndian);
        match &self.common {
            Some(common) => self.own.borrow_with_sup(common, |bytes| slice(bytes)),
            None => self.own.borrow(|bytes| slice(bytes)),
        }
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let is_file = std::fs::metadata(path).ok()?.is_file();
    is_file.then(|| std::fs::read(path).ok()).flatten()
}

/// Whether a section has content in this file.
fn has(file: &File<'_>, name: &str) -> bool {
    let section = file.section_by_name(name);
    section.is_some_and(|section| section.file_range().is_some_and(|(_, size)| size > 0))
}

/// The separate file with the debugging information of `file`.
fn separate(path: &Path, file: &File<'_>, folders: &Folders) -> Option<(PathBuf, Vec<u8>)> {
    if let Ok(Some(id)) = file.build_id() {
        let mut paths = folders.of_build_id(id).into_iter();
        if let Some(found) = paths.find_map(|path| with_build_id(path, id)) {
            return Some(found);
        }
    }
    let (name, checksum) = file.gnu_debuglink().ok()??;
    let paths = folders.of_link(path, OsStr::from_bytes(name));
    let mut paths = paths.into_iter().filter(|found| found != path);
    paths.find_map(|path| {
        let bytes = read(&path).filter(|bytes| crc32fast::hash(bytes) == checksum)?;
        Some((path, bytes))
    })
}

fn with_build_id(path: PathBuf, id: &[u8]) -> Option<(PathBuf, Vec<u8>)> {
    let bytes = read(&path)?;
    let file = File::parse(&*bytes).ok()?;
    (file.build_id().ok()? == Some(id)).then_some((path, bytes))
}

/// The file with what the debugging information of `file`, which is at `path`, has in common with others.
fn common(path: &Path, file: &File<'_>, folders: &Folders) -> Option<Vec<u8>> {
    let (name, id) = file.gnu_debugaltlink().ok()??;
    // An absolute name replaces the folder.
    let named = path.parent()?.join(OsStr::from_bytes(name));
    let mut paths = std::iter::once(named).chain(folders.of_build_id(id));
    paths.find_map(|path| Some(with_build_id(path, id)?.1))
}

fn loaded<'a>(file: &File<'a>) -> Option<Loaded<'a>> {
    let load = |id: SectionId| -> Result<Cow<'a, [u8]>, gimli::Error> {
        let section = file.section_by_name(id.name());
        let content = section.and_then(|section| content(&section));
        Ok(content.unwrap_or(Cow::Borrowed(&[])))
    };
    gimli::DwarfSections::load(load).ok()
}

/// The content of a section, decompressed.
fn content<'a>(section: &object::Section<'a, '_>) -> Option<Cow<'a, [u8]>> {
    let found = section.compressed_data().ok()?;
    let size = found.uncompressed_size;
    if found.format == CompressionFormat::None {
        return Some(Cow::Borrowed(found.data));
    }
    if size > DECOMPRESSED_MAX {
        return None;
    }
    let bytes = match found.format {
        CompressionFormat::Zlib => {
            let mut bytes = Vec::new();
            let decoder = flate2::read::ZlibDecoder::new(found.data);
            decoder.take(size).read_to_end(&mut bytes).ok()?;
            bytes
        }
        CompressionFormat::Zstandard => {
            zstd::bulk::decompress(found.data, usize::try_from(size).ok()?).ok()?
        }
        _ => return None,
    };
    (bytes.len() as u64 == size).then_some(Cow::Owned(bytes))
}

/// What xz has compressed.
fn unpacked(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    let reader = lzma_rust2::XzReader::new(bytes, false);
    reader.take(DEBUG_INFO_MAX).read_to_end(&mut found).ok()?;
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimli::Section as _;
    use object::ObjectSymbol as _;
    use std::process::Command;

    const PROGRAM: &str = "static int hidden(int x) { return x * 3; }\nint main(int n, char **v) { return hidden(n); }\n";

    fn done(command: &mut Command) -> bool {
        command.status().is_ok_and(|status| status.success())
    }

    /// A program built in a folder, with these options of the compiler.
    fn built(folder: &Path, flags: &[&str]) -> PathBuf {
        let (source, program) = (folder.join("a.c"), folder.join("a"));
        std::fs::write(&source, PROGRAM).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-O0", "-Wl,--build-id"]).args(flags);
        assert!(done(compiler.arg("-o").args([&program, &source])));
        program
    }

    /// Moves the debugging information to another file, which is linked by name.
    fn split(program: &Path, to: &Path) {
        let objcopy = || Command::new("objcopy");
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        assert!(done(objcopy().arg("--only-keep-debug").args([program, to])));
        assert!(done(Command::new("strip").arg(program)));
        let link = format!("--add-gnu-debuglink={}", to.display());
        assert!(done(objcopy().arg(link).arg(program)));
    }

    fn opened(program: &Path, system: &Path) -> Debug {
        let folders = Folders {
            system: system.to_owned(),
            caches: vec![system.join("cache")],
        };
        Debug::open_in(program, &folders).unwrap()
    }

    /// Whether the function without external symbol, and the file of the source, are found.
    fn found(debug: &Debug) -> (bool, bool) {
        let files = debug.files();
        let mut symbols = files.iter().flat_map(|file| file.symbols());
        let named = symbols.any(|symbol| symbol.name() == Ok("hidden"));
        let lines = debug.sections().is_some_and(|sections| {
            let dwarf = sections.dwarf();
            let mut units = dwarf.units();
            let unit = units.next().unwrap().unwrap();
            dwarf.unit(unit).unwrap().line_program.is_some()
        });
        (named, lines)
    }

    /// The bytes of the line tables.
    fn lines(debug: &Debug) -> Vec<u8> {
        let sections = debug.sections().unwrap();
        let dwarf = sections.dwarf();
        dwarf.debug_line.reader().slice().to_vec()
    }

    #[test]
    fn compressed_sections_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let program = built(folder.path(), &["-g"]);
        let whole = opened(&program, folder.path());
        assert_eq!(found(&whole), (true, true));
        for how in ["zlib", "zstd"] {
            let compressed = folder.path().join(how);
            let option = format!("--compress-debug-sections={how}");
            let mut objcopy = Command::new("objcopy");
            // Older versions do not know zstd.
            if done(objcopy.arg(option).args([&program, &compressed])) {
                let debug = opened(&compressed, folder.path());
                assert_eq!(found(&debug), (true, true), "{how}");
                assert_eq!(lines(&debug), lines(&whole), "{how}");
            }
        }
    }

    #[test]
    fn separate_files_are_found_by_link_and_by_build_id_and_must_belong_to_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, system) = (folder.path(), folder.path().join("debug"));
        let link = folder.join("a.debug");
        let below = system.join(folder.strip_prefix("/").unwrap());
        for to in [
            link.clone(),
            folder.join(".debug/a.debug"),
            below.join("a.debug"),
        ] {
            let program = built(folder, &["-g"]);
            split(&program, &to);
            assert_eq!(found(&opened(&program, &system)), (true, true), "{to:?}");
            // Of another build.
            let mut other = std::fs::read(&to).unwrap();
            *other.last_mut().unwrap() ^= 1;
            std::fs::write(&to, &other).unwrap();
            assert_eq!(found(&opened(&program, &system)), (false, false));
            std::fs::remove_file(&to).unwrap();
        }
        let program = built(folder, &["-g"]);
        split(&program, &link);
        let bytes = std::fs::read(&program).unwrap();
        let id = File::parse(&*bytes)
            .unwrap()
            .build_id()
            .unwrap()
            .unwrap()
            .to_vec();
        let folders = Folders {
            system: system.clone(),
            caches: vec![system.join("cache")],
        };
        for to in folders.of_build_id(&id) {
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::rename(&link, &to).unwrap();
            assert_eq!(found(&opened(&program, &system)), (true, true), "{to:?}");
            std::fs::rename(&to, &link).unwrap();
        }
        let outside = folders.of_link(&program, OsStr::new("../a.debug"));
        assert!(outside.is_empty(), "{outside:?}");
    }

    #[test]
    fn symbols_compressed_by_xz_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let program = built(folder.path(), &[]);
        let symbols = folder.path().join("symbols");
        let objcopy = || Command::new("objcopy");
        let kept = ["-S", "--keep-symbol=hidden"];
        assert!(done(objcopy().args(kept).args([&program, &symbols])));
        if !done(Command::new("xz").arg(&symbols)) {
            return;
        }
        assert!(done(Command::new("strip").arg(&program)));
        let section = format!(".gnu_debugdata={}.xz", symbols.display());
        assert!(done(
            objcopy().args(["--add-section", &section]).arg(&program)
        ));
        assert_eq!(found(&opened(&program, folder.path())), (true, false));
    }

    #[test]
    fn damaged_files_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let program = built(folder.path(), &["-g", "-gz=zlib"]);
        let whole = std::fs::read(&program).unwrap();
        let damaged = folder.path().join("damaged");
        for at in (0..whole.len()).step_by(97) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            std::fs::write(&damaged, &bytes).unwrap();
            if let Some(debug) = Debug::open_in(&damaged, &Folders::of_system()) {
                debug.files();
                debug.sections();
            }
        }
    }
}
