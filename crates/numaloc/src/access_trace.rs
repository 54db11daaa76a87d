//! Access traces in commands: cache sizes as options, summaries of traces, the cache model.

use numaloc_analysis::dram::{DramModel, DramUse, LastLevel, Requests};
use numaloc_formats::access_trace::{AccessTrace, CacheSize, Order, Tally, Windows};
use numaloc_formats::profile::traces::files;
use numaloc_model::profile::{SlowLoad, Thread};
use numaloc_model::trace::Action;
use numaloc_model::{PageNumber, Profile, ProfileError, ThreadIdx};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::size::{NotASize, byte_size};

/// A text that describes no cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheSizeError {
    /// Not a size and a number.
    #[error("expected size and ways, such as 32K/8")]
    Form,
    /// The size is none.
    #[error(transparent)]
    Size(#[from] NotASize),
    /// No valid number of ways.
    #[error("expected 1 to 1024 ways")]
    Ways,
    /// No valid number of caches.
    #[error("expected 1 to 1024 caches, such as 32M/16x4")]
    Count,
}

/// `32K/8` as size and ways, for clap.
pub fn cache_size(given: &str) -> Result<CacheSize, CacheSizeError> {
    let (bytes, ways) = given.split_once('/').ok_or(CacheSizeError::Form)?;
    let bytes = byte_size(bytes)?;
    let ways = ways.parse().map_err(|_| CacheSizeError::Form)?;
    if !(1..=1024).contains(&ways) {
        return Err(CacheSizeError::Ways);
    }
    Ok(CacheSize { bytes, ways })
}

/// The last-level caches of the cache model.
#[derive(Clone, Copy, Debug)]
pub struct LlcSize {
    size: CacheSize,
    count: usize,
}

/// `32M/16` or `32M/16x4`, for clap.
pub fn llc_size(given: &str) -> Result<LlcSize, CacheSizeError> {
    let (size, count) = given.split_once('x').unwrap_or((given, "1"));
    let count = count
        .parse()
        .ok()
        .filter(|count| (1..=1024).contains(count));
    Ok(LlcSize {
        size: cache_size(size)?,
        count: count.ok_or(CacheSizeError::Count)?,
    })
}

impl LlcSize {
    /// Rejects caches that cannot be built.
    pub fn check(&self, line_size: u64) -> Result<(), CliError> {
        if self.size.sets(line_size) == 0 || self.size.bytes > 4 << 30 {
            return Err(
                CliError::usage(format!("--llc is {self}")).expected(format!(
                    "at least a set of lines of {line_size} bytes, at most 4G"
                )),
            );
        }
        Ok(())
    }
}

impl std::fmt::Display for LlcSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.size, self.count)
    }
}

/// A share in millionths, for clap.
pub fn windows_share(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percent.parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    match parsed {
        Ok(share) if (1e-6..=0.5).contains(&share) => Ok((share * 1e6).round() as u32),
        _ => Err("expected a share from 0.0001% to 50%".to_owned()),
    }
}

/// Windows with this share of a run; `warm_bytes` is the memory whose last requests are kept before each.
pub fn windows(share_ppm: u32, warm_bytes: u64, line_bytes: u64) -> Windows {
    let lines = warm_bytes / line_bytes.max(1);
    Windows {
        share_ppm,
        warm_lines: lines.min(Windows::MOST_WARM_LINES.into()) as u32,
    }
}

/// Opens the access traces of a profile.
///
/// # Errors
/// There is no trace, or one cannot be read.
pub fn open(profile: &std::path::Path) -> Result<Vec<AccessTrace>, CliError> {
    let found = files(profile)?;
    if found.is_empty() {
        let shown = format!("{} has no access trace", profile.display());
        return Err(CliError::tool(shown).hint("numaloc record --trace keeps one"));
    }
    found
        .iter()
        .map(|path| {
            let image = path
                .file_stem()
                .and_then(|stem| stem.to_str()?.parse().ok());
            Ok(AccessTrace::open(path, image.unwrap_or(0))?)
        })
        .collect()
}

/// Sum over traces.
pub fn tally(traces: &[AccessTrace]) -> Tally {
    traces.iter().map(AccessTrace::tally).sum()
}

/// Whether the traces say which loads wait for others.
pub fn marks_loads(traces: &[AccessTrace]) -> bool {
    traces.iter().all(|trace| trace.head.marks_loads)
}

/// How many of the reads wait for another load, in words; `None` for `dependent` if the trace does not say.
pub fn dependent_in_words(reads: u64, dependent: Option<u64>) -> String {
    match dependent {
        Some(dependent) => format!(
            "{:.1} % of the reads have an address that comes from another fetch that may still be under way",
            100.0 * dependent as f64 / reads.max(1) as f64
        ),
        None => {
            "which reads wait for others is unknown: only frontend native records it".to_owned()
        }
    }
}

/// One line of text.
pub fn in_words(tally: &Tally) -> String {
    let share = |part: u64| 100.0 * part as f64 / tally.accesses.max(1) as f64;
    format!(
        "{:.2} M records of {:.2} M accesses, {:.2} bytes each; the private caches answered {:.1} % (first level) and {:.1} % (second)",
        tally.records as f64 / 1e6,
        tally.accesses as f64 / 1e6,
        tally.bytes as f64 / tally.records.max(1) as f64,
        share(tally.l1_hits),
        share(tally.l2_hits),
    )
}

/// Describes how a trace is incomplete; `None` if it is complete.
pub fn incomplete(trace: &AccessTrace) -> Option<String> {
    let process = &trace.head.path;
    if let Some(why) = &trace.cut {
        return Some(format!(
            "the access trace of process {process} is cut short: {why}"
        ));
    }
    (!trace.complete).then(|| {
        format!(
            "the access trace of process {process} is cut short: it ends before the process did{}",
            match trace.torn_bytes {
                0 => String::new(),
                torn => format!(", and its last {torn} bytes are no whole block"),
            }
        )
    })
}

/// The cache model and its parameters.
pub struct CacheModel {
    /// Last-level caches.
    pub llc: LlcSize,
    /// Bytes per page of the profile.
    pub page_size: u64,
}

/// Results of the cache model.
pub struct Modelled {
    /// Requests that reached DRAM.
    pub found: DramUse,
    /// Number of records of each kind: read, write, own, write_back, acquire, release, create.
    pub kinds: [u64; 7],
    /// Number of reads whose address comes from another fetch that may still be under way; `None` if the trace does not
    /// say.
    pub dependent: Option<u64>,
    /// Source of the numbers, with all parameters.
    pub source: String,
    line_size: u64,
}

impl CacheModel {
    /// Runs the model on the traces of a profile with `threads` threads.
    pub fn run(&self, traces: &[AccessTrace], threads: &[Thread]) -> Result<Modelled, CliError> {
        let Some(head) = traces.first().map(|trace| &trace.head) else {
            return Err(CliError::tool("there is no access trace"));
        };
        let line_size = 1 << head.line_shift;
        self.llc.check(line_size)?;
        if head.windows.is_some() {
            return Err(CliError::tool(
                "the access trace has the requests of windows only, a cache model needs all",
            ));
        }
        let index: std::collections::HashMap<&str, ThreadIdx> = threads
            .iter()
            .enumerate()
            .map(|(at, thread)| (&*thread.path, ThreadIdx::from_index(at)))
            .collect();
        let level = LastLevel {
            bytes: self.llc.size.bytes,
            ways: self.llc.size.ways,
            count: self.llc.count,
        };
        let mut model = DramModel::new(level, threads.len(), line_size, self.page_size);
        let mut kinds = [0; 7];
        let mut dependent = 0;
        for event in Order::new(traces, |path| index.get(path).copied())? {
            let (thread, event) = event?;
            let kind = match event.action {
                Action::Read(_) => 0,
                Action::Write(_) => 1,
                Action::Own(_) => 2,
                Action::WriteBack(_) => 3,
                Action::Acquire(_) => 4,
                Action::Release(_) => 5,
                Action::Create(_) => 6,
                Action::Omitted(_) | Action::Part(_) | Action::End => continue,
            };
            kinds[kind] += 1;
            dependent += u64::from(event.after != 0);
            model.take(thread, &event);
        }
        let cut = traces.iter().any(|trace| !trace.complete);
        Ok(Modelled {
            found: model.finish(),
            kinds,
            dependent: marks_loads(traces).then_some(dependent),
            source: format!(
                "cache model ({} {} and {} for each thread, {} last-level {} of {}, LRU, no prefetching{})",
                "private caches",
                head.l1,
                head.l2,
                self.llc.count,
                if self.llc.count == 1 {
                    "cache"
                } else {
                    "caches"
                },
                self.llc.size,
                if cut {
                    "; of a trace that was cut short"
                } else {
                    ""
                }
            ),
            line_size,
        })
    }
}

impl Modelled {
    /// Bytes that a thread's accesses brought from DRAM.
    pub fn dram_bytes(&self, requests: &Requests) -> u64 {
        requests.fetches * self.line_size
    }

    /// Sums over all threads.
    pub fn total(&self) -> Requests {
        let mut sum = Requests::default();
        for requests in &self.found.threads {
            sum.llc_hits += requests.llc_hits;
            sum.transfers += requests.transfers;
            sum.fetches += requests.fetches;
            sum.write_backs += requests.write_backs;
        }
        sum
    }

    /// Writes each thread's DRAM bytes and its loads that miss all caches into the profile. Writes nothing if more than
    /// a hundredth of the accesses are missing from the trace, because they would count as zero.
    ///
    /// # Errors
    /// [`ProfileError`] if the amounts exceed what a profile holds.
    pub fn fill(
        &self,
        mut profile: Profile,
        traces: &[AccessTrace],
    ) -> Result<Profile, ProfileError> {
        let all: u64 = profile.threads().iter().map(|t| t.accesses).sum();
        let traced = tally(traces).accesses;
        if traced < all - all / 100 {
            let share = 100.0 * traced as f64 / all as f64;
            profile.add_notes([format!(
                "no DRAM bytes: the access trace holds {share:.1} % of the accesses"
            )]);
            return Ok(profile);
        }
        let rows = self.found.missed_loads.iter();
        // The profile may lack pages if memory was short during recording.
        let rows = rows.filter_map(|&(number, thread, loads)| {
            let page = PageNumber(number);
            profile.pages().index_of(page)?;
            Some(SlowLoad {
                page,
                thread,
                loads,
            })
        });
        let rows = rows.collect();
        let source = format!(
            "loads that miss all caches of their thread, by {}",
            self.source
        );
        let mut tables = profile.into_builder();
        for (thread, requests) in tables.threads.iter_mut().zip(&self.found.threads) {
            thread.dram_bytes = Some(self.dram_bytes(requests));
        }
        tables.meta.dram_source = Some(self.source.clone());
        tables.slow_loads = Some((source, rows));
        tables.build()
    }

    /// For scripts.
    pub fn json(&self, requests: &Requests) -> Value {
        json!({
            "llc_hits": requests.llc_hits,
            "transfers": requests.transfers,
            "dram_reads": requests.fetches,
            "dram_writes": requests.write_backs,
            "dram_bytes": self.dram_bytes(requests),
        })
    }
}
