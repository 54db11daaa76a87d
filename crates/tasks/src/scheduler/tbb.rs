//! Runs tasks with oneTBB: the baseline that ignores nodes. Compiled in if the build found oneTBB (Debian: libtbb-dev).

#[cfg(numaloc_tbb)]
mod found {
    use std::cell::Cell;
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
    use std::sync::{Arc, Condvar, Mutex, Once};
    use std::time::Duration;

    use crate::error::RunError;
    use crate::scheduler::kept::Kept;
    use crate::scheduler::ready::Ready;
    use crate::state::{Runtime, Worker, current, set_current};

    unsafe extern "C" {
        fn numaloc_tbb_run(workers: i32, body: extern "C" fn(*mut c_void), argument: *mut c_void);
        fn numaloc_tbb_spawn(body: unsafe extern "C" fn(*mut c_void), argument: *mut c_void);
        fn numaloc_tbb_wait();
        fn numaloc_tbb_suspend(
            begun: unsafe extern "C" fn(*mut c_void, *mut c_void),
            argument: *mut c_void,
        );
        fn numaloc_tbb_resume(point: *mut c_void);
    }

    /// Workers of oneTBB's threads live until the run ends, because oneTBB does not report when a thread leaves.
    static WORKERS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    /// The runtime; null until tasks may be spawned.
    static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(std::ptr::null_mut());
    /// Number of the run, to recognise a worker of an earlier run.
    static RUN: AtomicU64 = AtomicU64::new(0);

    thread_local! {
        static OF_RUN: Cell<u64> = const { Cell::new(0) };
        static TALLY: Arc<Tally> = {
            let tally = Arc::new(Tally::default());
            TALLIES.lock().expect("no panic while locked").push(tally.clone());
            tally
        };
    }

    /// Number of tasks a thread passed to oneTBB, and number of tasks it completed.
    #[derive(Default)]
    struct Tally {
        spawned: AtomicU64,
        ended: AtomicU64,
    }

    /// Tallies of all threads, including those that have ended.
    static TALLIES: Mutex<Vec<Arc<Tally>>> = Mutex::new(Vec::new());

    const ASK_EVERY: Duration = Duration::from_micros(50);
    /// Number of consecutive checks in which nothing runs or happens before waits count as hopeless; the second limit
    /// applies if an awaited event has fired but the waiting task has not continued yet.
    const QUIET: u32 = 20;
    const QUIET_BUT_COME: u32 = 50_000;

    fn count(counter: impl Fn(&Tally) -> &AtomicU64) {
        TALLY.with(|tally| {
            // Only this thread writes it.
            let counter = counter(tally);
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
        });
    }

    fn worker_of_this_thread() -> *mut Worker {
        let run = RUN.load(Ordering::Relaxed);
        if OF_RUN.get() == run {
            return current();
        }
        // SAFETY: set before the first task is spawned, and alive while tasks run.
        let rt: &'static Runtime = unsafe { &*RUNTIME.load(Ordering::Acquire) };
        let index = rt.next_worker.fetch_add(1, Ordering::Relaxed) + 1;
        let node = rt.queues.workers[index % rt.queues.workers.len()].node;
        let w = Box::into_raw(Worker::new(rt, index, node));
        WORKERS
            .lock()
            .expect("no panic while locked")
            .push(w as usize);
        set_current(w);
        OF_RUN.set(run);
        w
    }

    unsafe extern "C" fn body(edt: *mut c_void) {
        let w = worker_of_this_thread();
        // SAFETY: this thread's worker; the task was handed to oneTBB once.
        unsafe {
            let rt = (*w).rt;
            rt.tasks.run(w, edt.cast());
            // oneTBB does not report either when a thread has no more tasks.
            rt.tasks.out_of_tasks(&mut *worker_again());
        }
        count(|tally| &tally.ended);
    }

    extern "C" fn start_and_wait(w: *mut c_void) {
        let w: *mut Worker = w.cast();
        // SAFETY: inside the arena that `numaloc_tbb_run` made, on the thread whose worker this is;
        // `body` gets each task exactly once.
        unsafe {
            while let Some(edt) = (*w).ready.pop_front() {
                count(|tally| &tally.spawned);
                numaloc_tbb_spawn(body, edt.cast());
            }
            numaloc_tbb_wait();
        }
    }

    /// Tasks passed to oneTBB and not ended, minus those that wait inside themselves: 0 means that nothing runs. Ends
    /// are counted before beginnings, so that a task in transit is not missed.
    /// Also returns sums that change with everything that happens.
    fn running(rt: &Runtime) -> (i64, [u64; 2]) {
        let tallies = TALLIES.lock().expect("no panic while locked");
        let ended: u64 = tallies
            .iter()
            .map(|tally| tally.ended.load(Ordering::SeqCst))
            .sum();
        let waiting = rt.waits.count();
        let spawned: u64 = tallies
            .iter()
            .map(|tally| tally.spawned.load(Ordering::SeqCst))
            .sum();
        let running = spawned as i64 - ended as i64 - waiting as i64;
        (running, [spawned + ended, rt.waits.changes()])
    }

    struct Pause<'a> {
        rt: &'static Runtime,
        ready: &'a mut dyn FnMut(&mut Worker) -> bool,
        stuck: bool,
    }

    /// How long nothing has happened, for the polling thread.
    #[derive(Default)]
    struct Quiet {
        rounds: u32,
        /// Sums that change with everything that happens.
        progress: [u64; 2],
    }

    impl Quiet {
        /// Looks once more; true: nothing will happen any more.
        fn look(&mut self, rt: &Runtime) -> bool {
            let (running, progress) = running(rt);
            if running > 0 || progress != self.progress {
                (self.rounds, self.progress) = (0, progress);
            }
            self.rounds += 1;
            // An awaited event has fired: its task continues when a thread is free.
            let limit = if rt.tasks.awaited_event_has_fired(rt) {
                QUIET_BUT_COME
            } else {
                QUIET
            };
            self.rounds >= limit
        }
    }

    /// Whether a wait is over, because it ended or because nothing will happen any more.
    fn is_over(pause: &mut Pause, stuck: bool) -> bool {
        let w = worker_of_this_thread();
        // SAFETY: this thread's worker; no task runs on it.
        if (pause.ready)(unsafe { &mut *w }) {
            return true;
        }
        pause.stuck = stuck;
        stuck
    }

    /// A waiting task, for the polling thread.
    struct Wait {
        /// A [`Pause`], on the stack of the waiting task until it is resumed.
        pause: *mut c_void,
        /// Argument of `numaloc_tbb_resume`.
        point: *mut c_void,
    }

    // SAFETY: the waiting task does not touch its `Pause` before it is resumed.
    unsafe impl Send for Wait {}

    /// Waits that started since the polling thread last looked.
    static BEGUN: Mutex<Vec<Wait>> = Mutex::new(Vec::new());
    static HAS_BEGUN: Condvar = Condvar::new();
    static ASKING: Once = Once::new();

    /// Polls the waiting tasks and resumes those whose waits are over; runs on its own thread, because oneTBB's threads
    /// sleep when no task is ready.
    fn ask() {
        let mut waits: Vec<Wait> = Vec::new();
        let mut quiet = Quiet::default();
        loop {
            let mut begun = BEGUN.lock().expect("no panic while locked");
            while waits.is_empty() && begun.is_empty() {
                begun = HAS_BEGUN.wait(begun).expect("no panic while locked");
            }
            waits.append(&mut begun);
            drop(begun);
            // SAFETY: alive until resumed, and used only here until then.
            let rt = unsafe { (*waits[0].pause.cast::<Pause>()).rt };
            let stuck = quiet.look(rt);
            waits.retain(|wait| {
                // SAFETY: alive until resumed, and used only here until then.
                let over = is_over(unsafe { &mut *wait.pause.cast::<Pause>() }, stuck);
                if over {
                    // SAFETY: suspended, and resumed once, because it leaves the list.
                    unsafe { numaloc_tbb_resume(wait.point) };
                }
                !over
            });
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// Called by oneTBB on the stack on which its thread goes on.
    unsafe extern "C" fn begun(pause: *mut c_void, point: *mut c_void) {
        let wait = Wait { pause, point };
        BEGUN.lock().expect("no panic while locked").push(wait);
        HAS_BEGUN.notify_one();
    }

    /// The current task waits inside itself: oneTBB runs others on this thread, and continues the task on any thread
    /// when `ready` holds. False: it never will, because all remaining tasks wait.
    ///
    /// # Safety
    /// `w` is this thread's worker and no reference to it is in use.
    pub unsafe fn wait(w: *mut Worker, ready: &mut dyn FnMut(&mut Worker) -> bool) -> bool {
        ASKING.call_once(|| {
            std::thread::spawn(ask);
        });
        // SAFETY: as the caller promises; `pause` lives until the task is resumed, and is not used afterwards.
        unsafe {
            let rt = (*w).rt;
            let kept = Kept::take(&mut *w);
            rt.publish_counters(&*w);
            let mut pause = Pause {
                rt,
                ready,
                stuck: false,
            };
            numaloc_tbb_suspend(begun, (&raw mut pause).cast());
            kept.restore(&mut *worker_again());
            !pause.stuck
        }
    }

    /// As [`worker_of_this_thread`], for a task that may have changed its thread.
    #[inline(never)]
    fn worker_again() -> *mut Worker {
        worker_of_this_thread()
    }

    pub fn schedule(w: &mut Worker, edt: *mut Ready) {
        if RUNTIME.load(Ordering::Relaxed).is_null() {
            // The first task: the arena does not exist yet.
            w.ready.push_back(edt);
        } else {
            count(|tally| &tally.spawned);
            // SAFETY: `body` gets the task exactly once.
            unsafe { numaloc_tbb_spawn(body, edt.cast()) };
        }
    }

    /// # Safety
    /// `w` is this thread's worker and no reference to it is in use.
    pub unsafe fn run_all(w: *mut Worker) -> Result<(), RunError> {
        // SAFETY: as the caller promises.
        unsafe {
            let rt = (*w).rt;
            OF_RUN.set(RUN.fetch_add(1, Ordering::Relaxed) + 1);
            RUNTIME.store(std::ptr::from_ref(rt).cast_mut(), Ordering::Release);
            numaloc_tbb_run(rt.queues.workers.len() as i32, start_and_wait, w.cast());
            RUNTIME.store(std::ptr::null_mut(), Ordering::Release);
            rt.tasks.quiescent(rt);
            for worker in WORKERS.lock().expect("no panic while locked").drain(..) {
                let worker = Box::from_raw(worker as *mut Worker);
                rt.publish_counters(&worker);
            }
        }
        Ok(())
    }
}

#[cfg(numaloc_tbb)]
pub use found::{run_all, schedule, wait};

#[cfg(not(numaloc_tbb))]
mod missing {
    use crate::error::RunError;
    use crate::scheduler::ready::Ready;
    use crate::state::Worker;

    pub fn schedule(_: &mut Worker, _: *mut Ready) {
        // The first task is dropped; `run_all` then says why.
    }

    /// # Safety
    /// None; same signature as the real one.
    pub unsafe fn wait(_: *mut Worker, _: &mut dyn FnMut(&mut Worker) -> bool) -> bool {
        false
    }

    /// # Safety
    /// None; same signature as the real one.
    pub unsafe fn run_all(_: *mut Worker) -> Result<(), RunError> {
        Err(RunError::NoTbbScheduler)
    }
}

#[cfg(not(numaloc_tbb))]
pub use missing::{run_all, schedule, wait};
