//! `numaloc record --trace` and `--advise`: the access trace, and the cache model that it feeds.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use numaloc_assemble::images::ProcessImage;
use numaloc_formats::access_trace::{AccessTrace, CacheSize, EXTENSION, Limit, Writer};
use numaloc_trace::access_trace::Filter;
use numaloc_trace::access_trace::receive::{Receiver, Sink};

use super::{Args, Assembled, OWN_FAILURE};
use crate::access_trace::{CacheModel, LlcSize, cache_size, llc_size, windows, windows_share};
use crate::error::CliError;
use crate::ui::Ui;

/// Second-level cache that filters accesses, unless the user names one.
const SECOND: CacheSize = CacheSize {
    bytes: 1 << 20,
    ways: 16,
};
/// The same with --advise: no machine that is simulated has a smaller one, so that no miss is left out.
const SMALLEST: CacheSize = CacheSize {
    bytes: 256 << 10,
    ways: 8,
};

/// Options of the access trace.
#[derive(clap::Args, Clone, Debug)]
pub struct TraceArgs {
    /// Keep an access trace in the profile: each thread's accesses that miss two modelled private
    /// caches, and its synchronisation, for the cache model (DRAM accesses) and for simulators
    #[arg(long, conflicts_with = "sample")]
    trace: bool,
    /// Record what `numaloc advise` needs to say which lines to change: a whole access trace as with --trace, behind
    /// caches as small as those of any machine
    #[arg(long, conflicts_with_all = ["sample", "trace_windows"])]
    advise: bool,
    /// Maximum size of the access trace on disk; at the limit the trace ends, marked as cut short, and
    /// recording goes on
    #[arg(long, value_name = "BYTES", default_value = "2G", value_parser = crate::size::byte_size)]
    trace_limit: u64,
    /// Keep all requests of windows only, which together are this share of the run, and of the rest what a simulation
    /// needs to extrapolate
    #[arg(long, value_name = "SHARE", value_parser = windows_share, requires = "trace")]
    trace_windows: Option<u32>,
    /// With --trace-windows: memory of each thread whose last requests are kept before a window, so that caches have
    /// their content there
    #[arg(long, value_name = "BYTES", default_value = "2M", value_parser = crate::size::byte_size, requires = "trace_windows")]
    trace_warm: u64,
    /// First-level cache that filters each thread's accesses: size and ways
    #[arg(long, value_name = "SIZE/WAYS", default_value = "32K/8", value_parser = cache_size)]
    trace_l1: CacheSize,
    /// Second-level cache of each thread, inclusive of the first level [default: 1M/16, with --advise 256K/8]
    #[arg(long, value_name = "SIZE/WAYS", value_parser = cache_size)]
    trace_l2: Option<CacheSize>,
    /// Last-level caches of the cache model: size, ways and number of caches; consecutive blocks of
    /// threads share one cache
    #[arg(long, value_name = "SIZE/WAYS[xN]", default_value = "32M/16x1", value_parser = llc_size)]
    llc: LlcSize,
}

impl TraceArgs {
    /// The caches that filter accesses, if accesses are traced.
    pub fn filter(&self, line_size: u64) -> Option<Filter> {
        self.wanted().then_some(Filter {
            l1: self.trace_l1,
            l2: self.second(),
            windows: self
                .trace_windows
                .map(|share_ppm| windows(share_ppm, self.trace_warm, line_size)),
            marks_loads: false,
        })
    }

    /// Whether accesses are traced.
    pub fn wanted(&self) -> bool {
        self.trace || self.advise
    }

    /// The option that asks for a trace.
    fn option(&self) -> &'static str {
        match self.advise {
            true => "--advise",
            false => "--trace",
        }
    }

    /// The second-level cache.
    fn second(&self) -> CacheSize {
        let usual = if self.advise { SMALLEST } else { SECOND };
        self.trace_l2.unwrap_or(usual)
    }

    /// Rejects options that a trace cannot be combined with, and caches that cannot be built.
    pub fn check(&self, args: &Args) -> Result<(), CliError> {
        if !self.wanted() {
            return Ok(());
        }
        if self.advise && args.mpi.is_some() {
            return Err(CliError::usage("--advise with --mpi")
                .expected("one process: messages between ranks are not in the access trace"));
        }
        for (wrong, what, expected) in [
            (
                args.clock == "wall",
                "--clock wall",
                "--clock virtual: the trace is ordered by the work of threads",
            ),
            (
                args.frontend == "perf",
                "--frontend perf",
                "--frontend native, qemu or instrument: samples do not make a trace",
            ),
            (
                args.fast,
                "--fast",
                "an exact frontend: samples do not make a trace",
            ),
        ] {
            if wrong {
                let option = self.option();
                return Err(CliError::usage(format!("{option} with {what}")).expected(expected));
            }
        }
        if self.trace_windows.is_some() && args.mpi.is_some() {
            return Err(CliError::usage("--trace-windows with --mpi").expected(
                "threads that pass their clocks on: windows are at the same clock in all",
            ));
        }
        for (name, size) in [("--trace-l1", self.trace_l1), ("--trace-l2", self.second())] {
            if size.sets(args.line_size) == 0 || size.bytes > 1 << 30 {
                return Err(
                    CliError::usage(format!("{name} is {size}")).expected(format!(
                        "at least a set of {} lines of {} bytes, at most 1G",
                        size.ways, args.line_size
                    )),
                );
            }
        }
        if self.second().bytes < self.trace_l1.bytes {
            let found = format!(
                "--trace-l2 {} is smaller than --trace-l1 {}",
                self.second(),
                self.trace_l1
            );
            return Err(CliError::usage(found).expected("a second level that holds the first"));
        }
        self.llc.check(args.line_size)
    }

    /// Starts to receive traces into `folder`, if accesses are traced.
    pub fn start(&self, folder: &Path) -> Result<Option<Recording>, CliError> {
        if !self.wanted() {
            return Ok(None);
        }
        Recording::start(folder, self.trace_limit)
            .map(Some)
            .map_err(|error| {
                let shown = format!(
                    "cannot receive access traces in {}: {error}",
                    folder.display()
                );
                CliError::tool(shown).status(OWN_FAILURE)
            })
    }

    /// Notes in the profile what the traces contain, and adds the results of the cache model.
    ///
    /// # Errors
    /// If the results do not fit into a profile.
    pub fn look_at(&self, assembled: Assembled, ui: &Ui) -> Result<Assembled, CliError> {
        let Assembled {
            mut profile,
            traces,
        } = assembled;
        if traces.is_empty() {
            return Ok(Assembled { profile, traces });
        }
        profile.add_notes(traces.iter().filter_map(crate::access_trace::incomplete));
        let tally = crate::access_trace::tally(&traces);
        ui.remark(format_args!(
            "access trace: {}",
            crate::access_trace::in_words(&tally)
        ));
        let model = CacheModel {
            llc: self.llc,
            page_size: profile.pages().page_size(),
        };
        match model.run(&traces, profile.threads()) {
            Ok(found) => {
                profile = found
                    .fill(profile, &traces)
                    .map_err(|error| CliError::from(error).status(OWN_FAILURE))?;
            }
            Err(error) => profile.add_notes([format!("no cache model: {}", error.message)]),
        }
        Ok(Assembled { profile, traces })
    }
}

/// Receives the traces of all processes while the program runs.
pub struct Recording {
    receiver: Receiver,
    sinks: Arc<Mutex<Vec<Arc<Writer>>>>,
}

struct Process(Option<Arc<Writer>>);

impl Sink for Process {
    fn take(&self, message: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|writer| writer.append(message))
    }
}

impl Recording {
    fn start(folder: &Path, limit: u64) -> std::io::Result<Self> {
        let sinks: Arc<Mutex<Vec<Arc<Writer>>>> = Arc::default();
        let made = Arc::clone(&sinks);
        let limit = Limit::new(limit);
        let files = folder.to_owned();
        let mut number = 0;
        let connected = move || {
            number += 1;
            let path = files.join(format!("{number}.{EXTENSION}"));
            let writer = Writer::create(&path, Arc::clone(&limit)).ok().map(Arc::new);
            let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
            made.extend(writer.clone());
            Process(writer)
        };
        // One thread packs some 20 M records a second; a program on many cores produces more, so it needs several.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            receiver: Receiver::listen(folder, (cores / 4).clamp(1, 4), connected)?,
            sinks,
        })
    }

    /// Waits until everything that the ended program has sent is on disk.
    pub fn finish(self, ui: &Ui) {
        self.receiver.finish();
        let sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = sinks.iter().find_map(|sink| sink.failure()) {
            ui.remark(format_args!("the access trace is cut short: {error}"));
        }
    }
}

/// The traces in a work folder, with the process images of the profile they belong to.
pub fn find(folder: &Path, images: &[ProcessImage], ui: &Ui) -> Vec<AccessTrace> {
    let mut found: Vec<AccessTrace> = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|e| e != EXTENSION) {
            continue;
        }
        match AccessTrace::open(&path, 0) {
            Ok(mut trace) => {
                let of = (trace.head.pid, trace.head.image);
                let is_same = |image: &ProcessImage| (image.pid, image.image) == of;
                if let Some(at) = images.iter().position(is_same) {
                    add_shared(&mut trace, &images[at], ui);
                    found.push(trace.with_image(at as u64));
                }
            }
            Err(error) => ui.remark(format_args!("an access trace is left out: {error}")),
        }
    }
    found.sort_by_key(AccessTrace::image);
    found.dedup_by_key(|trace| trace.image());
    found
}

/// Adds to a trace which of its memory earlier process images have mapped too.
fn add_shared(trace: &mut AccessTrace, image: &ProcessImage, ui: &Ui) {
    if image.shared.is_empty() {
        return;
    }
    if let Err(error) = trace.add_shared(&image.shared) {
        ui.remark(format_args!(
            "the access trace has memory that processes share once for each: {error}"
        ));
    }
}
