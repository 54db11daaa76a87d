//! The events of a thread in an access trace, as input of a simulator or a cache model.
//!
//! Accesses that hit in the thread's private caches are not recorded individually; [`Event::work`] counts them.

/// The action of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A load missed the private caches. Line number: address divided by the line size; lines of the k-th process
    /// image after the first are offset by 2^52 k bytes, like pages.
    Read(u64),
    /// A store missed the private caches; other copies of the line become invalid.
    Write(u64),
    /// A store hit a line in the private caches that other threads may have too: other copies become invalid.
    Own(u64),
    /// A modified line was evicted from the private caches.
    WriteBack(u64),
    /// The thread acquired this word: it continues no earlier than previous releases of the word. Word number: address
    /// divided by 4.
    Acquire(u64),
    /// The thread released this synchronisation word.
    Release(u64),
    /// The thread created its n-th thread, counted from 1.
    Create(u64),
    /// The thread made this many requests that are not in the trace.
    Omitted(u64),
    /// Another part of a trace with windows begins.
    Part(TracePart),
    /// The trace of the thread ends.
    End,
}

/// Part of a trace with windows, with the number of its interval from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TracePart {
    /// Requests are counted only, except the first one for each page.
    Gap(u32),
    /// The last requests for lines that the thread used in the gap before, in order; they are counted in
    /// [`Action::Omitted`] already.
    Warm(u32),
    /// All requests.
    Window(u32),
}

/// One event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The thread's virtual clock: its accesses, synchronised with other threads at each acquire.
    pub time: u64,
    /// Accesses of the thread since its previous event, including this one.
    pub work: u64,
    /// The action.
    pub action: Action,
    /// Of a [`Action::Read`]: its address comes from the thread's fetch this many back, of those by [`Action::Read`]
    /// and [`Action::Write`]; 0 if from none that may still be under way, or if that is unknown.
    pub after: u8,
}
