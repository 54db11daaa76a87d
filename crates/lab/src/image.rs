//! Builds the guest's files as uncompressed cpio archives ("newc"): the initial file system, which is the same for all
//! jobs, and the files of a job, which the guest unpacks over it from a disk.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use crate::error::LabError;
use crate::job::Job;
use crate::kernel::{self, BUSYBOX, COMPRESSED, Kernel};
use crate::libraries::{Kind, examine, needed_by};
use crate::machine::Machine;

const AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent"));
const INIT: &str = include_str!("../guest/init");
const OURS: &str = "/numaloc-lab";
const LAUNCHER: &str = "/numaloc-lab/launcher";
/// Longest chain of scripts whose interpreter is again a script.
const MAX_INTERPRETERS: usize = 4;
/// Longest chain of symbolic links, as in the kernel.
const MAX_LINKS: usize = 40;

enum Entry {
    Folder,
    Bytes(Vec<u8>, u32),
    Copy(PathBuf, u32),
    /// A symbolic link to this absolute path.
    Link(PathBuf),
}

/// A file system under construction: absolute path to content.
#[derive(Default)]
pub(crate) struct Image {
    entries: BTreeMap<PathBuf, Entry>,
}

/// The path without `.` and `..`; it cannot leave the root.
fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => drop(out.pop()),
            _ => {}
        }
    }
    out
}

impl Image {
    fn add(&mut self, path: &Path, entry: Entry) {
        let path = clean(path);
        for folder in path.ancestors().skip(1) {
            self.entries.entry(folder.into()).or_insert(Entry::Folder);
        }
        self.entries.insert(path, entry);
    }

    fn bytes(&mut self, path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>, mode: u32) {
        self.add(path.as_ref(), Entry::Bytes(bytes.into(), mode));
    }

    /// Adds a host file, or a folder with its contents. Symbolic links are followed.
    fn copy(&mut self, host: &Path, guest: &Path) -> Result<(), LabError> {
        let fail = |error: io::Error| LabError::file("read", host, error);
        let about = fs::metadata(host).map_err(fail)?;
        if about.is_dir() {
            self.add(guest, Entry::Folder);
            for entry in fs::read_dir(host).map_err(fail)? {
                let entry = entry.map_err(fail)?;
                self.copy(&entry.path(), &guest.join(entry.file_name()))?;
            }
        } else if about.is_file() {
            let mode = about.permissions().mode() & 0o777;
            self.add(guest, Entry::Copy(host.to_owned(), mode));
        } else {
            return Err(LabError::file("copy", host, "neither file nor folder"));
        }
        Ok(())
    }

    /// Adds a file at its own path. A symbolic link is kept and its target added, because the kernel, and with it
    /// the identity of objects, names a mapped file by the link's target.
    fn same_place(&mut self, host: &Path) -> Result<(), LabError> {
        let mut path = host.to_owned();
        for _ in 0..MAX_LINKS {
            let Ok(target) = fs::read_link(&path) else {
                return self.copy(&path, &path);
            };
            // Joining an absolute target replaces the folder.
            let target = clean(&path.parent().unwrap_or(Path::new("/")).join(target));
            self.add(&path, Entry::Link(target.clone()));
            path = target;
        }
        Err(LabError::file("read", host, "too many symbolic links"))
    }

    /// Adds a program at its own path, with its loader and libraries or its interpreter at theirs.
    fn program(&mut self, program: &Path, depth: usize) -> Result<(), LabError> {
        self.same_place(program)?;
        match examine(program)? {
            Kind::Static => Ok(()),
            Kind::Script(_) if depth == 0 => {
                Err(LabError::file("use", program, "too many interpreters"))
            }
            Kind::Script(interpreter) => self.program(&interpreter, depth - 1),
            Kind::Dynamic { loader, libraries } => {
                self.same_place(&loader)?;
                for (_, path) in &libraries {
                    self.same_place(path)?;
                }
                let cache = Path::new("/etc/ld.so.cache");
                if cache.is_file() {
                    self.copy(cache, cache)?;
                }
                Ok(())
            }
        }
    }

    /// Adds a launcher with its own copies of its libraries, so that their code is distinguished from the
    /// program's. Returns its command.
    fn launcher(&mut self, launcher: &Path) -> Result<Vec<String>, LabError> {
        let inside = Path::new(LAUNCHER);
        let name = launcher.file_name().unwrap_or_default();
        let program = inside.join(name);
        self.copy(launcher, &program)?;
        let shown = |path: &Path| path.to_string_lossy().into_owned();
        match examine(launcher)? {
            Kind::Static => Ok(vec![shown(&program)]),
            Kind::Script(_) => Err(LabError::file(
                "use",
                launcher,
                "a launcher must be an executable program",
            )),
            Kind::Dynamic { loader, libraries } => {
                let start = inside.join("loader");
                self.copy(&loader, &start)?;
                let folder = inside.join("lib");
                for (name, path) in &libraries {
                    let name = Path::new(name).file_name().unwrap_or_default();
                    self.copy(path, &folder.join(name))?;
                }
                Ok(vec![
                    shown(&start),
                    "--library-path".into(),
                    shown(&folder),
                    shown(&program),
                ])
            }
        }
    }

    /// Adds a library to the launcher's folder, and what the library needs at its own path.
    fn preloaded(&mut self, library: &Path) -> Result<(), LabError> {
        let name = library.file_name().unwrap_or_default();
        self.copy(library, &Path::new(LAUNCHER).join(name))?;
        for (_, path) in &needed_by(library)? {
            self.same_place(path)?;
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> Result<(), LabError> {
        let file = File::create(path).map_err(|error| LabError::file("create", path, error))?;
        self.write(&mut BufWriter::new(file))
    }

    /// Writes the archive: for each entry a 110-byte header of hexadecimal fields, the name, the content,
    /// each padded to 4 bytes.
    fn write(&self, out: &mut impl Write) -> Result<(), LabError> {
        let io =
            |error: io::Error| LabError::file("write", Path::new("the guest's file system"), error);
        let trailer = (PathBuf::from("/TRAILER!!!"), Entry::Bytes(Vec::new(), 0));
        let entries = self
            .entries
            .iter()
            .filter(|(path, _)| path.parent().is_some());
        for (number, (path, entry)) in entries.chain([(&trailer.0, &trailer.1)]).enumerate() {
            let read;
            let (mode, content): (u32, &[u8]) = match entry {
                Entry::Folder => (0o040_755, &[]),
                Entry::Bytes(bytes, mode) => (0o100_000 | mode, bytes),
                Entry::Copy(host, mode) => {
                    read = fs::read(host).map_err(|error| LabError::file("read", host, error))?;
                    (0o100_000 | mode, &read)
                }
                Entry::Link(target) => (0o120_777, target.as_os_str().as_bytes()),
            };
            let name = path.to_string_lossy();
            let name = name.trim_start_matches('/');
            let size = u32::try_from(content.len())
                .map_err(|_| LabError::file("copy", path, "larger than 4 GiB"))?;
            // inode, mode, uid, gid, links, mtime, size, device x2, special device x2, name, check
            let fields = [number as u32 + 1, mode, 0, 0, 1, 0, size, 0, 0, 0, 0];
            let mut header = String::from("070701");
            for field in fields {
                header += &format!("{field:08x}");
            }
            header += &format!("{:08x}{:08x}{name}\0", name.len() + 1, 0);
            out.write_all(header.as_bytes()).map_err(io)?;
            out.write_all(&[0; 3][..padding(header.len())])
                .map_err(io)?;
            out.write_all(content).map_err(io)?;
            out.write_all(&[0; 3][..padding(content.len())])
                .map_err(io)?;
        }
        out.flush().map_err(io)
    }
}

fn padding(length: usize) -> usize {
    length.wrapping_neg() % 4
}

fn terminated<'a>(strings: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    strings
        .into_iter()
        .flat_map(|text| text.bytes().chain([0]))
        .collect()
}

/// What the initial file system is made of besides the kernel's modules: another one makes another guest.
pub(crate) fn parts() -> [&'static [u8]; 2] {
    [AGENT, INIT.as_bytes()]
}

/// Writes the initial file system of any guest to `path`.
pub(crate) fn initial(path: &Path, kernel: &Kernel) -> Result<(), LabError> {
    let mut image = Image::default();
    for folder in ["/proc", "/sys", "/dev", "/tmp", "/run", "/etc"] {
        image.add(Path::new(folder), Entry::Folder);
    }
    image.bytes("/etc/passwd", "root:x:0:0:root:/:/bin/sh\n", 0o644);
    image.bytes("/etc/group", "root:x:0:\n", 0o644);
    image.bytes("/etc/hosts", "127.0.0.1 localhost\n", 0o644);
    image.bytes("/init", INIT, 0o755);
    image.bytes(format!("{OURS}/agent"), AGENT, 0o755);
    let busybox = Path::new(BUSYBOX);
    if !busybox.is_file() || examine(busybox)? != Kind::Static {
        return Err(LabError::Tool {
            tool: BUSYBOX.into(),
            why: "no static busybox found".into(),
            package: "busybox-static",
        });
    }
    image.copy(busybox, busybox)?;
    image.copy(busybox, Path::new("/bin/sh"))?;
    let mut order = String::new();
    for module in &kernel.modules {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(COMPRESSED).unwrap_or(&name);
        let place = Path::new(OURS).join("modules").join(name);
        image.bytes(place, kernel::module(module)?, 0o644);
        order += &format!("{name}\n");
    }
    image.bytes(format!("{OURS}/modules/order"), order, 0o644);
    image.create(path)
}

/// Writes the files of a job to `path`. `now` is the time of day that the guest is to have, in seconds since 1970, and
/// `seed` what it adds to its random numbers: a guest that continues has those of the day on which it was kept.
pub(crate) fn job(
    path: &Path,
    machine: &Machine,
    job: &Job,
    now: u64,
    seed: [u8; 32],
) -> Result<(), LabError> {
    let mut image = Image::default();
    image.bytes(format!("{OURS}/time"), format!("{now}\n"), 0o644);
    image.bytes(format!("{OURS}/seed"), seed, 0o600);
    image.program(&job.program, MAX_INTERPRETERS)?;
    image.add(&job.folder, Entry::Folder);
    for file in &job.files {
        // A program among the files needs its libraries; anything else is data.
        if matches!(examine(&file.host), Ok(Kind::Dynamic { .. })) {
            image.program(&file.host, MAX_INTERPRETERS)?;
        }
        image.copy(&file.host, &file.guest)?;
    }
    let mut options = format!(
        "nodes {}\ncpus {}\nautonuma {}\nthp {}\ncwd {}\ntrace_exit {}\n",
        machine.cpus.len(),
        machine.cpu_count(),
        u8::from(job.autonuma),
        job.huge_pages.name(),
        clean(&job.folder).display(),
        u8::from(!job.launcher_traces),
    );
    for weight in &job.weights {
        options += &format!("weight {weight}\n");
    }
    if let Some(stdin) = &job.stdin {
        image.copy(stdin, Path::new("/numaloc-lab/stdin"))?;
        options += "stdin /numaloc-lab/stdin\n";
    }
    let mut command = Vec::new();
    if let Some((launcher, arguments)) = &job.launcher {
        command = image.launcher(launcher)?;
        for library in &job.preloaded {
            image.preloaded(library)?;
        }
        command.extend(arguments.iter().cloned());
        for path in image.entries.iter().filter_map(|(path, entry)| {
            (path.starts_with(LAUNCHER) && !matches!(entry, Entry::Folder)).then_some(path)
        }) {
            options += &format!("exclude {}\n", path.display());
        }
    }
    command.push(clean(&job.program).to_string_lossy().into_owned());
    command.extend(job.arguments.iter().cloned());
    image.bytes(
        format!("{OURS}/argv"),
        terminated(command.iter().map(String::as_str)),
        0o644,
    );
    let environment: Vec<String> = job
        .environment
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    image.bytes(
        format!("{OURS}/env"),
        terminated(environment.iter().map(String::as_str)),
        0o644,
    );
    image.bytes(format!("{OURS}/options"), options, 0o644);
    image.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_what_cpio_reads() {
        let folder = tempfile::tempdir().unwrap();
        let mut image = Image::default();
        image.bytes("/a/b/odd", "12345", 0o755);
        image.bytes("/a/../a/c", "", 0o600);
        let archive = folder.path().join("x.cpio");
        image.write(&mut File::create(&archive).unwrap()).unwrap();
        let out = std::process::Command::new("cpio")
            .args(["-i", "--make-directories", "--quiet", "--file"])
            .arg(&archive)
            .current_dir(folder.path())
            .output()
            .expect("cpio runs (Debian package cpio)");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        let odd = folder.path().join("a/b/odd");
        assert_eq!(fs::read(&odd).unwrap(), b"12345");
        assert_eq!(
            fs::metadata(&odd).unwrap().permissions().mode() & 0o777,
            0o755
        );
        assert!(folder.path().join("a/c").is_file());
    }

    #[test]
    fn links_stay_links_and_their_targets_are_added() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::write(root.join("libx.so.1.0"), "code").unwrap();
        std::os::unix::fs::symlink("libx.so.1.0", root.join("libx.so.1")).unwrap();
        std::os::unix::fs::symlink(root.join("libx.so.1"), root.join("alternative")).unwrap();
        let mut image = Image::default();
        image.same_place(&root.join("alternative")).unwrap();
        let link = |name: &str| match image.entries.get(&root.join(name)) {
            Some(Entry::Link(target)) => target.clone(),
            _ => panic!("{name} is not a link"),
        };
        assert_eq!(link("alternative"), root.join("libx.so.1"));
        assert_eq!(link("libx.so.1"), root.join("libx.so.1.0"));
        let file = image.entries.get(&root.join("libx.so.1.0"));
        assert!(matches!(file, Some(Entry::Copy(..))));
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        let error = image.same_place(&root.join("loop")).unwrap_err();
        assert!(
            error.to_string().contains("too many symbolic links"),
            "{error}"
        );
    }

    #[test]
    fn paths_stay_inside_the_root() {
        assert_eq!(clean(Path::new("/a/../../b/./c")), Path::new("/b/c"));
        assert_eq!(clean(Path::new("x")), Path::new("/x"));
    }
}
