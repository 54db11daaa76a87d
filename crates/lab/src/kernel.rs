//! Provides the guest's kernel: Debian's cloud kernel, downloaded with apt and unpacked into a folder of the lab,
//! not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::LabError;

/// The package that is used unless another one is asked for.
const PACKAGE: &str = "linux-image-cloud-amd64";
/// How names of packages with kernels begin.
const PACKAGES: &str = "linux-image-";
/// Unpacks modules, and is the guest's shell.
pub(crate) const BUSYBOX: &str = "/bin/busybox";
/// How names of compressed modules end (Debian's kernels since 6.5).
pub(crate) const COMPRESSED: &str = ".xz";
/// Drivers of the console ports and of the disk with the job; the drivers they depend on are found in their `depends=`
/// lines.
const DRIVERS: &[&str] = &["virtio_pci", "virtio_console", "virtio_blk"];

/// A kernel that can be booted.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Release, as printed by `uname -r`.
    pub release: String,
    /// The bootable image.
    pub image: PathBuf,
    /// Drivers in the order they must be loaded.
    pub modules: Vec<PathBuf>,
}

/// Where the lab keeps kernels and guest topologies: `$NUMALOC_LAB_CACHE`, else `numaloc/lab` in the
/// user's cache folder.
///
/// # Errors
/// [`LabError::Kernel`] if no cache folder is known and the account has no home folder.
pub fn cache_folder() -> Result<PathBuf, LabError> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    variable("NUMALOC_LAB_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|folder| folder.join("numaloc/lab")))
        .or_else(|| {
            let home = variable("HOME").or_else(std::env::home_dir)?;
            Some(home.join(".cache/numaloc/lab"))
        })
        .ok_or_else(|| {
            LabError::Kernel(
                "no cache folder: set NUMALOC_LAB_CACHE, XDG_CACHE_HOME or HOME".into(),
            )
        })
}

impl Kernel {
    /// The newest kernel of the cache folder, or a new download; `remark` is called before downloading.
    ///
    /// # Errors
    /// [`LabError`] if there is none and apt cannot download one.
    pub fn get(remark: &dyn Fn(&str)) -> Result<Self, LabError> {
        let cache = cache_folder()?;
        if let Some(found) = Self::newest(&cache) {
            return Self::open(&found);
        }
        Self::fetched(&cache, PACKAGE, remark)
    }

    /// The kernel that `what` names: a folder with an unpacked package, or a Debian package with a cloud kernel, which
    /// apt downloads once.
    ///
    /// # Errors
    /// As of [`Kernel::open`] and [`Kernel::get`].
    pub fn named(what: &str, remark: &dyn Fn(&str)) -> Result<Self, LabError> {
        if what == PACKAGE {
            return Self::get(remark);
        }
        let is_package = what.starts_with(PACKAGES) && !what.contains('/');
        if Path::new(what).is_dir() || !is_package {
            return Self::open(Path::new(what));
        }
        // In a folder by itself: the others' newest kernel is that of runs without a choice.
        let cache = cache_folder()?.join(what);
        match Self::newest(&cache) {
            Some(found) => Self::open(&found),
            None => Self::fetched(&cache, what, remark),
        }
    }

    fn fetched(cache: &Path, package: &str, remark: &dyn Fn(&str)) -> Result<Self, LabError> {
        remark(&format!(
            "downloading the guest kernel (Debian package {package}, about 30 MB)"
        ));
        Self::open(&fetch(cache, package)?)
    }

    /// The newest kernel of a [cache folder](cache_folder), if it has one. Downloads nothing.
    ///
    /// # Errors
    /// As of [`Kernel::open`].
    #[must_use]
    pub fn kept(cache: &Path) -> Option<Result<Self, LabError>> {
        Self::newest(cache).map(|folder| Self::open(&folder))
    }

    fn newest(cache: &Path) -> Option<PathBuf> {
        let mut found: Vec<PathBuf> = fs::read_dir(cache)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.join("boot").is_dir() && name_of(path).starts_with("kernel-"))
            .collect();
        // Numbers are compared as numbers: 6.1.0-9 is before 6.1.0-56.
        found.sort_by_key(|path| {
            name_of(path)
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|part| part.parse().ok())
                .collect::<Vec<u64>>()
        });
        found.pop()
    }

    /// An unpacked Debian kernel package (`dpkg -x`).
    ///
    /// # Errors
    /// [`LabError`] if it has no kernel or lacks a driver.
    pub fn open(folder: &Path) -> Result<Self, LabError> {
        let boot = folder.join("boot");
        let entries = fs::read_dir(&boot).map_err(|error| LabError::file("read", &boot, error))?;
        let (release, image) = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find_map(|path| Some((name_of(&path).strip_prefix("vmlinuz-")?.to_owned(), path)))
            .ok_or_else(|| LabError::Kernel(format!("{} has no vmlinuz-*", boot.display())))?;
        let modules_of = folder.join("lib/modules").join(&release);
        let built_in = fs::read_to_string(modules_of.join("modules.builtin")).unwrap_or_default();
        let is_built_in = |driver: &str| {
            let mut lines = built_in.lines();
            lines.any(|line| line.rsplit('/').next() == Some(&format!("{driver}.ko")))
        };
        let drivers = modules_of.join("kernel/drivers");
        let mut modules = Vec::new();
        for driver in DRIVERS.iter().filter(|driver| !is_built_in(driver)) {
            add_module(&drivers, driver, &mut modules)?;
        }
        Ok(Self {
            release,
            image,
            modules,
        })
    }
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Adds `module` after all modules it depends on.
fn add_module(drivers: &Path, module: &str, list: &mut Vec<PathBuf>) -> Result<(), LabError> {
    let path = ["virtio", "char", "block"]
        .iter()
        .flat_map(|folder| {
            let file = |end: &str| drivers.join(folder).join(format!("{module}.ko{end}"));
            [file(""), file(COMPRESSED)]
        })
        .find(|path| path.is_file())
        .ok_or_else(|| LabError::Kernel(format!("{} has no {module}.ko", drivers.display())))?;
    if list.contains(&path) {
        return Ok(());
    }
    for name in depends(&self::module(&path)?) {
        add_module(drivers, &name, list)?;
    }
    list.push(path);
    Ok(())
}

/// A module as the kernel loads it.
pub(crate) fn module(path: &Path) -> Result<Vec<u8>, LabError> {
    if path.extension().is_none_or(|end| end != &COMPRESSED[1..]) {
        return fs::read(path).map_err(|error| LabError::file("read", path, error));
    }
    let output = Command::new(BUSYBOX).arg("xzcat").arg(path).output();
    let output = output.map_err(|error| LabError::Tool {
        tool: BUSYBOX.into(),
        why: error.to_string(),
        package: "busybox-static",
    })?;
    if !output.status.success() || output.stdout.is_empty() {
        return Err(LabError::file("unpack", path, "not compressed by xz"));
    }
    Ok(output.stdout)
}

/// The `depends=a,b` line of a module's `.modinfo`.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let text = &module[at + KEY.len()..];
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&text[..end])
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn tool(command: &mut Command, package: &'static str) -> Result<String, LabError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let fail = |why: String| LabError::Tool {
        tool: name.clone(),
        why,
        package,
    };
    let output = command.output().map_err(|error| fail(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(fail(format!(
        "{}: {}",
        output.status,
        words.lines().last().unwrap_or("no message")
    )))
}

/// Downloads and unpacks the package; the folder gets its final name only when it is complete.
fn fetch(cache: &Path, package: &str) -> Result<PathBuf, LabError> {
    fs::create_dir_all(cache).map_err(|error| LabError::file("create", cache, error))?;
    let listing = tool(Command::new("apt-cache").args(["depends", package]), "apt")?;
    let image = listing
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .ok_or_else(|| {
            LabError::Kernel(format!(
                "apt finds no package {package}; run `apt-get update`, or unpack a Debian cloud kernel \
                 yourself: dpkg -x linux-image-*-cloud-amd64_*.deb {}/kernel-mine",
                cache.display()
            ))
        })?;
    let work = tempfile::Builder::new()
        .prefix("fetch-")
        .tempdir_in(cache)
        .map_err(|error| LabError::file("create a folder in", cache, error))?;
    tool(
        Command::new("apt-get")
            .args(["download", "-q", image])
            .current_dir(work.path()),
        "apt",
    )?;
    let archive = fs::read_dir(work.path())
        .map_err(|error| LabError::file("read", work.path(), error))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|ext| ext == "deb"))
        .ok_or_else(|| LabError::Kernel("apt-get download produced no package".into()))?;
    let unpacked = work.path().join("unpacked");
    tool(
        Command::new("dpkg").arg("-x").arg(&archive).arg(&unpacked),
        "dpkg",
    )?;
    let kernel = Kernel::open(&unpacked)?;
    let folder = cache.join(format!("kernel-{}", kernel.release));
    if let Err(error) = fs::rename(&unpacked, &folder)
        && !folder.is_dir()
    {
        return Err(LabError::file("create", &folder, error));
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_dependencies_are_read_from_modinfo() {
        let bytes = b"\x7fELF..\0license=GPL\0depends=virtio,virtio_ring\0name=x\0";
        assert_eq!(depends(bytes), ["virtio", "virtio_ring"]);
        assert!(depends(b"\0depends=\0").is_empty());
        assert!(depends(b"nothing").is_empty());
    }

    #[test]
    fn drivers_may_be_compressed_or_part_of_the_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let modules = folder.path().join("lib/modules/6.12-x");
        let drivers = modules.join("kernel/drivers/block");
        fs::create_dir_all(&drivers).unwrap();
        fs::create_dir_all(folder.path().join("boot")).unwrap();
        fs::write(folder.path().join("boot/vmlinuz-6.12-x"), "").unwrap();
        let refused = Kernel::open(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("has no virtio_pci.ko"), "{refused}");
        let built_in =
            "kernel/drivers/virtio/virtio_pci.ko\nkernel/drivers/char/virtio_console.ko\n";
        fs::write(modules.join("modules.builtin"), built_in).unwrap();
        // The first bytes of an xz file.
        let xz = [
            0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x01, 0x69, 0x22, 0xde, 0x36,
        ];
        let file = drivers.join("virtio_blk.ko.xz");
        fs::write(&file, xz).unwrap();
        let cut = Kernel::open(folder.path()).unwrap_err().to_string();
        assert!(cut.contains("not compressed by xz"), "{cut}");
    }

    #[test]
    fn newest_compares_numbers() {
        let cache = tempfile::tempdir().unwrap();
        for release in ["6.1.0-9-cloud", "6.1.0-56-cloud", "5.10.0-99-cloud"] {
            fs::create_dir_all(cache.path().join(format!("kernel-{release}/boot"))).unwrap();
        }
        let newest = Kernel::newest(cache.path()).unwrap();
        assert!(newest.ends_with("kernel-6.1.0-56-cloud"), "{newest:?}");
    }
}
