//! The windows of a trace that lacks the requests between them.
//!
//! Each thread's events are those that a replay of its time needs: work, synchronisation, creations. The requests of
//! windows are kept apart, by window and thread; in the place of requests, the thread has [`Batch`]es with their
//! number.

use numaloc_model::trace::TracePart;

use crate::event::{Packed, Step};

/// Requests that a thread makes before an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Index of the event.
    pub(crate) at: u32,
    pub(crate) interval: u32,
    pub(crate) requests: u64,
}

/// A thread's part of a window.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) thread: u32,
    /// Its last requests before the window, in order.
    pub(crate) warm: Vec<Packed>,
    pub(crate) detail: Vec<Packed>,
}

/// The first request of a thread for a page, outside windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) thread: u32,
    pub(crate) line: u32,
    /// The interval it is in.
    pub(crate) interval: u32,
}

/// Windows and what is known of the gaps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windowed {
    /// By interval and thread.
    pub(crate) windows: Vec<Vec<Slice>>,
    /// In recorded order.
    pub(crate) touches: Vec<Touch>,
    /// By thread.
    pub(crate) batches: Vec<Vec<Batch>>,
}

impl Windowed {
    /// Requests of all threads, in windows and outside.
    pub(crate) fn requests(&self) -> u64 {
        self.batches
            .iter()
            .flatten()
            .map(|batch| batch.requests)
            .sum()
    }

    /// Renumbers lines.
    pub(crate) fn renumber(&mut self, number: impl Fn(u32) -> u32) {
        for touch in &mut self.touches {
            touch.line = number(touch.line);
        }
        let slices = self.windows.iter_mut().flatten();
        let events = slices.flat_map(|slice| slice.warm.iter_mut().chain(&mut slice.detail));
        for event in events.filter(|event| event.step().has_line()) {
            *event = event.with_value(number(event.value()));
        }
    }

    /// Numbers from which the content can be recognised.
    pub(crate) fn digest(&self, mut add: impl FnMut(u64)) {
        for slice in self.windows.iter().flatten() {
            add(u64::from(slice.thread));
            let events = slice.warm.iter().chain(&slice.detail);
            events.for_each(|event| add(event.bits()));
        }
        for touch in &self.touches {
            add(u64::from(touch.thread) << 32 | u64::from(touch.line));
        }
        for batch in self.batches.iter().flatten() {
            add(u64::from(batch.at) << 32 | u64::from(batch.interval));
            add(batch.requests);
        }
    }
}

/// Where a thread is while its events are read.
#[derive(Clone, Copy, Debug)]
struct Place {
    part: TracePart,
    /// Requests since the last batch.
    requests: u64,
}

/// Collects windows while events are read.
#[derive(Debug)]
pub(crate) struct Collector {
    found: Windowed,
    places: Vec<Place>,
}

/// Most intervals of a trace: some hundreds are usual.
const MOST_INTERVALS: u32 = 1 << 20;

impl Collector {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            found: Windowed {
                batches: vec![Vec::new(); threads],
                ..Windowed::default()
            },
            places: vec![
                Place {
                    part: TracePart::Gap(0),
                    requests: 0
                };
                threads
            ],
        }
    }

    /// Begins a part of a thread; false if its interval is impossible.
    pub(crate) fn begin(&mut self, thread: usize, part: TracePart) -> bool {
        self.places[thread].part = part;
        let (TracePart::Gap(interval) | TracePart::Warm(interval) | TracePart::Window(interval)) =
            part;
        if interval >= MOST_INTERVALS {
            return false;
        }
        let at = interval as usize;
        if self.found.windows.len() <= at {
            self.found.windows.resize(at + 1, Vec::new());
        }
        if matches!(part, TracePart::Warm(_)) {
            self.found.windows[at].push(Slice {
                thread: thread as u32,
                warm: Vec::new(),
                detail: Vec::new(),
            });
        }
        true
    }

    /// Adds requests that are not in the trace.
    pub(crate) fn omit(&mut self, thread: usize, requests: u64) {
        let place = &mut self.places[thread];
        place.requests = place.requests.saturating_add(requests);
    }

    /// Adds a request, or work; returns whether it takes the thread's time.
    pub(crate) fn add(&mut self, thread: usize, event: Packed) -> bool {
        let place = &mut self.places[thread];
        let is_request = event.step().has_line();
        let slice_of = |windows: &mut Vec<Vec<Slice>>, interval: u32| {
            let slices = windows.get_mut(interval as usize)?;
            let at = slices
                .iter()
                .rposition(|slice| slice.thread == thread as u32)?;
            Some((interval as usize, at))
        };
        match place.part {
            TracePart::Warm(interval) => {
                if let Some((window, at)) = slice_of(&mut self.found.windows, interval)
                    && is_request
                {
                    self.found.windows[window][at].warm.push(event);
                }
                return false;
            }
            TracePart::Window(interval) => {
                if let Some((window, at)) = slice_of(&mut self.found.windows, interval) {
                    self.found.windows[window][at].detail.push(event);
                }
            }
            TracePart::Gap(interval) if is_request => self.found.touches.push(Touch {
                thread: thread as u32,
                line: event.value(),
                interval,
            }),
            TracePart::Gap(_) => {}
        }
        place.requests += u64::from(is_request);
        true
    }

    /// Makes a batch of the requests so far before the thread's event number `at`.
    pub(crate) fn note_requests(&mut self, thread: usize, at: usize) {
        let place = &mut self.places[thread];
        let (TracePart::Gap(interval) | TracePart::Warm(interval) | TracePart::Window(interval)) =
            place.part;
        let requests = std::mem::take(&mut place.requests);
        if requests > 0 {
            self.found.batches[thread].push(Batch {
                at: at as u32,
                interval,
                requests,
            });
        }
    }

    pub(crate) fn finish(self) -> Windowed {
        self.found
    }
}

/// Events that take `work` accesses and nothing else.
pub(crate) fn only_work(mut work: u64) -> impl Iterator<Item = Packed> {
    std::iter::from_fn(move || {
        let part = work.min(u64::from(u32::MAX));
        work -= part;
        (part > 0).then(|| Packed::new(Step::Work, 0, part as u32))
    })
}
