//! oneTBB runs the tasks: the baseline that does not know about nodes. Compiled in where the build
//! found oneTBB (Debian: libtbb-dev).

#[cfg(numaloc_tbb)]
mod found {
    use std::ffi::c_void;
    use std::sync::atomic::Ordering;

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
    static WORKERS: std::sync::Mutex<Vec<usize>> = std::sync::Mutex::new(Vec::new());
    static RUNTIME: std::sync::atomic::AtomicPtr<Runtime> =
        std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());

    fn worker_of_this_thread() -> *mut Worker {
        let w = current();
        let rt = RUNTIME.load(Ordering::Acquire);
        // SAFETY: workers of an older run are forgotten when it ends, and the runtime lives while
        // tasks run.
        let rt: &'static Runtime = unsafe { &*rt };
        if !w.is_null()
            && WORKERS
                .lock()
                .expect("no panic while locked")
                .contains(&(w as usize))
        {
            return w;
        }
        let index = rt.next_worker.fetch_add(1, Ordering::Relaxed) + 1;
        let node = rt.workers[index % rt.workers.len()].node;
        let w = Box::into_raw(Worker::new(rt, index, node));
        WORKERS
            .lock()
            .expect("no panic while locked")
            .push(w as usize);
        set_current(w);
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

    extern "C" fn wait(_: *mut c_void) {
        // SAFETY: inside the arena that `numaloc_tbb_run` made.
        unsafe { numaloc_tbb_wait() };
    }

    pub fn spawn(edt: *mut Edt) {
        // SAFETY: `body` gets the task exactly once.
        unsafe { numaloc_tbb_spawn(body, edt.cast()) };
    }

    /// # Safety
    /// `w` is this thread's worker and no reference to it is in use.
    pub unsafe fn run_all(w: *mut Worker) -> Result<(), String> {
        // SAFETY: as the caller promises.
        unsafe {
            let rt = (*w).rt;
            RUNTIME.store(std::ptr::from_ref(rt).cast_mut(), Ordering::Release);
            WORKERS
                .lock()
                .expect("no panic while locked")
                .push(w as usize);
            numaloc_tbb_run(rt.workers.len() as i32, wait, std::ptr::null_mut());
            rt.quiescent();
            for worker in WORKERS.lock().expect("no panic while locked").drain(..) {
                if worker != w as usize {
                    let worker = Box::from_raw(worker as *mut Worker);
                    rt.add_counters(&worker.counters);
                }
            }
        }
        Ok(())
    }
}

#[cfg(numaloc_tbb)]
pub use found::{run_all, spawn};

#[cfg(not(numaloc_tbb))]
mod missing {
    use crate::edt::Edt;
    use crate::worker::Worker;

    pub fn spawn(_: *mut Edt) {
        // The first task is dropped; `run_all` then says why.
    }

    /// # Safety
    /// None needed; as its namesake.
    pub unsafe fn run_all(_: *mut Worker) -> Result<(), String> {
        Err("this build has no oneTBB scheduler: install libtbb-dev and build again".to_owned())
    }
}

#[cfg(not(numaloc_tbb))]
pub use missing::{run_all, spawn};
