//! Files of the system, by their paths: nobody who reads a profile changes them.

/// Base names of the GNU C library's files without version, and of musl's, which is its own loader.
const C_LIBRARY: [&str; 13] = [
    "ld",
    "ld-linux-x86-64",
    "ld-musl-x86_64",
    "libanl",
    "libc",
    "libdl",
    "libm",
    "libmvec",
    "libnsl",
    "libpthread",
    "libresolv",
    "librt",
    "libutil",
];

/// Whether a file is a library in one of the folders in which the loader searches: `/usr/lib`, `/lib/x86_64-linux-gnu`.
pub(crate) fn is_library(path: &str) -> bool {
    let path = path.strip_prefix("/usr").unwrap_or(path);
    let below = ["/lib/", "/lib64/", "/lib32/"];
    let below = below.iter().find_map(|folder| path.strip_prefix(folder));
    below.is_some_and(|below| {
        let (folder, name) = below.rsplit_once('/').unwrap_or(("", below));
        name.contains(".so") && (folder.is_empty() || folder.ends_with("-linux-gnu"))
    })
}

/// Whether a file is part of the system's C library.
pub(crate) fn is_c_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.split(".so").next().unwrap_or(name);
    // Releases before 2.34 have their number in it: `libc-2.31.so`.
    let (stem, version) = name.rsplit_once('-').unwrap_or((name, ""));
    let has_version = version.contains('.');
    is_library(path) && C_LIBRARY.contains(if has_version { &stem } else { &name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_libraries_are_in_the_loaders_folders() {
        for path in [
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
            "/lib/libm.so",
        ] {
            assert!(is_library(path), "{path}");
        }
        for path in [
            "/usr/lib/postgresql/15/bin/postgres",
            "/opt/lib/libc.so.6",
            "/usr/bin/ls",
            "/usr/lib/x86_64-linux-gnu/app",
        ] {
            assert!(!is_library(path), "{path}");
        }
    }

    #[test]
    fn the_c_library_has_its_names_in_every_release() {
        for path in [
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "/lib/x86_64-linux-gnu/libc-2.31.so",
            "/lib64/ld-linux-x86-64.so.2",
            "/lib/x86_64-linux-gnu/ld-2.31.so",
            "/lib/ld-musl-x86_64.so.1",
            "/usr/lib/x86_64-linux-gnu/libm.so.6",
        ] {
            assert!(is_c_library(path), "{path}");
        }
        for path in [
            "/usr/lib/x86_64-linux-gnu/libcurl.so.4",
            "/usr/lib/x86_64-linux-gnu/libmpi.so.40",
            "/usr/lib/x86_64-linux-gnu/libgomp.so.1",
            "/opt/lib/libc.so.6",
            "/usr/bin/ld",
        ] {
            assert!(!is_c_library(path), "{path}");
        }
    }
}
