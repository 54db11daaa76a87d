//! Links the program statically, position-independent: it must start where no dynamic linker is, because programs that
//! it runs change their root.
//!
//! The compiler's own way (`crt-static`) applies to all crates of a build, of which others are shared libraries. So the
//! shared libraries that it names are, for the linker, scripts that name the archives.

use std::path::PathBuf;

const LIBRARIES: [(&str, &str); 3] = [
    ("gcc_s", "-l:libgcc_eh.a -l:libgcc.a"),
    ("m", "-l:libm.a"),
    ("c", "-l:libc.a -l:libgcc_eh.a -l:libgcc.a"),
];

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    for (name, archives) in LIBRARIES {
        let script = format!("GROUP ( {archives} )\n");
        std::fs::write(folder.join(format!("lib{name}.so")), script)?;
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-static-pie");
    println!("cargo:rustc-link-arg-bins=-L{}", folder.display());
    Ok(())
}
