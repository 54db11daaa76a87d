//! Finds oneTBB, and compiles the glue to it if it is there.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(numaloc_tbb)");
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
}
