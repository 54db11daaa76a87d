//! `numaloc top`: what the roles of a service do now, where they run and where their memory is.

mod rows;
mod screen;
mod terminal;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use numaloc_launch::Stop;
use numaloc_outside::top::{Looker, Moment, node_of_pus};
use numaloc_outside::{Target, Tree};

use self::rows::{Shown, Sort};
use self::screen::View;
use self::terminal::{Key, Terminal};
use super::record::window::{RunningArgs, missing};
use crate::error::CliError;
use crate::ui::Ui;

/// Show what a running service does, by roles: threads, time, nodes, memory, moves of pages
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc top 4711
  numaloc top --unit redis-server
  numaloc top 4711 --once --json

Keys: q ends it, s sorts by another column, arrows or j and k choose a role, Enter or the right arrow
opens it, the left arrow closes it. Nothing of the service is stopped, traced or changed.
Without a terminal it prints once, as with --once.
Exit status: 0 after q, Ctrl-C or the end of the service; 1 if there is none; 125 when numaloc itself
fails.")]
pub struct Args {
    /// Process id: it and what it has created
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..),
        conflicts_with_all = ["attach", "cgroup", "unit"])]
    pid: Option<i32>,
    #[command(flatten)]
    running: RunningArgs,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = super::record::window::length)]
    interval: Duration,
    /// Print once, of one interval, and end
    #[arg(long)]
    once: bool,
}

impl Args {
    /// Looks until it is ended.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let target = match self.pid {
            Some(pid) => Some(Target::Process(pid)),
            None => self.running.target().map_err(|error| missing(&error))?,
        };
        let target = target.ok_or_else(|| {
            CliError::usage("nothing to look at").expected("PID, --cgroup PATH or --unit NAME")
        })?;
        let of = target.words();
        let tree = Tree::new(target).map_err(|error| missing(&error))?;
        let mut looker = Looker::new(tree);
        let stop = Stop::new().map_err(|error| {
            CliError::tool(format!("cannot catch signals: {error}")).status(125)
        })?;
        let is_live = !self.once
            && !ui.wants_json()
            && std::io::stdin().is_terminal()
            && std::io::stdout().is_terminal();
        if is_live {
            return self.live(&of, &mut looker, &stop);
        }
        let before = looker.look();
        let end = Instant::now() + self.interval;
        while Instant::now() < end && !stop.asked() {
            std::thread::sleep(Duration::from_millis(20).min(self.interval));
        }
        let shown = shown(&of, &looker_after(&mut looker, &before), Sort::Time);
        ui.result(
            || screen::text(&shown, &View::once(ui.columns())),
            || rows::json(&shown),
        );
        Ok(0)
    }

    fn live(&self, of: &str, looker: &mut Looker, stop: &Stop) -> Result<u8, CliError> {
        let terminal = Terminal::open().map_err(|error| {
            CliError::tool(format!("cannot use the terminal: {error}")).status(125)
        })?;
        let mut view = View::default();
        let mut sort = Sort::Time;
        let mut before = looker.look();
        let mut next = Instant::now() + self.interval;
        let mut current = shown(of, &looker_after(looker, &before), sort);
        while !stop.asked() && !looker.tree().processes().is_empty() {
            view.fit(terminal.size(), &current);
            terminal.draw(&screen::text(&current, &view));
            for key in terminal.keys() {
                match key {
                    Key::Quit => return Ok(0),
                    Key::Sort => {
                        sort = sort.next();
                        rows::sort(&mut current.roles, sort);
                        current.sort = sort;
                    }
                    key => view.take(key, &current),
                }
            }
            if Instant::now() >= next {
                let pair = looker_after(looker, &before);
                current = shown(of, &pair, sort);
                before = pair.after;
                next = Instant::now() + self.interval;
            }
        }
        Ok(0)
    }
}

/// Two moments, and where memory is.
struct Pair<'a> {
    before: &'a Moment,
    after: Moment,
    looker: &'a Looker,
}

fn looker_after<'a>(looker: &'a mut Looker, before: &'a Moment) -> Pair<'a> {
    let after = looker.look();
    Pair {
        before,
        after,
        looker,
    }
}

fn shown(of: &str, pair: &Pair<'_>, sort: Sort) -> Shown {
    let mut shown = rows::shown(of, pair.before, &pair.after, &node_of_pus(), &|processes| {
        pair.looker.located(processes.iter().copied()).resident()
    });
    rows::sort(&mut shown.roles, sort);
    shown.sort = sort;
    shown
}
