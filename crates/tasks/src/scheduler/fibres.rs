//! Stacks for tasks that wait inside themselves. A worker's loop runs on one stack; when a task waits, its stack stays
//! as it is, and the loop goes on on another one. So waits do not nest: each waiting task continues as soon as its wait
//! is over and its worker has ended the task at hand, in whatever order that happens.
//!
//! A stack belongs to one thread for ever: thread-local variables of the program stay what they were.

use std::collections::VecDeque;
use std::io;
use std::ptr;

/// Size of a stack: as the threads have it. Only pages that are used take memory.
const STACK: usize = 8 << 20;
/// Inaccessible memory below a stack, so that an overflow is a crash and nothing worse.
const GUARD: usize = 1 << 16;
/// Stacks kept for the next wait.
const SPARE: usize = 64;
/// Waiting tasks polled between two tasks: many of them must not make each task slow.
const POLLED: usize = 16;

/// One stack, with the registers of what runs on it while something else runs.
struct Fibre {
    registers: libc::ucontext_t,
    /// Start of its memory; null: the thread's own stack.
    memory: *mut libc::c_void,
}

/// A task that waits inside itself. `W`: the worker.
struct Waiting<W> {
    fibre: *mut Fibre,
    ready: *mut dyn FnMut(&mut W) -> bool,
}

/// The stacks of one thread.
pub struct Fibres<W> {
    /// The one in use; null before the first wait.
    current: *mut Fibre,
    /// The thread's own stack; null before the first wait.
    own: *mut Fibre,
    /// Their loops can go on; newest last.
    spare: VecDeque<*mut Fibre>,
    waiting: Vec<Waiting<W>>,
    /// The waiting task to poll next.
    next: usize,
}

impl<W> Default for Fibres<W> {
    fn default() -> Self {
        Self {
            current: ptr::null_mut(),
            own: ptr::null_mut(),
            spare: VecDeque::new(),
            waiting: Vec::new(),
            next: 0,
        }
    }
}

impl Fibre {
    fn of_thread() -> *mut Self {
        Box::into_raw(Box::new(Self {
            // SAFETY: plain data, set when the thread leaves this stack.
            registers: unsafe { std::mem::zeroed() },
            memory: ptr::null_mut(),
        }))
    }

    /// A new stack, on which `body` starts at the first switch to it.
    fn new(body: extern "C" fn()) -> io::Result<*mut Self> {
        // SAFETY: a fresh mapping, whose lower end becomes inaccessible; the context is set up before it is used, and
        // stays where it is, which makecontext needs.
        unsafe {
            let memory = libc::mmap(
                ptr::null_mut(),
                STACK + GUARD,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
                -1,
                0,
            );
            if memory == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let fibre = Self::of_thread();
            (*fibre).memory = memory;
            if libc::mprotect(memory, GUARD, libc::PROT_NONE) != 0
                || libc::getcontext(&raw mut (*fibre).registers) != 0
            {
                let error = io::Error::last_os_error();
                Self::free(fibre);
                return Err(error);
            }
            (*fibre).registers.uc_stack.ss_sp = memory.byte_add(GUARD);
            (*fibre).registers.uc_stack.ss_size = STACK;
            libc::makecontext(&raw mut (*fibre).registers, body, 0);
            Ok(fibre)
        }
    }

    /// # Safety
    /// Nothing runs on it, or will.
    unsafe fn free(fibre: *mut Self) {
        // SAFETY: made by `new` or `of_thread`; the caller's promise.
        unsafe {
            if !(*fibre).memory.is_null() {
                libc::munmap((*fibre).memory, STACK + GUARD);
            }
            drop(Box::from_raw(fibre));
        }
    }
}

impl<W> Fibres<W> {
    /// Whether any task of this worker waits inside itself.
    #[inline]
    pub fn any_waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the wait of any task of `w` is over.
    ///
    /// # Safety
    /// `w` is this thread's worker, `of(w)` this.
    pub unsafe fn any_ready(w: *mut W, of: fn(&mut W) -> &mut Self) -> bool {
        // SAFETY: the closures live on the stacks of waiting tasks; they leave this list alone.
        unsafe {
            let count = of(&mut *w).waiting.len();
            (0..count).any(|at| {
                let ready = of(&mut *w).waiting[at].ready;
                (*ready)(&mut *w)
            })
        }
    }

    /// The current task waits until `ready`: the loop goes on on another stack. Returns when the loop has found that
    /// `ready` holds.
    ///
    /// # Errors
    /// There is no memory for another stack.
    ///
    /// # Safety
    /// `w` is this thread's worker, `of(w)` this, no reference to it is in use, and `body` runs this worker's loop, on
    /// which it calls [`Fibres::go_on`], and at its end [`Fibres::leave`].
    pub unsafe fn wait(
        w: *mut W,
        of: fn(&mut W) -> &mut Self,
        body: extern "C" fn(),
        ready: &mut dyn FnMut(&mut W) -> bool,
    ) -> io::Result<()> {
        // SAFETY: references end before the switch.
        unsafe {
            let (from, to) = {
                let this = of(&mut *w);
                let to = match this.spare.pop_back() {
                    Some(spare) => spare,
                    None => Fibre::new(body)?,
                };
                if this.current.is_null() {
                    this.own = Fibre::of_thread();
                    this.current = this.own;
                }
                let from = std::mem::replace(&mut this.current, to);
                this.waiting.push(Waiting {
                    fibre: from,
                    // The closure lives until this call returns, and is not used afterwards.
                    ready: std::mem::transmute::<
                        *mut (dyn FnMut(&mut W) -> bool + '_),
                        *mut (dyn FnMut(&mut W) -> bool + 'static),
                    >(ptr::from_mut(ready)),
                });
                (from, to)
            };
            switch(from, to);
        }
        Ok(())
    }

    /// Called by the loop, between two tasks: continues a task whose wait is over, and goes on with the loop when
    /// another task waits or this stack is used again. `all`: polls all of them, else a few. False: it found none.
    ///
    /// # Safety
    /// As for [`Fibres::wait`].
    pub unsafe fn go_on(w: *mut W, of: fn(&mut W) -> &mut Self, all: bool) -> bool {
        // SAFETY: references end before the switch; closures as in `any_ready`.
        unsafe {
            let count = of(&mut *w).waiting.len();
            let polled = if all { count } else { count.min(POLLED) };
            for _ in 0..polled {
                let (at, ready) = {
                    let this = of(&mut *w);
                    let at = if this.next < count { this.next } else { 0 };
                    this.next = at + 1;
                    (at, this.waiting[at].ready)
                };
                if (*ready)(&mut *w) {
                    let (from, to) = {
                        let this = of(&mut *w);
                        let to = this.waiting.remove(at).fibre;
                        this.next = at;
                        let from = std::mem::replace(&mut this.current, to);
                        this.keep(from);
                        (from, to)
                    };
                    switch(from, to);
                    return true;
                }
            }
            false
        }
    }

    /// Keeps a stack that is about to be left for the next wait, and frees one if they become many.
    fn keep(&mut self, fibre: *mut Fibre) {
        self.spare.push_back(fibre);
        if self.spare.len() > SPARE {
            let own = self.own;
            if let Some(at) = self.spare.iter().position(|&spare| spare != own) {
                let unused = self.spare.remove(at).expect("in range");
                // SAFETY: its loop holds nothing and is never continued; it is not the last, which is in use.
                unsafe { Fibre::free(unused) };
            }
        }
    }

    /// The loop has ended and no task waits: continues on the thread's own stack.
    ///
    /// # Safety
    /// As for [`Fibres::wait`]; called on another stack than the thread's own.
    pub unsafe fn leave(w: *mut W, of: fn(&mut W) -> &mut Self) -> ! {
        // SAFETY: the loop on the thread's own stack is in `go_on`, because no task waits.
        unsafe {
            let (from, to) = {
                let this = of(&mut *w);
                let own = this.own;
                this.spare.retain(|&spare| spare != own);
                let from = std::mem::replace(&mut this.current, own);
                this.spare.push_back(from);
                (from, own)
            };
            switch(from, to);
        }
        unreachable!("the loop of a stack that was left continued")
    }
}

impl<W> Drop for Fibres<W> {
    fn drop(&mut self) {
        for fibre in self.spare.drain(..) {
            // SAFETY: the thread is on its own stack; the loops on the others hold nothing.
            unsafe { Fibre::free(fibre) };
        }
        if !self.own.is_null() {
            // SAFETY: only its registers; the stack is the thread's.
            unsafe { Fibre::free(self.own) };
        }
    }
}

/// # Safety
/// The thread runs on `from`, and `to` can continue.
unsafe fn switch(from: *mut Fibre, to: *mut Fibre) {
    // SAFETY: as the caller promises.
    unsafe { libc::swapcontext(&raw mut (*from).registers, &raw const (*to).registers) };
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static WORKER: std::cell::Cell<*mut Worker> = const { std::cell::Cell::new(ptr::null_mut()) };
    }

    /// A worker with a list of tasks.
    struct Worker {
        fibres: Fibres<Worker>,
        tasks: VecDeque<usize>,
        fired: Vec<bool>,
        log: Vec<String>,
    }

    fn of(w: &mut Worker) -> &mut Fibres<Worker> {
        &mut w.fibres
    }

    extern "C" fn body() {
        let w = WORKER.get();
        // SAFETY: this thread's.
        unsafe {
            work(w);
            Fibres::leave(w, of);
        }
    }

    /// Even tasks wait until the next number has fired, odd ones fire.
    unsafe fn work(w: *mut Worker) {
        // SAFETY: this thread's; references are short.
        unsafe {
            loop {
                if Fibres::go_on(w, of, true) {
                    continue;
                }
                let Some(task) = (*w).tasks.pop_front() else {
                    return;
                };
                if task % 2 == 0 {
                    (*w).log.push(format!("{task} waits"));
                    Fibres::wait(w, of, body, &mut |w: &mut Worker| w.fired[task + 1]).unwrap();
                    (*w).log.push(format!("{task} goes on"));
                } else {
                    let fired = &mut (*w).fired;
                    fired[task] = true;
                }
            }
        }
    }

    #[test]
    fn waiting_tasks_go_on_in_the_order_of_their_events_and_not_of_their_stacks() {
        let mut worker = Box::new(Worker {
            fibres: Fibres::default(),
            tasks: VecDeque::from([0, 2, 4, 1, 5, 3]),
            fired: vec![false; 6],
            log: Vec::new(),
        });
        WORKER.set(&raw mut *worker);
        // SAFETY: this thread's worker.
        unsafe { work(WORKER.get()) };
        assert_eq!(
            worker.log.join(", "),
            "0 waits, 2 waits, 4 waits, 0 goes on, 4 goes on, 2 goes on"
        );
    }

    #[test]
    fn many_waits_leave_few_stacks() {
        let mut worker = Box::new(Worker {
            fibres: Fibres::default(),
            tasks: (0..400)
                .map(|at| 2 * at)
                .chain((0..400).map(|at| 2 * at + 1))
                .collect(),
            fired: vec![false; 800],
            log: Vec::new(),
        });
        WORKER.set(&raw mut *worker);
        // SAFETY: this thread's worker.
        unsafe { work(WORKER.get()) };
        assert_eq!(worker.log.len(), 800);
        assert!(worker.fibres.spare.len() <= SPARE + 1);
    }
}
