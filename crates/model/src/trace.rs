//! What the access trace tells of a thread, as a simulator or a cache model reads it.
//!
//! Accesses that the thread's private caches answered are not told one by one: they are in [`Event::work`].

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A load missed the private caches. Line number: address divided by the line size; lines of the k-th process image after the
    /// first lie 2^52 k bytes further, as pages do.
    Read(u64),
    /// A store missed the private caches; other copies of the line become invalid.
    Write(u64),
    /// A store hit a line in the private caches that was not the thread's alone: other copies become invalid.
    Own(u64),
    /// A written line left the private caches.
    WriteBack(u64),
    /// The thread continues not before those who released this word. Word number: address divided by 4.
    Acquire(u64),
    /// The thread reached this word of synchronisation.
    Release(u64),
    /// The thread creates its n-th thread, from 1.
    Create(u64),
    /// The trace of the thread ends.
    End,
}

/// One event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The thread's virtual clock: accesses, joined at synchronisation.
    pub time: u64,
    /// Accesses of the thread since its event before, this one included.
    pub work: u64,
    /// What happened.
    pub action: Action,
}
