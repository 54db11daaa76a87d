//! Runs a kernel under every variant, in rounds of random order, and keeps what each run took and where it was.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use numaloc_launch::Stop;
use numaloc_perf::live::counting::Counters as MemoryCounters;
use numaloc_perf::uncore;
use serde_json::Value;

use super::machine::{LeftOut, Machine, option};
use super::program::Program;
use super::recorded::Planned;
use super::variants::Variant;
use crate::commands::compare::meters::Counters;
use crate::commands::compare::shuffled;
use crate::commands::compare::statistics::Sample;

/// Counters that are read around each run.
pub(super) struct Meters {
    pub counters: Counters,
    pub memory: MemoryCounters,
}

impl Meters {
    pub fn of_this_machine() -> Self {
        Self {
            counters: Counters::of_this_machine(),
            memory: MemoryCounters::open(uncore::discover(Path::new(uncore::SYSFS))),
        }
    }
}

/// What the runs of a variant took.
#[derive(Default)]
pub(super) struct Measured {
    /// Seconds of the kernel itself, as it measures them: memory initialised, then all iterations.
    pub seconds: Sample,
    /// Wall seconds of the process with everything around it.
    pub wall_s: Sample,
    /// Share of accesses to pages of other nodes, from the places of pages and threads.
    pub remote_share: Sample,
    /// `node-load-misses` over `node-loads`, where the PMU counts them.
    pub counted_share: Sample,
    /// By hardware event.
    pub counts: Vec<Sample>,
    /// By figure of the memory system.
    pub memory: Vec<Sample>,
    /// Share of the planned threads and pages that were in place, or threads bound and pages moved online.
    pub applied: Vec<Value>,
    /// Pages by node in the last run.
    pub pages_by_node: Value,
}

/// A variant with its runs.
pub(super) struct Row {
    pub variant: Variant,
    pub measured: Measured,
}

/// What runs kernels.
pub(super) struct Runner<'a> {
    pub machine: &'a Machine,
    pub meters: &'a Meters,
    pub stop: &'a Stop,
    pub folder: &'a Path,
    pub runs: u32,
}

/// One run.
struct Run {
    line: Value,
    wall_s: f64,
    counts: Vec<Option<f64>>,
    memory: Vec<Option<f64>>,
    applied: Option<Value>,
}

impl Runner<'_> {
    /// Runs all `variants` in rounds. A variant that fails is left out, with its reason. If the user interrupts, what
    /// has been measured is kept.
    pub fn rounds(
        &self,
        program: &Program<'_>,
        variants: &[Variant],
        planned: &[Planned],
        draw: &mut u64,
        progress: &dyn Fn(u32, Variant),
    ) -> (Vec<Row>, Vec<LeftOut>) {
        let mut left_out = Vec::new();
        let mut rows: Vec<Row> = variants
            .iter()
            .map(|&variant| Row {
                variant,
                measured: Measured {
                    counts: vec![Sample::default(); self.meters.counters.names().len()],
                    memory: vec![Sample::default(); self.meters.memory.figures().len()],
                    ..Measured::default()
                },
            })
            .collect();
        for round in 0..self.runs {
            let mut failed = Vec::new();
            for at in shuffled(rows.len(), draw) {
                let row = &mut rows[at];
                progress(round, row.variant);
                let run = self.run(program, row.variant, planned);
                if self.stop.asked() {
                    return (rows, left_out);
                }
                match run {
                    Ok(run) => row.measured.add(&run, self.meters.counters.names()),
                    Err(why) => {
                        failed.push(row.variant);
                        let what =
                            format!("{}: variant {}", program.kernel.name, row.variant.name());
                        left_out.push(LeftOut { what, why });
                    }
                }
            }
            rows.retain(|row| !failed.contains(&row.variant));
        }
        (rows, left_out)
    }

    /// What the kernel itself reports of a run without anything around it.
    pub fn alone(&self, program: &Program<'_>) -> Result<Value, String> {
        self.run(program, Variant::None, &[]).map(|run| run.line)
    }

    fn run(
        &self,
        program: &Program<'_>,
        variant: Variant,
        planned: &[Planned],
    ) -> Result<Run, String> {
        if let Some(balancing) = &self.machine.balancing {
            let set = balancing.set(variant == Variant::AutoNuma);
            set.map_err(|why| why.to_string())?;
        }
        let report = self.folder.join("applied.json");
        let (words, reports) = self.words(program, variant, planned, &report)?;
        let failed = |why: std::io::Error| why.to_string();
        let mut counted = self.meters.counters.around(words).map_err(failed)?;
        let [out, error] = [(); 2].map(|()| tempfile::NamedTempFile::new());
        let (out, error) = (out.map_err(failed)?, error.map_err(failed)?);
        let command = &mut counted.command;
        command.stdin(Stdio::null());
        command.stdout(out.reopen().map_err(failed)?);
        command.stderr(error.reopen().map_err(failed)?);
        let before = self.meters.memory.read();
        let start = Instant::now();
        let status = self.stop.run(command).map_err(failed)?;
        let wall_s = start.elapsed().as_secs_f64();
        let memory = self.meters.memory.since(&before, wall_s);
        let text = |file: &Path| std::fs::read_to_string(file).unwrap_or_default();
        if !status.success() {
            let said = text(error.path());
            let first = said
                .lines()
                .next()
                .map(|line| line.trim_start_matches("error: "));
            return Err(first.map_or_else(|| status.to_string(), str::to_owned));
        }
        let said = text(out.path());
        let line = said.lines().find(|line| line.starts_with('{'));
        let line = line.and_then(|line| serde_json::from_str(line).ok());
        let applied = reports.then(|| serde_json::from_str(&text(&report)).ok());
        Ok(Run {
            line: line.ok_or("the kernel reported nothing")?,
            wall_s,
            counts: counted.read(),
            memory,
            applied: applied.flatten(),
        })
    }

    /// The command line of a run, and whether it leaves a report of what was applied.
    fn words(
        &self,
        program: &Program<'_>,
        variant: Variant,
        planned: &[Planned],
        report: &Path,
    ) -> Result<(Vec<OsString>, bool), String> {
        let mut words: Vec<OsString> = Vec::new();
        let online = match variant {
            Variant::Online => self.machine.online[0],
            Variant::OnlinePmu => self.machine.online[1],
            _ => None,
        };
        if variant.is_planned() || online.is_some() {
            words.push(program.own.into());
            words.extend(["--quiet".into(), option("--json", report), "run".into()]);
        }
        if let Some(source) = online {
            words.extend(["--online", "--source", source, "--"].map(OsString::from));
        } else if variant.is_planned() {
            let plan = planned.iter().find(|planned| planned.variant == variant);
            let file: Option<&PathBuf> = plan.and_then(|planned| planned.file.as_ref());
            let file = file.ok_or("there is no plan for it")?;
            words.extend(["--verify".into(), "--plan".into(), file.into(), "--".into()]);
        }
        let reports = !words.is_empty();
        words.extend(program.words());
        if variant == Variant::Interleave {
            let nodes = self.machine.memory_nodes();
            let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
            words.extend(["--interleave".into(), nodes.join(",").into()]);
        }
        Ok((words, reports))
    }
}

impl Measured {
    fn add(&mut self, run: &Run, events: &[String]) {
        let number = |name: &str| run.line[name].as_f64();
        let seconds = number("initial_s").zip(number("iterations_s"));
        self.seconds
            .push(seconds.map_or(f64::NAN, |(initial, iterations)| initial + iterations));
        self.wall_s.push(run.wall_s);
        if let Some(share) = number("remote_share") {
            self.remote_share.push(share);
        }
        for (sample, count) in self.counts.iter_mut().zip(&run.counts) {
            if let Some(count) = count {
                sample.push(*count);
            }
        }
        for (sample, value) in self.memory.iter_mut().zip(&run.memory) {
            if let Some(value) = value {
                sample.push(*value);
            }
        }
        let count = |name: &str| run.counts[events.iter().position(|event| event == name)?];
        if let (Some(all), Some(remote)) = (count("node-loads"), count("node-load-misses"))
            && all > 0.0
        {
            self.counted_share.push(remote / all);
        }
        self.applied.extend(run.applied.clone());
        self.pages_by_node = run.line["pages_by_node"].clone();
    }
}
