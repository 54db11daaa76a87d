//! The program under study: `numaloc validate --kernel NAME` runs one kernel and reports in one line of JSON how long
//! it took and where its pages and threads were. It is started before the command line is parsed as for other
//! commands, so that little but the kernel is recorded.

use std::collections::BTreeMap;
use std::ffi::OsString;

use numaloc_kernels::{Block, KERNELS, Kernel, Outcome, Work, named};
use serde_json::{Value, json};

use crate::error::CliError;

/// The word that makes `numaloc validate` a kernel.
pub const KERNEL: &str = "--kernel";

/// Bytes of all memory, unless `--size` is given.
const BYTES: u64 = 64 << 20;
/// Iterations, unless `--iterations` is given.
const ITERATIONS: usize = 20;
/// Pages of a block whose node is looked up, evenly over the block.
const PAGES: usize = 2048;
const PAGE: usize = 4096;

/// A kernel's command line.
struct Asked {
    kernel: &'static Kernel,
    threads: usize,
    bytes: u64,
    iterations: usize,
    interleave: Vec<u32>,
}

/// Runs the kernel that the words after [`KERNEL`] name; the exit status.
pub fn run(words: &[OsString]) -> std::process::ExitCode {
    match asked(words).and_then(|asked| measured(&asked)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            crate::ui::stderr(&error.text());
            std::process::ExitCode::from(error.status)
        }
    }
}

fn asked(words: &[OsString]) -> Result<Asked, CliError> {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let (name, mut options) = words
        .split_first()
        .map_or(("", &[][..]), |(name, options)| (name.as_ref(), options));
    let names: Vec<&str> = KERNELS.iter().map(|kernel| kernel.name).collect();
    let kernel = named(name).ok_or_else(|| {
        CliError::usage(format!("unknown kernel `{name}`")).expected(names.join(", "))
    })?;
    let mut asked = Asked {
        kernel,
        threads: online(),
        bytes: BYTES,
        iterations: ITERATIONS,
        interleave: Vec::new(),
    };
    while let [option, value, rest @ ..] = options {
        let wrong = |expected: &str| {
            CliError::usage(format!("{option} {value}")).expected(expected.to_owned())
        };
        let number = || value.parse::<usize>().ok().filter(|&number| number > 0);
        match option.as_ref() {
            "--threads" => {
                let found = number().filter(|&threads| threads <= 1 << 16);
                asked.threads = found.ok_or_else(|| wrong("a number from 1 to 65536"))?;
            }
            "--iterations" => {
                asked.iterations = number().ok_or_else(|| wrong("a number of at least 1"))?;
            }
            "--size" => {
                asked.bytes =
                    crate::size::byte_size(value).map_err(|why| wrong(&why.to_string()))?;
            }
            "--interleave" => {
                let nodes: Result<_, _> = value.split(',').map(str::parse).collect();
                asked.interleave = nodes.map_err(|_| wrong("numbers of nodes, as 0,1"))?;
            }
            _ => return Err(unknown(option)),
        }
        options = rest;
    }
    match options.first() {
        Some(option) => Err(unknown(option)),
        None => Ok(asked),
    }
}

fn unknown(option: &str) -> CliError {
    CliError::usage(format!(
        "{KERNEL} NAME: `{option}` is no option with a value"
    ))
    .expected("--threads N, --size BYTES, --iterations N, --interleave NODE,...")
}

/// Number of the machine's PUs. A plan may have bound this thread to one of them.
fn online() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()? + 1 - first.parse::<usize>().ok()?)
    };
    let found: Option<usize> = text.trim().split(',').map(count).sum();
    found
        .filter(|&count| count > 0)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into))
}

fn measured(asked: &Asked) -> Result<(), CliError> {
    if !asked.interleave.is_empty() {
        numaloc_sys::memory::interleave(&asked.interleave).map_err(|error| {
            CliError::tool(format!(
                "cannot interleave pages over nodes {:?}: {error}",
                asked.interleave
            ))
        })?;
    }
    let work = Work {
        threads: asked.threads,
        bytes: usize::try_from(asked.bytes).unwrap_or(usize::MAX),
        iterations: asked.iterations,
        node: &numaloc_sys::affinity::node,
    };
    let done = asked.kernel.run(&work);
    let (places, unknown) = match places(&done.blocks()) {
        Ok(places) => (Some(places), None),
        Err(error) => (None, Some(format!("nodes of pages: {error}"))),
    };
    let line = json!({
        "kernel": asked.kernel.name,
        "threads": asked.threads,
        "size_bytes": asked.bytes,
        "iterations": asked.iterations,
        "initial_s": done.initial_s,
        "iterations_s": done.iterations_s,
        "remote_share": places.as_ref().and_then(|places| remote_share(&done, places)),
        "pages_by_node": places.as_ref().map(|places| by_node(places)),
        "threads_by_node": threads_by_node(&done),
        "unknown": unknown,
    });
    numaloc_files::stdout::write(format!("{line}\n").as_bytes())
        .map_err(|error| CliError::tool(format!("cannot write standard output: {error}")))
}

/// Pages of a block that were looked up, by node.
type Places = BTreeMap<u32, u64>;

/// Where the pages of each block are. Large blocks are sampled.
fn places(blocks: &[Block]) -> std::io::Result<Vec<Places>> {
    let of = |block: &Block| {
        let first = block.address / PAGE;
        let last = (block.address + block.bytes).div_ceil(PAGE);
        let step = (last - first).div_ceil(PAGES).max(1);
        let pages = (first..last).step_by(step).map(|page| (page * PAGE) as u64);
        let mut places = Places::new();
        if block.bytes == 0 {
            return Ok(places);
        }
        // Process 0 is this one.
        for status in numaloc_sys::memory::locate_pages(0, &pages.collect::<Vec<_>>())? {
            // Pages that do not exist have an error in place of a node.
            if let Ok(node) = u32::try_from(status) {
                *places.entry(node).or_insert(0) += step as u64;
            }
        }
        Ok(places)
    };
    blocks.iter().map(of).collect()
}

/// Pages of all blocks by node.
fn by_node(places: &[Places]) -> Value {
    let mut all = Places::new();
    for (node, pages) in places.iter().flatten() {
        *all.entry(*node).or_insert(0) += pages;
    }
    let rows = all.iter();
    rows.map(|(node, pages)| json!({"node": node, "pages": pages}))
        .collect()
}

/// Share of all threads' iterations that ran on each node.
fn threads_by_node(done: &Outcome) -> Value {
    let mut all = BTreeMap::new();
    for (node, times) in done.nodes.iter().flatten() {
        *all.entry(*node).or_insert(0) += times;
    }
    let sum: u64 = all.values().sum();
    let rows = all.iter();
    rows.map(|(node, times)| json!({"node": node, "share": *times as f64 / sum.max(1) as f64}))
        .collect()
}

/// Share of the accesses to pages on another node than the thread's, for pages where they are at the end and threads
/// where they were at each iteration; `None` without accesses to known pages.
fn remote_share(done: &Outcome, places: &[Places]) -> Option<f64> {
    let (mut remote, mut all) = (0.0, 0.0);
    for used in &done.uses {
        let pages = &places[used.block];
        let count: u64 = pages.values().sum();
        let nodes = &done.nodes[used.thread];
        let times: u64 = nodes.values().sum();
        if count == 0 || times == 0 {
            continue;
        }
        let local: u64 = nodes
            .iter()
            .map(|(node, times)| times * pages.get(node).copied().unwrap_or(0))
            .sum();
        all += used.accesses;
        remote += used.accesses * (1.0 - local as f64 / (count as f64 * times as f64));
    }
    (all > 0.0).then(|| remote / all)
}
