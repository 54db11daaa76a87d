//! Links Scotch with 64-bit numbers, statically: communication amounts would overflow 32 bits, and the
//! shared 32- and 64-bit libraries carry the same soname, so the loader could pick the wrong one.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-env-changed=NUMALOC_SCOTCH_DIR");
    println!("cargo::rerun-if-env-changed=NUMALOC_SCOTCH_PLAIN");
    println!("cargo::rerun-if-changed=build.rs");
    let mut places: Vec<PathBuf> = std::env::var_os("NUMALOC_SCOTCH_DIR")
        .map(PathBuf::from)
        .into_iter()
        .collect();
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    for lib in [
        &format!("/usr/lib/{arch}-linux-gnu"),
        "/usr/lib64",
        "/usr/lib",
    ] {
        places.push(PathBuf::from(lib).join("scotch-int64"));
    }
    let Some(found) = places.iter().find(|dir| dir.join("libscotch.a").is_file()) else {
        panic!(
            "no libscotch.a with 64-bit numbers in any of {places:?}: install libscotch-dev (Debian), \
             or name its folder in NUMALOC_SCOTCH_DIR"
        );
    };
    println!("cargo::rustc-link-search=native={}", found.display());
    println!("cargo::rustc-link-lib=static=scotch");
    println!("cargo::rustc-link-lib=static=scotcherr");
    // Libraries that Debian's Scotch needs for compressed files; by soname, so that no further -dev package is needed.
    // NUMALOC_SCOTCH_PLAIN says that the named Scotch was built without them.
    if std::env::var_os("NUMALOC_SCOTCH_PLAIN").is_none() {
        for soname in ["libz.so.1", "libbz2.so.1.0", "liblzma.so.5"] {
            println!("cargo::rustc-link-lib=dylib:+verbatim={soname}");
        }
    }
    println!("cargo::rustc-link-lib=m");
}
