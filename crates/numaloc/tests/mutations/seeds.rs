//! Good files of every kind, made by numaloc itself where it can.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::damage::{self, Random};
use crate::{copy, frames, perf_data, rank_file};

/// How files of a reader are damaged.
pub fn damage_of(reader: &str) -> fn(&[u8], &mut Random) -> Vec<u8> {
    match reader {
        "profile, sealed" | "profile" | "profile, traced" | "matrix npy" | "perf.data" => {
            damage::bytes
        }
        "access trace" | "journal" => frames::damage,
        "rank file" => rank_file::damage,
        _ => damage::text,
    }
}

/// A reader and what it is given.
pub struct Reader {
    pub name: &'static str,
    /// A folder with its good files; copied to `in` for every mutation.
    pub good: PathBuf,
    /// Which of them are damaged.
    pub files: Vec<String>,
    /// Commands that read them; their folder holds `in`. None of a part that no command reads from a file.
    pub commands: Vec<Vec<String>>,
    /// Every change has to be found.
    pub sealed: bool,
}

pub const MACHINE: &str = "numa:2 core:2 pu:1";
const MATRIX: &str = "0,5,1,0\n7,0,2,1\n1,3,0,9\n0,1,8,0\n";
const PAGES: &str = "page.address,alloc.thread,alloc.location,firsttouch.thread,firsttouch.location,structure.name,T0,T1,T2,T3\n\
    100,0,,0,,field,10,0,0,0\n101,0,,1,,field,0,20,3,0\n205,0,,3,,other,1,0,0,40\n";

const HOSTS: &str = "# two racks\nroot@a slots=4\nn[01-03]:8\nb max_slots=2\n";
const SWITCHES: &str = "SwitchName=s0 Level=1 Switches=s[1-2]\nSwitchName=s1 Level=0 Nodes=n[1-4]\n\
    SwitchName=s2 Level=0 Nodes=n[5-8]\n";
const DUMP: &str = "# POINT TO POINT\nE\t0\t1\t4000 bytes\t10 msgs sent\t0,0,10\nI\t0\t2\t8 bytes\t1 msgs sent\n\
    D\tMPI_COMM_WORLD\tprocs: 0,1,2\nS\t0\t1\t64 bytes\t2 msgs sent\n";

fn numaloc(folder: &Path, arguments: &[&str]) {
    let output = Command::new(assert_cmd::cargo::cargo_bin("numaloc"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "numaloc {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn split(commands: &[&str]) -> Vec<Vec<String>> {
    let words = |command: &&str| {
        command
            .split(' ')
            .map(|word| word.replace('~', " "))
            .collect()
    };
    commands.iter().map(words).collect()
}

/// The names of the regular files below `folder`.
fn files(folder: &Path, below: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder.join(below)).unwrap() {
        let entry = entry.unwrap();
        let name = Path::new(below).join(entry.file_name());
        let name = name.to_str().unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(folder, name));
        } else {
            found.push(name.to_owned());
        }
    }
    found.sort();
    found
}

/// Every reader with its good files, made in `work`.
pub fn all(work: &Path) -> Vec<Reader> {
    let folder = |name: &str| {
        let folder = work.join(name);
        std::fs::create_dir(&folder).unwrap();
        folder
    };
    let made = folder("made");
    std::fs::write(made.join("m.csv"), MATRIX).unwrap();
    std::fs::write(made.join("pages.csv"), PAGES).unwrap();
    numaloc(
        &made,
        &["import", "m.csv", "--pages", "pages.csv", "-o", "p.numaloc"],
    );
    numaloc(
        &made,
        &["plan", "p.numaloc", "--machine", MACHINE, "-o", "plan.json"],
    );
    for format in ["npy", "mtx", "edges"] {
        numaloc(
            &made,
            &["export", "p.numaloc", "-o", &format!("m.{format}")],
        );
    }
    numaloc(
        &made,
        &["record", "--trace", "-q", "-o", "r.numaloc", "--", "true"],
    );
    let with = |name: &str, of: &[&str]| {
        let to = folder(name);
        for &file in of {
            let from = made.join(file);
            if from.is_dir() {
                copy(&from, &to.join(file));
            } else {
                std::fs::copy(&from, to.join(file)).unwrap();
            }
        }
        to
    };
    let reader = |name, good: PathBuf, commands: &[&str]| Reader {
        name,
        files: files(&good, ""),
        good,
        commands: split(commands),
        sealed: false,
    };
    let profile = [
        "show in/p.numaloc --json",
        "show in/p.numaloc --machine numa:2~core:2~pu:1",
        "report in/p.numaloc -o -",
        "plan in/p.numaloc --machine numa:2~core:2~pu:1 --threads all --pages all",
        "plan in/p.numaloc --machine numa:2~core:2~pu:1 --threads joint -o -",
        "export in/p.numaloc --pages -o -",
        "export in/p.numaloc -o -",
        "diff in/p.numaloc in/p.numaloc",
    ];
    let recorded = profile.map(|command| command.replace("p.numaloc", "r.numaloc"));
    let recorded: Vec<&str> = recorded.iter().map(String::as_str).collect();
    let sealed = with("sealed", &["p.numaloc"]);
    let open = with("open", &["p.numaloc"]);
    strip(&open.join("p.numaloc"));
    let traced = with("traced", &["r.numaloc"]);
    strip(&traced.join("r.numaloc"));
    let mut trace = reader(
        "access trace",
        traced.clone(),
        &[
            "show in/r.numaloc --trace",
            "show in/r.numaloc --trace --json",
        ],
    );
    trace.files.retain(|name| name.contains("accesses"));
    let mut plan = reader(
        "plan",
        with("plan", &["p.numaloc", "plan.json"]),
        &[
            "report in/p.numaloc in/plan.json --machine numa:2~core:2~pu:1 -o -",
            "run --plan in/plan.json --force-machine --force-program --verify -- true",
        ],
    );
    plan.files = vec!["plan.json".to_owned()];
    let text_matrix = |name, file: &str| {
        let import = format!("import in/{file} -o out.numaloc --force");
        let map = format!("map in/{file} --topology numa:2~core:2~pu:1 --policy all");
        reader(name, with(name, &[file]), &[&import, &map])
    };
    let npy = text_matrix("matrix npy", "m.npy");
    let pages = reader(
        "page table",
        with("page table", &["m.csv", "pages.csv"]),
        &["import in/m.csv --pages in/pages.csv -o out.numaloc --force"],
    );
    let machine = folder("machine");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::copy(root.join("machines/numa4x4.toml"), machine.join("m.toml")).unwrap();
    let cluster = folder("cluster");
    std::fs::write(made.join("hosts"), "a\nb\nc\nd\n").unwrap();
    numaloc(
        &made,
        &[
            "topology",
            "--hostfile",
            "hosts",
            "--host",
            MACHINE,
            "-o",
            "c.toml",
        ],
    );
    std::fs::copy(made.join("c.toml"), cluster.join("m.toml")).unwrap();
    let xml = folder("xml");
    std::fs::copy(root.join("fixtures/hwloc/two-nodes.xml"), xml.join("m.xml")).unwrap();
    let perf = folder("perf");
    let data = perf_data::four_threads().write(&perf);
    std::fs::rename(data, perf.join("x.data")).unwrap();
    let ranks = folder("ranks");
    std::fs::write(ranks.join("1.nlmpi"), rank_file::good()).unwrap();
    let text = |name: &str, content: &str| {
        let folder = folder(name);
        std::fs::write(folder.join("m.txt"), content).unwrap();
        folder
    };
    let all = vec![
        Reader {
            sealed: true,
            ..reader("profile, sealed", sealed, &profile[2..3])
        },
        reader("profile", open, &profile),
        reader("profile, traced", traced, &recorded),
        trace,
        plan,
        reader("machine file", machine, &["topology --machine in/m.toml"]),
        reader("cluster file", cluster, &["topology --machine in/m.toml"]),
        reader("hwloc XML", xml, &["topology --machine in/m.xml"]),
        text_matrix("matrix csv", "m.csv"),
        text_matrix("matrix mtx", "m.mtx"),
        text_matrix("matrix edges", "m.edges"),
        npy,
        pages,
        reader(
            "perf.data",
            perf,
            &["import in/x.data -o out.numaloc --force"],
        ),
        reader("rank file", ranks, &["rank-file:in/1.nlmpi"]),
        reader(
            "journal",
            journal(work),
            &["record --salvage in -o out.numaloc --force"],
        ),
        tasks(work),
        task_plan(work),
        reader(
            "host file",
            text("hosts", HOSTS),
            &["topology --hostfile in/m.txt --host numa:2~core:2~pu:1 -o -"],
        ),
        reader(
            "host list",
            text("list", "n[001-003,7],m1,k[2-3]-[0-1]\n"),
            &[],
        ),
        reader("switches", text("switches", SWITCHES), &[]),
        reader("message dump", text("dump", DUMP), &[]),
    ];
    all
}

/// Makes a profile one of an earlier release, without checksums: damage gets as far as the values.
fn strip(profile: &Path) {
    let meta = profile.join("meta.json");
    let mut fields: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&meta).unwrap()).unwrap();
    for field in ["files", "checksum"] {
        fields.as_object_mut().unwrap().remove(field).unwrap();
    }
    std::fs::write(&meta, fields.to_string()).unwrap();
}

/// What a killed recorder left behind.
fn journal(work: &Path) -> PathBuf {
    let folder = work.join("journal");
    std::fs::create_dir(&folder).unwrap();
    let mut recorder = Command::new(assert_cmd::cargo::cargo_bin("numaloc"))
        .args([
            "record",
            "-q",
            "--frontend",
            "qemu",
            "-o",
            "k.numaloc",
            "--",
        ])
        .args(["sh", "-c", "sleep 0.2; : >ready; exec cat >/dev/null 2>&1"])
        .current_dir(&folder)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // The program ends when this is closed.
    let input = recorder.stdin.take();
    while !folder.join("ready").exists() {
        assert_eq!(recorder.try_wait().unwrap(), None, "the recorder ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let left = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().contains(".recording-"))
        .expect("the journals are left");
    let good = work.join("journal-good");
    copy(&left, &good);
    drop(input);
    good
}

const RUN: &str = "key,value\nversion,1\nmachine,numa:2 core:2 pu:1\nnodes,2\nmethod,evict\n";

/// A small task profile that holds enough to plan by: four tasks create a block each, and four tasks in a row use it;
/// all replayed.
fn tasks(work: &Path) -> Reader {
    let good = work.join("tasks");
    std::fs::create_dir(&good).unwrap();
    let mut tasks = "task,creator,position,template,slots,hint,seconds,mark\n".to_owned();
    tasks += "0,,0,main,0,,0.001,\n";
    let mut blocks = "block,creator,position,bytes,hint\n".to_owned();
    for part in 0..4 {
        tasks += &format!("{},0,{part},start,0,,0.001,\n", part + 1);
        blocks += &format!("{part},{},0,4096,{}\n", part + 1, part % 2);
    }
    let mut accesses = "task,slot,block,mode\n".to_owned();
    let mut replays = "task,far,seconds\n".to_owned();
    for task in 5..21 {
        // The task before it in its row.
        let (creator, part) = (task - 4, (task - 1) % 4);
        tasks += &format!("{task},{creator},0,step,1,{},0.002,\n", part % 2);
        accesses += &format!("{task},0,{part},RW\n");
        replays += &format!("{task},,0.002\n{task},0,0.003\n");
    }
    for (name, text) in [
        ("run.csv", RUN),
        ("tasks.csv", &tasks),
        ("blocks.csv", &blocks),
        ("accesses.csv", &accesses),
        ("replays.csv", &replays),
    ] {
        std::fs::write(good.join(name), text).unwrap();
    }
    Reader {
        name: "task profile",
        files: files(&good, ""),
        good,
        commands: split(&["tasks analyse in -o out --force --machine numa:2~core:2~pu:1"]),
        sealed: false,
    }
}

/// A plan for such a program.
fn task_plan(work: &Path) -> Reader {
    let good = work.join("task-plan");
    std::fs::create_dir(&good).unwrap();
    for (name, text) in [
        (
            "plan.csv",
            "key,value\nversion,1\nmachine,numa:2 core:2 pu:1\nnodes,2\n",
        ),
        (
            "classes.csv",
            "class,template,slots,node,path\n0,main,0,,main\n1,step,1,0,main/step\n2,step,1,1,main/step'\n",
        ),
        (
            "transitions.csv",
            "class,position,template,slots,to\n0,0,step,1,1\n0,1,step,1,2\n",
        ),
        (
            "blocks.csv",
            "class,position,node,bytes\n0,0,0,4096\n0,1,1,4096\n",
        ),
    ] {
        std::fs::write(good.join(name), text).unwrap();
    }
    Reader {
        name: "task plan",
        files: files(&good, ""),
        good,
        commands: split(&["tasks run --plan in --machine numa:2~core:2~pu:1 -- true"]),
        sealed: false,
    }
}
