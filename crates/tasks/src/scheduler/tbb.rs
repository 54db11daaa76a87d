//! oneTBB runs the tasks: the baseline that does not know about nodes. Compiled in where the build
//! found oneTBB (Debian: libtbb-dev).

#[cfg(numaloc_tbb)]
mod found {
    use std::cell::Cell;
    use std::ffi::c_void;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    use crate::edt::{self, Edt};
    use crate::runtime::Runtime;
    use crate::scope;
    use crate::worker::{Worker, current, set_current};

    unsafe extern "C" {
        fn numaloc_tbb_run(workers: i32, body: extern "C" fn(*mut c_void), argument: *mut c_void);
        fn numaloc_tbb_spawn(body: unsafe extern "C" fn(*mut c_void), argument: *mut c_void);
        fn numaloc_tbb_wait();
    }

    /// Workers of oneTBB's threads live until the run ends: it does not say when a thread leaves.
    static WORKERS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    /// The runtime; null until tasks may be spawned.
    static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(std::ptr::null_mut());
    /// Number of the run, so that a thread knows a worker of an earlier run.
    static RUN: AtomicU64 = AtomicU64::new(0);

    thread_local! {
        static OF_RUN: Cell<u64> = const { Cell::new(0) };
    }

    fn worker_of_this_thread() -> *mut Worker {
        let run = RUN.load(Ordering::Relaxed);
        if OF_RUN.get() == run {
            return current();
        }
        // SAFETY: set before the first task is spawned, and alive while tasks run.
        let rt: &'static Runtime = unsafe { &*RUNTIME.load(Ordering::Acquire) };
        let index = rt.next_worker.fetch_add(1, Ordering::Relaxed) + 1;
        let node = rt.workers[index % rt.workers.len()].node;
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
            edt::execute(w, edt.cast());
            // It does not say when a thread runs dry either.
            if (*w).nesting == 0 {
                scope::settle(&mut *w);
            }
        }
    }

    extern "C" fn start_and_wait(w: *mut c_void) {
        let w: *mut Worker = w.cast();
        // SAFETY: inside the arena that `numaloc_tbb_run` made, on the thread whose worker this is;
        // `body` gets each task exactly once.
        unsafe {
            while let Some(edt) = (*w).ready.pop_front() {
                numaloc_tbb_spawn(body, edt.cast());
            }
            numaloc_tbb_wait();
        }
    }

    pub fn schedule(w: &mut Worker, edt: *mut Edt) {
        if RUNTIME.load(Ordering::Relaxed).is_null() {
            // The first task; the arena is not there yet.
            w.ready.push_back(edt);
        } else {
            // SAFETY: `body` gets the task exactly once.
            unsafe { numaloc_tbb_spawn(body, edt.cast()) };
        }
    }

    /// # Safety
    /// `w` is this thread's worker and no reference to it is in use.
    pub unsafe fn run_all(w: *mut Worker) -> Result<(), String> {
        // SAFETY: as the caller promises.
        unsafe {
            let rt = (*w).rt;
            OF_RUN.set(RUN.fetch_add(1, Ordering::Relaxed) + 1);
            RUNTIME.store(std::ptr::from_ref(rt).cast_mut(), Ordering::Release);
            numaloc_tbb_run(rt.workers.len() as i32, start_and_wait, w.cast());
            RUNTIME.store(std::ptr::null_mut(), Ordering::Release);
            rt.quiescent();
            for worker in WORKERS.lock().expect("no panic while locked").drain(..) {
                let worker = Box::from_raw(worker as *mut Worker);
                rt.add_counters(&worker.counters);
            }
        }
        Ok(())
    }
}

#[cfg(numaloc_tbb)]
pub use found::{run_all, schedule};

#[cfg(not(numaloc_tbb))]
mod missing {
    use crate::edt::Edt;
    use crate::worker::Worker;

    pub fn schedule(_: &mut Worker, _: *mut Edt) {
        // The first task is dropped; `run_all` then says why.
    }

    /// # Safety
    /// None needed; as its namesake.
    pub unsafe fn run_all(_: *mut Worker) -> Result<(), String> {
        Err("this build has no oneTBB scheduler: install libtbb-dev and build again".to_owned())
    }
}

#[cfg(not(numaloc_tbb))]
pub use missing::{run_all, schedule};
