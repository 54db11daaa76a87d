//! The recipes in docs/recipes/: each page is one session in a shell, run from its first command to its last.

use std::fs::{File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::staged;
use crate::support;

/// A page and what it needs.
struct Recipe {
    page: &'static str,
    /// Programs on the PATH, or files, without which it is skipped.
    needs: &'static [&'static str],
    /// Whether `make test` has its packages and the time; `make test-recipes` runs all.
    is_short: bool,
    /// Whether its server refuses to run as root.
    is_unprivileged: bool,
}

const fn short(page: &'static str, needs: &'static [&'static str]) -> Recipe {
    Recipe {
        page,
        needs,
        is_short: true,
        is_unprivileged: false,
    }
}

const fn long(page: &'static str, needs: &'static [&'static str]) -> Recipe {
    Recipe {
        is_short: false,
        ..short(page, needs)
    }
}

const fn unprivileged(page: &'static str, needs: &'static [&'static str]) -> Recipe {
    Recipe {
        is_unprivileged: true,
        ..long(page, needs)
    }
}

const RECIPES: [Recipe; 16] = [
    short("openmp", &["gcc"]),
    long("cpp-threads", &["g++"]),
    short("mpi-slurm", &["mpicc.openmpi", "mpirun"]),
    short("hybrid", &["mpicc.openmpi", "mpirun"]),
    short("ci-gate", &["gcc"]),
    short("container", &["gcc"]),
    unprivileged("postgresql", &["pg_config", "pgbench"]),
    long("mariadb", &["mariadbd", "mariadb-slap"]),
    long("redis", &["redis-server", "redis-benchmark"]),
    long("memcached", &["memcached", "memcslap", "memcping"]),
    long("nginx", &["nginx", "curl"]),
    long("jvm", &["java", "javac", "curl"]),
    long("go", &["go", "curl"]),
    long("node", &["node", "curl"]),
    long("python-numpy", &["/usr/lib/python3/dist-packages/numpy"]),
    long("llm", &["python3"]),
];

/// The port that pages show; a free one takes its place.
const PORT: &str = "7070";
/// All processes of a session have it in their environment.
const MARK: &str = "NUMALOC_RECIPE";

/// A command of a page, and the output that the page shows of it.
struct Step {
    command: String,
    shown: Vec<String>,
}

#[test]
fn short_recipes_run() {
    run(|recipe| recipe.is_short);
}

#[test]
#[ignore = "installs servers and takes minutes: make test-recipes"]
fn all_recipes_run() {
    let one = std::env::var("RECIPES").unwrap_or_default();
    let named: Vec<&str> = one.split_whitespace().collect();
    run(|recipe| named.is_empty() || named.contains(&recipe.page));
}

#[test]
fn every_recipe_is_listed_and_short() {
    let root = support::root();
    let contents = std::fs::read_to_string(root.join("docs/SUMMARY.md")).expect("a file");
    let mut pages: Vec<String> = std::fs::read_dir(root.join("docs/recipes"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| path.file_stem().expect("a name").display().to_string())
        .collect();
    pages.sort();
    let mut listed: Vec<&str> = RECIPES.iter().map(|recipe| recipe.page).collect();
    listed.sort_unstable();
    assert_eq!(pages, listed);
    for page in pages {
        assert!(contents.contains(&format!("(recipes/{page}.md)")), "{page}");
        let text = text(&page);
        assert!(
            text.lines().count() <= 60,
            "{page}: {}",
            text.lines().count()
        );
        assert!(steps(&text).len() >= 2, "{page}");
    }
}

fn text(page: &str) -> String {
    let path = support::root().join(format!("docs/recipes/{page}.md"));
    std::fs::read_to_string(path).expect("a page")
}

/// The commands of a page: lines after `$ ` in blocks of `console`, with the lines that a backslash continues.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in text.split("\n```").skip(1).step_by(2) {
        let Some(block) = block.strip_prefix("console\n") else {
            continue;
        };
        let mut is_continued = false;
        for line in block.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step {
                    command: command.to_owned(),
                    shown: Vec::new(),
                });
            } else {
                let step = steps.last_mut().expect("a command above its output");
                if is_continued {
                    step.command += &format!("\n{line}");
                } else {
                    step.shown.push(line.to_owned());
                }
            }
            let is_command = line.starts_with("$ ") || is_continued;
            is_continued = is_command && line.ends_with('\\');
        }
    }
    steps
}

/// Runs the chosen recipes, and reports all that fail.
fn run(chosen: impl Fn(&Recipe) -> bool) {
    let mut failures = String::new();
    let mut ran = 0;
    for recipe in RECIPES.iter().filter(|recipe| chosen(recipe)) {
        if let Some(why) = lacking(recipe) {
            support::skip(&format!("docs/recipes/{}.md: {why}", recipe.page));
            continue;
        }
        ran += 1;
        let begin = std::time::Instant::now();
        if let Err(why) = session(recipe) {
            failures += &format!("docs/recipes/{}.md: {why}\n", recipe.page);
        }
        println!("{:6.2} s  {}", begin.elapsed().as_secs_f64(), recipe.page);
    }
    println!("{ran} of {} recipes ran", RECIPES.len());
    assert!(failures.is_empty(), "{failures}");
}

/// What a recipe needs and this machine lacks.
fn lacking(recipe: &Recipe) -> Option<String> {
    let is_there = |name: &&str| {
        if name.starts_with('/') {
            return Path::new(name).exists();
        }
        let line = format!("PATH=$PATH:/usr/sbin command -v {name}");
        let found = Command::new("sh").args(["-c", &line]).output();
        found.expect("sh runs").status.success()
    };
    let missing: Vec<&str> = recipe
        .needs
        .iter()
        .filter(|name| !is_there(name))
        .copied()
        .collect();
    if !missing.is_empty() {
        return Some(format!("not installed: {}", missing.join(", ")));
    }
    let tool = Path::new(env!("CARGO_BIN_EXE_numaloc"));
    let reaches = || {
        as_nobody()
            .arg(tool)
            .arg("-V")
            .output()
            .is_ok_and(|ran| ran.status.success())
    };
    (recipe.is_unprivileged && is_root() && !reaches()).then(|| {
        format!(
            "its server refuses root, and {} is out of reach of other users",
            tool.display()
        )
    })
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").expect("a process").uid() == 0
}

fn as_nobody() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    command
}

/// Runs the commands of a page in one shell, in a folder that looks like the source tree.
fn session(recipe: &Recipe) -> Result<(), String> {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path().join("tree");
    stage(&folder);
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = free.expect("a free port").port().to_string();
    let steps = steps(&text(recipe.page));
    let mark = format!("{}-{port}", std::process::id());
    let mut script = "PATH=$PATH:/usr/sbin\n".to_owned();
    for step in &steps {
        let command = step.command.replace(PORT, &port);
        script += &format!(
            "{command}\nstatus=$?; printf '\\n{mark} %d\\n' $status; [ $status = 0 ] || exit 1\n"
        );
    }
    let output = scratch.path().join("output");
    let file = File::create(&output).expect("a file");
    let mut shell = if recipe.is_unprivileged && is_root() {
        let for_all = Permissions::from_mode(0o755);
        std::fs::set_permissions(scratch.path(), for_all).expect("a folder");
        support::ok(Command::new("chown").arg("nobody:nogroup").arg(&folder));
        let mut shell = as_nobody();
        let as_us = staged::shell(&folder, &script);
        shell
            .arg(as_us.get_program())
            .args(as_us.get_args())
            .current_dir(&folder);
        shell.envs(
            as_us
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        shell.env("HOME", &folder);
        shell
    } else {
        staged::shell(&folder, &script)
    };
    shell
        .env(MARK, &mark)
        .stdin(std::process::Stdio::null())
        .stdout(file);
    let ended = shell.status().expect("bash runs");
    end_all_of(&mark);
    let printed = std::fs::read(&output).expect("a file");
    let printed = String::from_utf8_lossy(&printed);
    // Each command's output ends with the mark and its status.
    let pieces: Vec<&str> = printed.split(&format!("\n{mark} ")).collect();
    for (at, step) in steps.iter().enumerate() {
        let status = pieces.get(at + 1).and_then(|after| after.lines().next());
        let piece = pieces.get(at).copied().unwrap_or_default();
        // All but the first begin with the status of the command before.
        let before = match at {
            0 => piece,
            _ => piece.split_once('\n').map_or("", |(_, rest)| rest),
        };
        if status != Some("0") {
            let status =
                status.map_or(format!("{ended}"), |status| format!("exit status {status}"));
            return Err(format!("{}: {status}\n{before}", step.command));
        }
        crate::contains(before, &step.shown).map_err(|why| format!("{}\n{why}", step.command))?;
    }
    Ok(())
}

/// What a page expects of the source tree.
fn stage(folder: &Path) {
    let root = support::root().canonicalize().expect("a path");
    support::workload("stencil2d");
    std::fs::create_dir_all(folder.join("target")).expect("a folder");
    for name in ["workloads", "make", "target/workloads"] {
        symlink(root.join(name), folder.join(name)).expect("a link");
    }
}

/// Ends what a session has left running.
fn end_all_of(mark: &str) {
    let variable = format!("{MARK}={mark}");
    for entry in std::fs::read_dir("/proc").expect("a folder").flatten() {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment
            .split(|byte| *byte == 0)
            .any(|one| one == variable.as_bytes())
        {
            let pid = entry.file_name();
            // It may have ended meanwhile.
            let _ = Command::new("kill").arg("-9").arg(pid).output();
        }
    }
}
