//! Reads the traces of a profile for the simulator.

use std::collections::HashMap;

use numaloc_formats::access_trace::{AccessTrace, Order};
use numaloc_model::pages::PageUsage;
use numaloc_model::trace::Event;
use numaloc_model::{Profile, ThreadIdx};
use numaloc_sim::{Trace, TraceBuilder, TraceError};
use numaloc_whatif::rewrite::Rewriter;

use super::Target;
use crate::error::CliError;
use crate::ui::{Ui, stderr};

/// The trace of a profile, on the pages of every machine that is simulated.
pub struct Traces {
    /// On pages of different sizes, those of the recording machine first.
    by_page_size: Vec<Trace>,
}

impl Traces {
    /// Reads the traces of a profile once, and numbers lines by the pages of every target. `points` are the clocks at
    /// which simulations move threads or pages.
    pub fn load(
        traces: &[AccessTrace],
        profile: &Profile,
        targets: &[Target],
        points: Vec<u64>,
        ui: &Ui,
    ) -> Result<Self, CliError> {
        let mut builder = builder(traces, profile)?
            .with_points(points)
            .with_visits(profile.contended_visits());
        each_event(traces, profile, Some(ui), |thread, event| {
            builder.push(thread, &event);
        })?;
        Self::on_pages_of(targets, builder, profile.pages())
    }

    /// The trace of a profile under changes of the program, on the pages of one machine. `placed` has who places pages
    /// then.
    pub fn changed(
        traces: &[AccessTrace],
        profile: &Profile,
        target: &Target,
        mut rewriter: Rewriter<'_>,
        placed: &PageUsage,
    ) -> Result<Self, CliError> {
        let mut builder = builder(traces, profile)?;
        each_event(traces, profile, None, |thread, event| {
            rewriter.push(thread, event, &mut |thread, event| {
                builder.push(thread, event);
            });
        })?;
        rewriter.finish(&mut |thread, event| builder.push(thread, event));
        Self::on_pages_of(std::slice::from_ref(target), builder, placed)
    }

    /// Completes a trace on the pages of all targets.
    fn on_pages_of(
        targets: &[Target],
        builder: TraceBuilder,
        placed: &PageUsage,
    ) -> Result<Self, CliError> {
        let mut by_page_size = vec![builder.finish().map_err(cannot)?];
        for target in targets {
            let Some(page_bytes) = target.machine.page_bytes else {
                continue;
            };
            if by_page_size
                .iter()
                .any(|trace| trace.page_bytes() == page_bytes)
            {
                continue;
            }
            let trace = by_page_size[0].clone().on_pages_of(page_bytes);
            by_page_size.push(trace.map_err(cannot)?);
        }
        for trace in &mut by_page_size {
            // The recording's pages are never larger than those of a machine.
            match trace.page_bytes() == placed.page_size() {
                true => trace.set_placers(placed),
                false => trace.set_placers(&placed.merged(trace.page_bytes())),
            }
        }
        Ok(Self { by_page_size })
    }

    /// The trace as recorded.
    pub fn recorded(&self) -> &Trace {
        &self.by_page_size[0]
    }

    /// The trace on the pages of a machine.
    pub fn of(&self, target: &Target) -> &Trace {
        let fits = |trace: &&Trace| Some(trace.page_bytes()) == target.machine.page_bytes;
        self.by_page_size
            .iter()
            .find(fits)
            .unwrap_or(&self.by_page_size[0])
    }
}

fn cannot(error: TraceError) -> CliError {
    CliError::tool(format!("cannot simulate: {error}"))
}

/// An empty trace of the profile's threads.
fn builder(traces: &[AccessTrace], profile: &Profile) -> Result<TraceBuilder, CliError> {
    let line_bytes = 1 << traces[0].head.line_shift;
    let paths = profile.threads().iter().map(|thread| &*thread.path);
    TraceBuilder::new(paths, line_bytes, profile.pages().page_size()).map_err(cannot)
}

/// Calls `take` with each event of the profile's threads, in recorded order. With `ui`, progress is shown.
///
/// # Errors
/// A trace cannot be read.
pub fn each_event(
    traces: &[AccessTrace],
    profile: &Profile,
    ui: Option<&Ui>,
    mut take: impl FnMut(ThreadIdx, Event),
) -> Result<(), CliError> {
    let index: HashMap<&str, ThreadIdx> = profile
        .threads()
        .iter()
        .enumerate()
        .map(|(at, thread)| (&*thread.path, ThreadIdx::from_index(at)))
        .collect();
    let records: u64 = crate::access_trace::tally(traces).records;
    let shows = ui.is_some_and(Ui::progress);
    let mut count = 0u64;
    for event in Order::new(traces, |path| index.get(path).copied())? {
        let (thread, event) = event?;
        take(thread, event);
        count += 1;
        if shows && count.is_multiple_of(1 << 22) {
            stderr(&format!(
                "\rread {} of {} M records   ",
                count >> 20,
                records >> 20
            ));
        }
    }
    if shows && count >= 1 << 22 {
        stderr(&format!("\r{:<60}\r", ""));
    }
    Ok(())
}
