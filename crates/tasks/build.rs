//! Finds oneTBB and its allocator, and compiles the glue code if they are installed.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(numaloc_tbb)");
    println!("cargo::rustc-check-cfg=cfg(numaloc_tbbmalloc)");
    println!("cargo::rerun-if-changed=src/scheduler/tbb.cpp");
    let tbb = match pkg_config::Config::new()
        .atleast_version("2021")
        .probe("tbb")
    {
        Ok(tbb) => tbb,
        Err(_) => {
            println!("cargo::warning=oneTBB not found (Debian: libtbb-dev): no scheduler `tbb`");
            return;
        }
    };
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .includes(tbb.include_paths)
        .file("src/scheduler/tbb.cpp")
        .compile("numaloc_tbb");
    println!("cargo::rustc-cfg=numaloc_tbb");
    // Part of the same Debian package, without a pkg-config file of its own.
    if links_with("tbbmalloc") {
        println!("cargo::rustc-link-lib=tbbmalloc");
        println!("cargo::rustc-cfg=numaloc_tbbmalloc");
    } else {
        println!("cargo::warning=libtbbmalloc not found (Debian: libtbb-dev): no allocator `tbb`");
    }
}

/// Whether a program can be linked with that library.
fn links_with(library: &str) -> bool {
    let folder = std::env::var("OUT_DIR").expect("cargo sets it");
    let source = format!("{folder}/links.cpp");
    if std::fs::write(&source, "int main() { return 0; }\n").is_err() {
        return false;
    }
    cc::Build::new()
        .cpp(true)
        .get_compiler()
        .to_command()
        .args([&source, "-o", &format!("{folder}/links")])
        .arg(format!("-l{library}"))
        .status()
        .is_ok_and(|status| status.success())
}
