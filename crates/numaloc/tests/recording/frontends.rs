//! Both exact frontends count in the same unit: page by page, the threads' shares of the accesses are the same whether
//! a program was built by `numaloc cc` or recorded unmodified, even if much of its traffic goes through `memset` and
//! `memcpy`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{chosen, numaloc, ok, root};
use numaloc_model::Profile;

const PAGE: u64 = 4096;

/// A variable of the program, or a mapping by its identity, and a page of it.
type Place = (String, String, u64, u32, u64);

/// Accesses to a page by thread, and the thread that touched it first.
#[derive(Default, Debug)]
struct Used {
    by: BTreeMap<String, u64>,
    first: Option<String>,
}

impl Used {
    fn total(&self) -> u64 {
        self.by.values().sum()
    }

    /// The share of one thread.
    fn share(&self, thread: &str) -> f64 {
        let mine = self.by.get(thread).copied().unwrap_or(0);
        mine as f64 / self.total().max(1) as f64
    }
}

/// The pages of the program's own data: not those of the libraries, and no stacks, on which the compilers of the two
/// builds keep different things. Sections of the two builds differ, so variables stand for themselves.
fn pages(profile: &Profile, program: &Path) -> BTreeMap<Place, Used> {
    let program = format!("{}:", program.file_name().unwrap().to_str().unwrap());
    let path = |thread: numaloc_model::ThreadIdx| profile.threads()[thread.index()].path.clone();
    let mut found = BTreeMap::new();
    for page in profile.pages().pages() {
        let Some(object) = page.object else { continue };
        let object = &profile.objects()[object.index()];
        let creator = object.thread.map_or_else(String::new, path);
        let place = if object.name.starts_with(&program) {
            let start = page.number.0 * PAGE;
            let variable = object.variables.iter().find(|variable| {
                let at = object.base + variable.offset;
                at <= start && start + PAGE <= at + variable.size
            });
            let Some(variable) = variable else { continue };
            let inside = start - object.base - variable.offset;
            (
                variable.name.clone(),
                creator,
                variable.size,
                0,
                inside / PAGE,
            )
        } else if ["[heap]", "[anon]", "[arena]"].contains(&object.name.as_str()) {
            let name = object.name.clone();
            (name, creator, object.size, object.order, page.object_page)
        } else {
            continue;
        };
        let accesses = profile.pages().accesses(page).iter();
        let used = Used {
            by: accesses.map(|a| (path(a.thread), a.total())).collect(),
            first: page.first_touch.map(path),
        };
        found.insert(place, used);
    }
    found
}

fn recorded(program: &Path, frontend: &str) -> Profile {
    let folder = program.with_extension(format!("{frontend}.numaloc"));
    ok(
        numaloc(&["record", "--quiet", "--force", "--frontend", frontend, "-o"])
            .arg(&folder)
            .arg("--")
            .arg(program)
            .env("OMP_NUM_THREADS", "4"),
    );
    numaloc_formats::profile::read(&folder).unwrap()
}

/// Differences of two recordings of a program.
struct Apart {
    /// The difference of a thread's share of a page's accesses: the largest, and the mean over accesses.
    worst: f64,
    mean: f64,
    /// Of each: the share of accesses that are remote when each thread is on a node of its own and pages are where they
    /// are touched first.
    remote: [f64; 2],
    /// The share of accesses to pages that both have.
    compared: f64,
}

/// `program` by both frontends.
fn compared(plain: &Path, instrumented: &Path) -> Apart {
    let profiles = [
        recorded(plain, "qemu"),
        recorded(instrumented, "instrument"),
    ];
    let [watched, built] = [
        pages(&profiles[0], plain),
        pages(&profiles[1], instrumented),
    ];
    // The loader's and the run-time libraries' pages are in one of the two only.
    let both = |place: &Place| watched.contains_key(place) && built.contains_key(place);
    let common = |pages: &BTreeMap<Place, Used>| {
        let common = pages.iter().filter(|(place, _)| both(place));
        common.map(|(_, used)| used.total()).sum::<u64>()
    };
    let all = common(&watched);
    let (mut worst, mut sum): (f64, f64) = (0.0, 0.0);
    for (place, used) in &watched {
        let Some(other) = built.get(place) else {
            continue;
        };
        let threads = used.by.keys().chain(other.by.keys());
        let off = threads.map(|thread| (used.share(thread) - other.share(thread)).abs());
        let off = off.fold(0.0, f64::max);
        sum += off * used.total() as f64;
        // A page with few accesses may differ more: it hardly matters.
        if used.total() * 1000 >= all {
            worst = worst.max(off);
            if off > 0.01 {
                println!("{place:?}: {used:?} and {other:?}");
            }
        }
    }
    let remote = [&watched, &built].map(|pages| {
        let remote = pages
            .iter()
            .filter(|(place, _)| both(place))
            .map(|(_, used)| {
                let first = used.first.as_deref().unwrap_or_default();
                used.total() - used.by.get(first).copied().unwrap_or(0)
            });
        remote.sum::<u64>() as f64 / common(pages).max(1) as f64
    });
    let everything: u64 = watched.values().map(Used::total).sum();
    Apart {
        worst,
        mean: sum / all.max(1) as f64,
        remote,
        compared: all as f64 / everything.max(1) as f64,
    }
}

fn sources() -> Vec<PathBuf> {
    let folder = root().join("crates/numaloc/tests/frontends");
    let mut sources: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    sources.sort();
    sources
}

#[test]
fn copies_and_fills_weigh_the_same_under_both_frontends() {
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    // One of each language.
    for source in chosen(sources(), &[1, 5, 8]) {
        let name = source.file_stem().unwrap().to_str().unwrap();
        let compiler = match source.extension().unwrap().to_str().unwrap() {
            "c" => "gcc",
            "cpp" => "g++",
            _ => "gfortran",
        };
        let build = |command: &mut Command, folder: &str| {
            let program = dir.path().join(folder).join(name);
            std::fs::create_dir_all(program.parent().unwrap()).unwrap();
            ok(command
                .args(["-O2", "-g", "-fopenmp", "-pthread", "-o"])
                .args([&program, &source]));
            program
        };
        let plain = build(&mut Command::new(compiler), "plain");
        let instrumented = build(&mut numaloc(&["cc", "--", compiler]), "instrumented");
        let Apart {
            worst,
            mean,
            remote: [watched, built],
            compared,
        } = compared(&plain, &instrumented);
        let all = format!(
            "{name}: {:.1} % compared; pages off by {:.2} points, at worst {:.2}; remote at first touch {:.2} % and {:.2} %",
            100.0 * compared,
            100.0 * mean,
            100.0 * worst,
            100.0 * watched,
            100.0 * built
        );
        println!("{all}");
        let like = mean <= 0.01 && worst <= 0.03 && (watched - built).abs() <= 0.01;
        if !like || compared < 0.97 {
            wrong.push(all);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
