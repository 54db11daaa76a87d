//! `numaloc record`: runs a program and writes its profile.

mod answer;
mod behind;
pub(super) mod child;
mod conditions;
mod dealing;
mod frontend;
mod hosts;
mod instrument;
mod keeper;
mod merging;
mod mpi;
mod native;
mod passed;
mod perf;
mod preflight;
mod program;
mod qemu;
mod repeat;
mod sanitizer;
mod trace;
mod values;
pub(super) mod window;
mod work;

pub use self::answer::{ANSWER, answer_of};
pub(super) use self::hosts::HostArgs;
pub use self::hosts::{HOST_FOLDER, host_folder};
pub use self::merging::{MERGE_SHARE, merge_share};
pub(super) use self::native::translator;
pub(super) use self::preflight::check as limits;
pub(super) use self::qemu::{emulator_file, plugin, takes_plugins};

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use numaloc_files::FolderOutput;
use numaloc_formats::access_trace::AccessTrace;
use numaloc_model::number::{count, plural};
use numaloc_model::{Layer, Profile};
use numaloc_perf::events::MemoryEvent;
use numaloc_trace::Config;
use numaloc_trace::cross_process::Board;
use numaloc_trace::settings::HugePages;
use numaloc_trace::station::Registrar;
use serde_json::json;

use self::values::{memory_layer, share};
use self::work::{cross_process_table, journals, no_room, work_folder};
use crate::error::{CliError, TOOL};
use crate::ui::Ui;

/// Exit status of our own failures, as in `env`.
const OWN_FAILURE: u8 = 125;
/// Exit status if the program was found but cannot be run.
const CANNOT_RUN: u8 = 126;
/// Exit status if there is no such program.
const NOT_FOUND: u8 = 127;

/// Run a program and record how its threads communicate and use memory
#[derive(Clone, clap::Args)]
#[command(after_help = "\
Examples:
  numaloc record -o app.numaloc -- ./app --size 1000
  OMP_NUM_THREADS=64 numaloc record ./app             writes app.numaloc; so does numaloc ./app
  numaloc record --open -- ./app                      and shows the report in the browser
  numaloc record --clock wall --slice 10 -- ./server
  numaloc record --advise -- ./app                    with what advise needs: which lines to change
  numaloc record --trace --trace-limit 500M -- ./app  with the access trace, for simulate
  numaloc record --wait -- ./server                   records also what continues in the background
  numaloc record --deal node -- ./app                 OpenMP loops: work stays with threads
  numaloc record --repeat 3 -- ./app                  does every run give each thread the same work?
  numaloc record --mpi -o app.numaloc -- mpirun -n 16 ./app
  numaloc record --mpi --frontend qemu -o app.numaloc -- mpirun -n 4 ./hybrid
  numaloc record --attach 4711 --for 60s              a window of what runs already
  numaloc record --unit redis-server --for 60s        the same for a service of systemd
  numaloc record --salvage .app.numaloc.recording-x1 -o app.numaloc

The program needs no source, no special build and no debug information. Its input, output, exit
status and signals pass through; Ctrl-C ends it and leaves a profile that is marked as cut short.

Exit status: the program's own (128 + number for a signal); 125 when numaloc itself fails, 126 when
the program cannot be run, 127 when there is no such program.")]
pub struct Args {
    /// Profile folder to write [default: NAME.numaloc, where NAME is the program's file name]
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Replace the output if it exists
    #[arg(long)]
    force: bool,
    /// When the profile is written, write its report next to it and show it in the browser
    #[arg(long)]
    open: bool,
    /// How to observe the program: `qemu` emulates any x86-64 program; `native` translates it for this
    /// processor, which is faster; `instrument` runs one that was built with `numaloc cc` without
    /// emulation; `perf` takes hardware samples; `auto` takes `instrument` if the program was built for
    /// it, else `native` if that can record it, else `qemu`
    #[arg(long, value_name = "FRONTEND", default_value = "auto", value_parser = ["auto", "qemu", "native", "instrument", "perf"])]
    frontend: String,
    /// Let `auto` take hardware samples if the machine supports them: nearly native speed, less detail
    #[arg(long)]
    fast: bool,
    /// With --frontend perf, what to sample: memory accesses, or page faults, which every machine can
    /// sample and which show which thread touches which page first
    #[arg(long, value_name = "EVENT", default_value = "memory", value_parser = ["memory", "page-faults"])]
    event: String,
    /// Hardware sampling: one sample every N accesses; a smaller N gives more detail and slows the
    /// program more
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(16..1 << 40))]
    period: u64,
    /// Unit of times and slices: `virtual` counts accesses, joined at synchronisation, and does not
    /// depend on what else the machine does; `wall` counts nanoseconds
    #[arg(long, value_name = "CLOCK", default_value = "virtual", value_parser = ["virtual", "wall"])]
    clock: String,
    /// Shortest time slice: accesses of a thread (virtual clock) or milliseconds (wall clock)
    /// [default: 16384 accesses or 10 ms]
    #[arg(long, value_name = "LENGTH", value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    slice: Option<u64>,
    /// Maximum number of time slices; slices double in length when there would be more
    #[arg(long, value_name = "COUNT", default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..100_000))]
    slices: u64,
    /// What counts as communication: write_read (a thread reads what another wrote last), shared_line
    /// (two threads access a line in one slice), last_two (as numalize); shared_line and last_two are
    /// for comparison and several times slower
    #[arg(long, value_name = "LAYERS", value_delimiter = ',', default_value = "write_read",
        value_parser = memory_layer)]
    layers: Vec<Layer>,
    /// Observe only this share (5% or 0.05); counts are scaled up, and each matrix cell carries an
    /// estimate of its error
    #[arg(long, value_name = "SHARE", value_parser = share,
        conflicts_with_all = ["mpi", "event", "period"])]
    sample: Option<u32>,
    /// What --sample selects: `lines` observes some cache lines throughout the run, `bursts` observes
    /// all lines during bursts that all threads share [default: bursts with frontend native, where lines
    /// take longer than to record everything, else lines]
    #[arg(long, value_name = "WHAT", value_parser = ["lines", "bursts"])]
    sample_by: Option<String>,
    /// Count a read only if it is the very next access to the line after another thread's write, as
    /// DeLoc's definition says literally; by default each reader of a written value counts once
    #[arg(long)]
    strict_consecutive: bool,
    /// Memory the tracer may use on top of a quarter of the program's own and 1 MiB per thread; above
    /// that it drops detail, and the profile says which
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = crate::size::byte_size)]
    memory: u64,
    #[command(flatten)]
    trace: trace::TraceArgs,
    /// Bytes per cache line
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = crate::size::byte_size)]
    line_size: u64,
    /// Bytes per page of the profile
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = crate::size::byte_size)]
    page_size: u64,
    /// Where transparent huge pages are made, on which it depends who places a page: `madvise` where the
    /// program advises it, or `machine`: as this machine does
    #[arg(long, value_name = "WHERE", default_value = "machine", value_parser = ["machine", "always", "madvise", "never"])]
    huge_pages: String,
    /// How OpenMP threads wait: `passive` sets OMP_WAIT_POLICY unless it is already set, because the
    /// accesses of spinning threads would swamp the program's own; `keep` leaves it alone
    #[arg(long, value_name = "POLICY", default_value = "passive", value_parser = ["passive", "keep"])]
    wait_policy: String,
    /// Record the messages of an MPI program; CMD is its launcher (mpirun, mpiexec, srun). With
    /// --frontend qemu, native or instrument also record the memory accesses of all ranks' threads, in one
    /// profile. Times are wall time; --slice is in milliseconds: 1 unless it is given, with a frontend 10
    #[arg(long, value_name = "LIBRARY", num_args = 0..=1, require_equals = true, default_missing_value = "auto",
        conflicts_with_all = ["salvage", "clock"])]
    mpi: Option<mpi::Library>,
    #[command(flatten)]
    dealing: dealing::DealingArgs,
    #[command(flatten)]
    merging: merging::MergingArgs,
    #[command(flatten)]
    hosts: HostArgs,
    /// Run the program this many times; keep the first recording and store in it how well the other
    /// runs' matrices agree with it
    #[arg(long, value_name = "RUNS", default_value_t = 1, conflicts_with_all = ["mpi", "salvage"],
        value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// When the program has ended, wait for the processes that it left in the background (daemons), and
    /// record them to their end; Ctrl-C asks them to end, a second one ends the wait
    #[arg(long, conflicts_with_all = ["mpi", "salvage"])]
    wait: bool,
    /// Instead of running a program, write a profile from the folder that a killed recorder left behind
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    salvage: Option<PathBuf>,
    #[command(flatten)]
    window: window::WindowArgs,
    /// The program and its arguments; `--` in front is needed if one of them is also an option of numaloc
    #[arg(
        trailing_var_arg = true,
        value_name = "CMD",
        required_unless_present_any = ["salvage", "attach", "cgroup", "unit"],
        conflicts_with_all = window::RUNNING
    )]
    command: Vec<OsString>,
}

/// A run that has ended: the program's status and the folder with its journals.
struct Observed {
    status: u8,
    work: tempfile::TempDir,
    /// The folder by another path if the program has hidden it.
    folder: PathBuf,
    /// Keeps that path valid.
    _open: Option<Registrar>,
}

/// A profile, and the access traces of its process images.
struct Assembled {
    profile: Profile,
    traces: Vec<AccessTrace>,
}

impl Args {
    /// Runs the program under the recorder, then writes the profile.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        self.check()?;
        if let Some(status) = window::record(self, ui)? {
            return Ok(status);
        }
        if let Some(library) = self.mpi {
            return mpi::run(self, library, ui);
        }
        self.hosts
            .refuse("record")
            .map_err(|error| error.status(OWN_FAILURE))?;
        if let Some(folder) = &self.salvage {
            let output = self.output.clone().ok_or_else(|| {
                CliError::usage("--salvage needs -o FOLDER, the profile to write")
            })?;
            let output = self.checked(&output)?;
            if let Some(spool) = mpi::spool_of(folder) {
                mpi::salvage(self, folder, &spool, &output, ui)?;
                return Ok(0);
            }
            let assembled = self.assemble(folder, ui)?;
            self.write_with_traces(ui, &assembled, &output)?;
            return Ok(0);
        }
        let program = program::resolve(&self.command)?;
        if let Some(assumed) = super::separated::remark() {
            ui.remark(assumed);
        }
        let output = self.output.clone().unwrap_or_else(|| {
            let mut name = program.name.clone();
            name.push(".numaloc");
            name.into()
        });
        let output = self.checked(&output)?;
        let sampled = self.sampled(&program, ui)?;
        preflight::check(sampled.is_none())?;
        if let Some(events) = sampled {
            let (status, profile) = perf::record(&program, &events, self)?;
            let mut profile = profile?;
            profile.set_environment(conditions::environment());
            self.write(ui, &profile, &output)?;
            return Ok(status);
        }
        match program.rights() {
            Some(rights) => child::natively(&program, rights),
            None => self.keep(self.observe(&program, &output, ui)?, &program, &output, ui),
        }
    }

    /// Runs the program once under an exact frontend.
    fn observe(
        &self,
        program: &program::Program,
        output: &FolderOutput,
        ui: &Ui,
    ) -> Result<Observed, CliError> {
        let work = work_folder(output.path())?;
        conditions::keep(work.path(), self.dealing.is_asked()).map_err(|error| {
            let folder = work.path().display();
            CliError::tool(format!("cannot write in {folder}: {error}")).status(OWN_FAILURE)
        })?;
        numaloc_trace::descriptors::beyond_the_limit();
        let cross_process = cross_process_table(ui).map(Board::out_of_the_way);
        let passed = passed::Passed::to(work.path(), cross_process.as_ref(), ui);
        let mut command = frontend::command(
            &self.frontend,
            program,
            |frontend| Config {
                station: passed.station(),
                ..self.settings(frontend, work.path(), cross_process.as_ref())
            },
            ui,
        )?;
        if self.wait_policy == "passive" && std::env::var_os("OMP_WAIT_POLICY").is_none() {
            command.env("OMP_WAIT_POLICY", "passive");
            ui.remark("set OMP_WAIT_POLICY=passive for the program (--wait-policy keep leaves it)");
        }
        command.envs(self.dealing.variables(&self.command)?);
        let recording = self.trace.start(work.path())?;
        let keeper = keeper::Keeper::watch(work.path());
        let status = passed.during(|| child::run(command, work.path(), ui))?;
        if self.wait {
            behind::wait(work.path(), ui).map_err(|error| {
                CliError::tool(format!("cannot catch signals: {error}")).status(OWN_FAILURE)
            })?;
        }
        if let Some(recording) = recording {
            recording.finish(ui);
        }
        match keeper.and_then(keeper::Keeper::restore) {
            Ok(0) => {}
            Ok(files) => ui.remark(format_args!(
                "the program deleted {files} files of the recording, which were restored"
            )),
            Err(error) => ui.remark(format_args!(
                "files of the recording that the program deleted are lost: {error}"
            )),
        }
        let folder = passed.folder(work.path());
        Ok(Observed {
            status,
            work,
            folder,
            _open: passed.into_registrar(),
        })
    }

    /// Makes the profile of a run, compares it with further runs if `--repeat` asks for them, and writes it.
    fn keep(
        &self,
        observed: Observed,
        program: &program::Program,
        output: &FolderOutput,
        ui: &Ui,
    ) -> Result<u8, CliError> {
        let Observed {
            status,
            work,
            folder,
            _open,
        } = observed;
        // From here on a failure must not delete the trace.
        let written = self.assemble(&folder, ui).and_then(|mut assembled| {
            behind::note(&mut assembled.profile, work.path());
            if self.repeat > 1 {
                repeat::compare(self, &mut assembled.profile, program, output, ui)?;
            }
            self.write_with_traces(ui, &assembled, output)
        });
        if let Err(mut error) = written {
            if journals(&folder) {
                let kept = work.keep();
                error.hint = Some(format!(
                    "the trace is kept; once the cause is fixed, run numaloc record --salvage {} -o {}",
                    kept.display(),
                    output.path().display()
                ));
            }
            return Err(error);
        }
        Ok(status)
    }

    /// The machine's memory events if the program is to be sampled, else `None`.
    fn sampled(
        &self,
        program: &program::Program,
        ui: &Ui,
    ) -> Result<Option<Vec<MemoryEvent>>, CliError> {
        let found = match self.frontend.as_str() {
            "perf" if self.event == "page-faults" => Ok(Some(vec![MemoryEvent::page_faults()])),
            "perf" => perf::events().map(Some),
            "auto" if self.fast && !instrument::carries(program) => match perf::events() {
                Ok(events) => Ok(Some(events)),
                Err(missing) => {
                    ui.remark(format_args!("--fast has no effect: {}", missing.message));
                    Ok(None)
                }
            },
            _ => Ok(None),
        }?;
        if let Some(events) = &found {
            let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
            ui.remark(format_args!("frontend perf: sampling {}", names.join(", ")));
        }
        Ok(found)
    }

    /// Settings of a recording under an exact frontend whose journals go to `folder`.
    fn settings(&self, frontend: &str, folder: &Path, cross_process: Option<&Board>) -> Config {
        let standard = Config::default();
        let usual = if frontend == "native" {
            "bursts"
        } else {
            "lines"
        };
        let sample_by = self.sample_by.as_deref().unwrap_or(usual);
        let share_of = |what: &str, all: u32| match self.sample {
            Some(share) if sample_by == what => share,
            _ => all,
        };
        Config {
            folder: folder.to_owned(),
            virtual_clock: self.clock != "wall",
            slice: self.slice_length(),
            slices: self.slices,
            layers: self.layers.clone(),
            line_shift: self.line_size.trailing_zeros(),
            time_share_ppm: share_of("bursts", standard.time_share_ppm),
            line_share_ppm: share_of("lines", standard.line_share_ppm),
            consecutive: self.strict_consecutive,
            memory: self.memory,
            cross_process: cross_process.map(Board::place),
            trace: self.trace.filter(self.line_size),
            huge_pages: HugePages::named(&self.huge_pages).unwrap_or_default(),
            ..standard
        }
    }

    /// Shortest slice in the clock's unit: accesses or nanoseconds.
    fn slice_length(&self) -> u64 {
        match (self.slice, self.clock == "wall") {
            (Some(milliseconds), true) => milliseconds * 1_000_000,
            (Some(accesses), false) => accesses,
            (None, true) => 10_000_000,
            (None, false) => 1 << 14,
        }
    }

    fn check(&self) -> Result<(), CliError> {
        super::separated::check::<Self>(&self.command)?;
        if !self.line_size.is_power_of_two() || !(8..=4096).contains(&self.line_size) {
            return Err(
                CliError::usage(format!("--line-size is {}", self.line_size))
                    .expected("a power of two from 8 to 4096"),
            );
        }
        if !self.page_size.is_power_of_two() || !(4096..=1 << 30).contains(&self.page_size) {
            return Err(
                CliError::usage(format!("--page-size is {}", self.page_size))
                    .expected("a power of two from 4K to 1G"),
            );
        }
        if self.sample.is_some() && self.frontend == "perf" {
            return Err(CliError::usage(
                "--sample with --frontend perf: hardware sampling is set by --period",
            )
            .expected("--frontend native, qemu or instrument"));
        }
        if self.wait && (self.frontend == "perf" || self.fast) {
            return Err(CliError::usage("--wait with hardware samples")
                .expected("--frontend qemu, native or instrument, which write journals"));
        }
        self.dealing.check(&self.frontend)?;
        self.trace.check(self)?;
        if self.sample.is_some() && self.layers != [Layer::WriteRead] {
            return Err(CliError::usage(
                "--sample with comparison layers, which need every access",
            )
            .expected("--layers write_read"));
        }
        Ok(())
    }

    fn assemble(&self, folder: &Path, ui: &Ui) -> Result<Assembled, CliError> {
        let options = numaloc_assemble::Options {
            command: self
                .command
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            page_size: self.page_size,
            slices: self.slices,
        };
        let (mut profile, images) = numaloc_assemble::assemble_images(folder, &options)
            .map_err(|error| self.unassembled(error, folder))?;
        profile.set_environment(conditions::kept(folder));
        let assembled = Assembled {
            profile,
            traces: trace::find(folder, &images, ui),
        };
        self.trace.look_at(assembled, ui)
    }

    /// Explains why there is no profile. The tracer inside the program is silent if its first write fails, so this
    /// checks whether the disk is full.
    fn unassembled(&self, error: numaloc_assemble::AssembleError, folder: &Path) -> CliError {
        let full = match error {
            numaloc_assemble::AssembleError::Empty { .. } => no_room(folder),
            _ => None,
        };
        let shown = match full {
            Some(full) => CliError::tool(format!(
                "cannot write the recording in {}: {full}; the program ran, but nothing was recorded",
                folder.display()
            ))
            .hint("make room there, or record with -o on another disk"),
            None => CliError::tool(error),
        };
        shown.status(self.failure())
    }

    /// Checks the profile's folder before anything is recorded.
    fn checked(&self, output: &Path) -> Result<FolderOutput, CliError> {
        numaloc_formats::profile::output(output, self.force)
            .map_err(|error| CliError::from(error).status(self.failure()))
    }

    fn write(&self, ui: &Ui, profile: &Profile, output: &FolderOutput) -> Result<(), CliError> {
        let assembled = Assembled {
            profile: profile.clone(),
            traces: Vec::new(),
        };
        self.write_with_traces(ui, &assembled, output)
    }

    fn write_with_traces(
        &self,
        ui: &Ui,
        assembled: &Assembled,
        output: &FolderOutput,
    ) -> Result<(), CliError> {
        let Assembled { profile, traces } = assembled;
        let files: Vec<(u64, PathBuf)> = traces
            .iter()
            .map(|trace| (trace.image(), trace.path().to_owned()))
            .collect();
        numaloc_formats::profile::write_to(profile, &files, output)
            .map_err(|error| CliError::from(error).status(self.failure()))?;
        let accesses: u64 = profile.threads().iter().map(|thread| thread.accesses).sum();
        let events: u64 = profile
            .communication()
            .iter()
            .filter(|row| row.layer != Layer::FalseSharing)
            .map(|row| row.events)
            .sum();
        for note in &profile.meta().notes {
            ui.remark(note);
        }
        let repeatability = [
            numaloc_report::repeatability::sentence(profile),
            numaloc_report::repeatability::advice(profile).map(|advice| format!("try: {advice}")),
        ];
        for line in repeatability.into_iter().flatten() {
            ui.remark(line);
        }
        ui.remark(format_args!(
            "{}: {}, {} accesses, {events} communication events, {}, {} ({} clock){}",
            output.path().display(),
            plural(profile.threads().len(), "thread"),
            count(accesses as f64),
            plural(profile.pages().pages().len(), "page"),
            plural(profile.slices().len(), "slice"),
            profile.meta().clock.name(),
            if profile.meta().complete {
                ""
            } else {
                ", cut short"
            },
        ));
        ui.result(String::new, || {
            json!({
                "version": 1,
                "profile": output.path().display().to_string(),
                "frontend": profile.meta().frontend,
                "complete": profile.meta().complete,
                "clock": profile.meta().clock.name(),
                "threads": profile.threads().len(),
                "accesses": accesses,
                "sampled_share": profile.meta().sampled,
                "communication_events": events,
                "pages": profile.pages().pages().len(),
                "page_size_bytes": profile.pages().page_size(),
                "slices": profile.slices().len(),
                "notes": profile.meta().notes,
                "environment": numaloc_report::json::environment(profile),
                "repeatability": numaloc_report::json::repeatability(profile),
            })
        });
        answer::give(output.path(), ui);
        if self.open {
            answer::open(output.path(), self.force, ui);
        }
        Ok(())
    }

    /// Exit status of our own failures: that of `env` if there is a program to run.
    fn failure(&self) -> u8 {
        if self.salvage.is_some() {
            TOOL
        } else {
            OWN_FAILURE
        }
    }
}
