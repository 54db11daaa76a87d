//! Follows planning: measures the time of each policy, and shows progress once it takes longer than a second.

use std::cell::{Cell, RefCell};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use numaloc_plan::{Observer, Work};

use crate::ui::{Ui, stderr};

/// Seconds that each piece of work took.
#[derive(Default)]
pub(super) struct Times(Vec<(Work, f64)>);

impl Times {
    /// Seconds of `work`; 0 if it was not observed.
    pub fn of(&self, work: Work) -> f64 {
        let found = self.0.iter().find(|(done, _)| *done == work);
        found.map_or(0.0, |(_, seconds)| *seconds)
    }
}

/// The observer of the command `plan`.
pub(super) struct Watch {
    progress: Progress,
    began: Cell<Instant>,
    times: RefCell<Times>,
}

impl Watch {
    pub fn new(ui: &Ui) -> Self {
        Self {
            progress: Progress::new(ui),
            began: Cell::new(Instant::now()),
            times: RefCell::default(),
        }
    }

    /// Ends the display of progress.
    pub fn times(self) -> Times {
        self.times.into_inner()
    }
}

impl Observer for Watch {
    fn begin(&self, work: Work) {
        match work {
            Work::Threads(policy) | Work::Pages(policy) => self.progress.now(policy),
            Work::Joint => {}
        }
        self.began.set(Instant::now());
    }

    fn end(&self, work: Work) {
        let seconds = self.began.get().elapsed().as_secs_f64();
        self.times.borrow_mut().0.push((work, seconds));
    }

    fn step(&self, what: &str) {
        self.progress.now(what);
    }
}

/// Shows on a terminal the current step and its duration once it takes longer than a second.
struct Progress {
    /// Sends the name of the current step; dropped first, which ends the display thread.
    running: Option<Sender<String>>,
    shown: Option<JoinHandle<()>>,
}

impl Progress {
    fn new(ui: &Ui) -> Self {
        if !ui.progress() {
            return Self {
                running: None,
                shown: None,
            };
        }
        let (running, news) = std::sync::mpsc::channel();
        Self {
            running: Some(running),
            shown: Some(std::thread::spawn(move || show(&news, stderr))),
        }
    }

    /// Starts step `what`.
    fn now(&self, what: &str) {
        if let Some(running) = &self.running {
            // The thread ends only when the sender is closed.
            let _ = running.send(what.to_owned());
        }
    }
}

/// Writes a line each second until `news` is closed, and clears it.
fn show(news: &Receiver<String>, mut write: impl FnMut(&str)) {
    let start = Instant::now();
    let (mut what, mut next, mut is_shown) = (String::new(), 1, false);
    loop {
        let wait = Duration::from_secs(next).saturating_sub(start.elapsed());
        match news.recv_timeout(wait) {
            Ok(new) => what = new,
            Err(RecvTimeoutError::Timeout) => {
                write(&format!("\r{next:>4} s: {what:<40}"));
                (next, is_shown) = (next + 1, true);
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if is_shown {
        write(&format!("\r{:<48}\r", ""));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.running = None;
        if let Some(shown) = self.shown.take() {
            // The thread only writes to a terminal.
            let _ = shown.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn one_long_step_is_shown_each_second_and_cleared_at_the_end() {
        let ((running, news), (lines, shown)) = (channel(), channel());
        running.send("joint: first".to_owned()).unwrap();
        running.send("joint: search".to_owned()).unwrap();
        let thread = std::thread::spawn(move || {
            show(&news, |line| {
                lines.send(line.to_owned()).expect("the test listens")
            });
        });
        let first: Vec<String> = shown.iter().take(2).collect();
        drop(running);
        thread.join().unwrap();
        assert!(first[0].starts_with("\r   1 s: joint: search"), "{first:?}");
        assert!(first[1].starts_with("\r   2 s: joint: search"), "{first:?}");
        let last = shown.iter().last().expect("the line is cleared");
        assert_eq!(last.trim_matches(['\r', ' ']), "");
    }

    #[test]
    fn what_ends_within_a_second_leaves_no_trace() {
        let (running, news) = channel::<String>();
        drop(running);
        show(&news, |line| panic!("{line:?}"));
    }
}
