//! Work stealing inside NUMA nodes.
//!
//! A ready task goes to the deque of the worker that made it ready if it belongs on that worker's node, else to its
//! node's inbox. A worker takes its newest task, else a task from the node's inbox, else steals the older half of the
//! queue of another worker of the node; with `STEAL=any`, another node as the last resort; with `STEAL=surplus`, only a
//! node that has more tasks than its workers can do in the time that one takes elsewhere. Workers that find nothing
//! sleep (futex, through `std::thread::park`) without a timeout: publishing a task wakes one unless another is already
//! awake and searching.
//!
//! No wake-up is lost: a worker first registers as sleeping (`sleeping`), then looks for work once more; a publisher
//! first publishes the task, then checks for sleepers. A SeqCst fence separates the two steps on either side, so at
//! least one side sees the other.

use std::sync::atomic::{Ordering, fence};

use numaloc_sys::affinity;

use super::ready::Ready;
use super::suspend;
use crate::config::Stealing;
use crate::objects::arena::prefetch;
use crate::observe::crash::Stack;
use crate::state::{Runtime, Worker, set_current};

/// A worker checks the inbox after this many tasks of its own, so that inbox tasks do not starve.
const INBOX_EVERY: u64 = 64;

/// Largest number of tasks stolen at a time: enough to amortise the steal, few enough to be stolen back soon.
const MOST_STOLEN: usize = 32;

/// Search rounds before a worker sleeps: a few microseconds.
const ROUNDS: u32 = 4;

/// Queues a ready task.
#[inline]
pub fn schedule(w: &mut Worker, edt: *mut Ready) {
    let rt = w.rt;
    // SAFETY: ready, so owned by us until it is pushed.
    let wanted = unsafe { (*edt).node };
    let node = if wanted == w.node {
        wanted
    } else {
        rt.queues.served_by[usize::from(wanted)]
    };
    if node == w.node {
        // SAFETY: the deque is this worker's.
        unsafe { rt.queues.workers[w.index].deque.push(edt) };
    } else {
        let to = &rt.queues.nodes[usize::from(node)];
        to.in_inbox.fetch_add(1, Ordering::Relaxed);
        // SAFETY: alive, and in no other queue.
        unsafe { to.inbox.push(edt) };
    }
    notify(rt, node);
}

/// Wakes a worker for a task just published on `node`, if one sleeps and none is searching.
#[inline]
fn notify(rt: &'static Runtime, node: u16) {
    fence(Ordering::SeqCst);
    let state = &rt.queues.nodes[usize::from(node)];
    if state.sleeping.load(Ordering::Relaxed) > 0 {
        if state.searching.load(Ordering::Relaxed) == 0 {
            wake(rt, usize::from(node));
        }
    } else if rt.queues.nodes.len() > 1 {
        let stealing = rt.queues.stealing();
        if stealing == Stealing::Node {
            return;
        }
        for (at, state) in rt.queues.nodes.iter().enumerate() {
            if state.sleeping.load(Ordering::Relaxed) > 0
                && state.searching.load(Ordering::Relaxed) == 0
                && (stealing == Stealing::Any || has_surplus(rt, at, usize::from(node)))
            {
                wake(rt, at);
                return;
            }
        }
    }
}

/// Whether a worker of node `by` may take a task of `node`, because of how many wait there.
fn has_surplus(rt: &Runtime, by: usize, node: usize) -> bool {
    rt.queues.waiting(node) >= rt.queues.patience(by, node)
}

#[cold]
fn wake(rt: &'static Runtime, node: usize) {
    let mut idle = rt.queues.idle.lock().expect("no panic while locked");
    let Some(worker) = idle.wake(node) else {
        return;
    };
    rt.queues.nodes[node]
        .sleeping
        .fetch_sub(1, Ordering::SeqCst);
    // Counted as searching from now on, so that no more workers are woken.
    rt.queues.nodes[node]
        .searching
        .fetch_add(1, Ordering::SeqCst);
    drop(idle);
    rt.queues.workers[worker]
        .woken
        .store(true, Ordering::Release);
    if let Some(thread) = rt.queues.workers[worker].thread.get() {
        thread.unpark();
    }
}

/// Finds a task for this worker: its own newest, one from its node's inbox, or a stolen one.
pub fn find_work(w: &mut Worker) -> Option<*mut Ready> {
    let rt = w.rt;
    let node = &rt.queues.nodes[usize::from(w.node)];
    let look_in_inbox_first =
        w.counters.tasks.is_multiple_of(INBOX_EVERY) && !node.inbox.is_empty();
    if !look_in_inbox_first {
        // SAFETY: the deque is this worker's.
        if let Some(edt) = unsafe { rt.queues.workers[w.index].deque.pop() } {
            return Some(edt);
        }
    }
    rt.tasks.out_of_tasks(w);
    // Returning credits may have completed a scope and made a task ready.
    // SAFETY: the deque is this worker's.
    if let Some(edt) = take_inbox(w).or_else(|| unsafe { rt.queues.workers[w.index].deque.pop() }) {
        return Some(edt);
    }
    let nodes = rt.queues.nodes.len();
    steal(w, &rt.queues.workers_of[usize::from(w.node)], false).or_else(|| {
        match rt.queues.stealing() {
            _ if nodes == 1 => None,
            Stealing::Node => None,
            Stealing::Surplus => {
                let node = rt.queues.with_surplus(usize::from(w.node))?;
                steal_from(w, node)
            }
            Stealing::Any => {
                let (first, own) = (w.random_below(nodes), usize::from(w.node));
                (0..nodes)
                    .map(|at| (first + at) % nodes)
                    .filter(|&node| node != own)
                    .find_map(|node| steal_from(w, node))
            }
        }
    })
}

/// Steals a task from another node: of a worker's queue, or of the inbox if its workers are all busy.
fn steal_from(w: &mut Worker, node: usize) -> Option<*mut Ready> {
    let rt = w.rt;
    if let Some(edt) = steal(w, &rt.queues.workers_of[node], true) {
        return Some(edt);
    }
    let from = &rt.queues.nodes[node];
    let mut all = from.inbox.take_all();
    let first = all.next()?;
    let (mut taken, mut put_back) = (1, false);
    let keep_all = rt.queues.stealing() == Stealing::Any;
    for edt in all {
        if keep_all {
            taken += 1;
            // SAFETY: the deque is this worker's.
            unsafe { rt.queues.workers[w.index].deque.push(edt) };
        } else {
            put_back = true;
            // SAFETY: alive, and in no other queue since it was taken. In the order of arrival.
            unsafe { from.inbox.push(edt) };
        }
    }
    from.in_inbox.fetch_sub(taken, Ordering::Relaxed);
    if put_back {
        // A worker of the node may have found the inbox empty meanwhile.
        notify(rt, node as u16);
    }
    w.counters.stolen_far += 1;
    Some(first)
}

/// Takes the whole inbox: returns the oldest task and moves the rest to the own deque, where they can be stolen.
fn take_inbox(w: &mut Worker) -> Option<*mut Ready> {
    let rt = w.rt;
    let mut all = rt.queues.nodes[usize::from(w.node)].inbox.take_all();
    let first = all.next()?;
    w.counters.inbox += 1;
    let mut rest: Vec<*mut Ready> = all.collect();
    w.counters.inbox += rest.len() as u64;
    let counted = &rt.queues.nodes[usize::from(w.node)].in_inbox;
    counted.fetch_sub(1 + rest.len(), Ordering::Relaxed);
    if !rest.is_empty() {
        // The owner pops the newest: push the newest first to keep the order of arrival.
        while let Some(edt) = rest.pop() {
            // SAFETY: the deque is this worker's.
            unsafe { rt.queues.workers[w.index].deque.push(edt) };
        }
        notify(rt, w.node);
    }
    Some(first)
}

/// Steals from another worker: up to half of the queue on the own node, so that the cost is shared by several small
/// tasks; a single task from another node, because its data is there.
fn steal(w: &mut Worker, victims: &[usize], far: bool) -> Option<*mut Ready> {
    if victims.is_empty() {
        return None;
    }
    let first = w.random_below(victims.len());
    let mut stolen = std::mem::take(&mut w.stolen);
    let mut again = true;
    while again && stolen.is_empty() {
        again = false;
        for at in 0..victims.len() {
            let victim = victims[(first + at) % victims.len()];
            if victim == w.index {
                continue;
            }
            let most = if far { 1 } else { MOST_STOLEN };
            again |= !w.rt.queues.workers[victim]
                .deque
                .steal_half(&mut stolen, most);
            if !stolen.is_empty() {
                break;
            }
        }
    }
    let counter = if far {
        &mut w.counters.stolen_far
    } else {
        &mut w.counters.stolen
    };
    *counter += stolen.len() as u64;
    for &edt in &stolen {
        prefetch(edt);
    }
    let oldest = (!stolen.is_empty()).then(|| stolen.remove(0));
    if !stolen.is_empty() {
        // The owner pops the newest: push the oldest last.
        while let Some(edt) = stolen.pop() {
            // SAFETY: the deque is this worker's.
            unsafe { w.rt.queues.workers[w.index].deque.push(edt) };
        }
        notify(w.rt, w.node);
    }
    w.stolen = stolen;
    oldest
}

/// The loop, on any stack of the thread.
///
/// # Safety
/// `w` is this thread's worker and no reference to it is in use.
pub unsafe fn work(w: *mut Worker) {
    // SAFETY: as the caller promises.
    unsafe {
        let rt = (*w).rt;
        loop {
            loop {
                suspend::go_on(w, false);
                let Some(edt) = find_work(&mut *w) else {
                    break;
                };
                rt.tasks.run(w, edt);
            }
            if rt.stop.load(Ordering::SeqCst) {
                return;
            }
            if (*w).fibres.any_waits() {
                if !suspend::go_on(w, true) && !pause(w) {
                    rt.tasks.stuck(rt);
                }
                continue;
            }
            match look_or_sleep(&mut *w) {
                Some(edt) => rt.tasks.run(w, edt),
                None if rt.stop.load(Ordering::SeqCst) => return,
                None => {}
            }
        }
    }
}

/// Searches for a few rounds, then sleeps until woken. Returns a task if it found one.
fn look_or_sleep(w: &mut Worker) -> Option<*mut Ready> {
    let rt = w.rt;
    let node = &rt.queues.nodes[usize::from(w.node)];
    node.searching.fetch_add(1, Ordering::SeqCst);
    loop {
        for round in 0..ROUNDS {
            for _ in 0..(8 << round) {
                std::hint::spin_loop();
            }
            if let Some(edt) = find_work(w) {
                found(w);
                return Some(edt);
            }
        }
        // Register as sleeping, deregister as searching, and look once more.
        {
            let mut idle = rt.queues.idle.lock().expect("no panic while locked");
            idle.announce(w.index, usize::from(w.node));
            node.sleeping.fetch_add(1, Ordering::SeqCst);
            node.searching.fetch_sub(1, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        if let Some(edt) = find_work(w) {
            if withdraw(w) {
                node.searching.fetch_add(1, Ordering::SeqCst);
            }
            found(w);
            return Some(edt);
        }
        let last = {
            let mut idle = rt.queues.idle.lock().expect("no panic while locked");
            // If a task waits inside itself, its worker decides.
            idle.park(w.index, usize::from(w.node))
                && idle.all()
                && idle.no_waits()
                && nothing_left(rt)
        };
        if last {
            rt.tasks.quiescent(rt);
        }
        if rt.stop.load(Ordering::SeqCst) {
            for worker in &rt.queues.workers {
                worker.woken.store(true, Ordering::Release);
                if let Some(thread) = worker.thread.get() {
                    thread.unpark();
                }
            }
            return None;
        }
        while !rt.queues.workers[w.index]
            .woken
            .swap(false, Ordering::Acquire)
        {
            std::thread::park();
        }
        if rt.stop.load(Ordering::SeqCst) {
            return None;
        }
        // The waker has counted this worker as searching.
    }
}

/// Removes this worker from the list of sleepers. False: it is being woken, and the waker counts it as searching.
fn withdraw(w: &Worker) -> bool {
    let rt = w.rt;
    let node = usize::from(w.node);
    if !rt
        .queues
        .idle
        .lock()
        .expect("no panic while locked")
        .withdraw(w.index, node)
    {
        // The waker sets this right after it removed us from the list.
        while !rt.queues.workers[w.index]
            .woken
            .swap(false, Ordering::Acquire)
        {
            std::hint::spin_loop();
        }
        return false;
    }
    rt.queues.nodes[node]
        .sleeping
        .fetch_sub(1, Ordering::SeqCst);
    true
}

/// Stops searching because this worker has a task. If it was the last one searching and there is more work, it wakes
/// another, so that publishers need not.
fn found(w: &Worker) {
    let rt = w.rt;
    let node = &rt.queues.nodes[usize::from(w.node)];
    if node.searching.fetch_sub(1, Ordering::SeqCst) == 1 {
        let more = !node.inbox.is_empty()
            || rt.queues.workers_of[usize::from(w.node)]
                .iter()
                .any(|&other| !rt.queues.workers[other].deque.is_empty());
        if more {
            notify(rt, w.node);
        }
    }
}

/// Tasks on this worker wait inside themselves and there is nothing to run: polls the queues and the awaited events
/// until one of them has something. False: none ever will, because nothing runs.
///
/// # Safety
/// As for [`work`].
unsafe fn pause(w: *mut Worker) -> bool {
    // SAFETY: as the caller promises.
    let rt = unsafe { (*w).rt };
    // SAFETY: as above.
    rt.publish_counters(unsafe { &*w });
    let lock = || rt.queues.idle.lock().expect("no panic while locked");
    lock().begin_wait();
    let (mut confirmed, mut round) = (None, 0_u32);
    loop {
        let version = lock().version();
        // SAFETY: as above.
        if unsafe { suspend::any_ready(w) || work_in_reach(&*w) } {
            lock().end_wait();
            return true;
        }
        {
            let mut idle = lock();
            if idle.version() == version && idle.all() && nothing_left(rt) {
                if confirmed.replace(version) != Some(version) {
                    idle.confirm();
                }
                if idle.all_confirmed() {
                    return false;
                }
            }
        }
        // Short intervals at first, then yields the PU to others.
        round += 1;
        if round < 100 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}

/// Whether a queue that this worker may take from appears non-empty.
fn work_in_reach(w: &Worker) -> bool {
    let rt = w.rt;
    let on = |node: usize| {
        !rt.queues.nodes[node].inbox.is_empty()
            || rt.queues.workers_of[node]
                .iter()
                .any(|&worker| !rt.queues.workers[worker].deque.is_empty())
    };
    on(usize::from(w.node))
        || match rt.queues.stealing() {
            Stealing::Node => false,
            Stealing::Surplus => rt.queues.with_surplus(usize::from(w.node)).is_some(),
            Stealing::Any => (0..rt.queues.nodes.len()).any(on),
        }
}

fn nothing_left(rt: &Runtime) -> bool {
    rt.queues.nodes.iter().all(|node| node.inbox.is_empty())
        && rt
            .queues
            .workers
            .iter()
            .all(|worker| worker.deque.is_empty())
}

/// Pins the calling thread to the PUs of its node, if there are several nodes.
pub fn pin(rt: &Runtime, node: u16) {
    if rt.machine.bindable_nodes().is_none() {
        return;
    }
    // If refused (by a sandbox, say), the worker runs unpinned, which is slower but correct.
    let _ = affinity::set(0, &rt.machine.pus_of(usize::from(node)));
}

/// # Safety
/// `w` is this thread's worker 0 and no reference to it is in use.
pub unsafe fn run_all(w: *mut Worker) {
    // SAFETY: as the caller promises.
    let rt = unsafe { (*w).rt };
    std::thread::scope(|threads| {
        for index in 1..rt.queues.workers.len() {
            let started = std::thread::Builder::new()
                .name(format!("ocr-{index}"))
                .stack_size(8 << 20)
                .spawn_scoped(threads, move || {
                    let node = rt.queues.workers[index].node;
                    pin(rt, node);
                    let mut worker = Worker::new(rt, index, node);
                    let w: *mut Worker = &raw mut *worker;
                    set_current(w);
                    let _stack = rt.config.checked.then(Stack::install);
                    let _ = rt.queues.workers[index].thread.set(std::thread::current());
                    // SAFETY: this thread's worker.
                    unsafe { work(w) };
                    set_current(std::ptr::null_mut());
                    rt.publish_counters(&worker);
                });
            if let Err(error) = started {
                rt.report(&format!("cannot start worker {index}: {error}"));
                // With a worker missing, the run could never become quiescent.
                std::process::exit(1);
            }
        }
        pin(rt, rt.queues.workers[0].node);
        let _ = rt.queues.workers[0].thread.set(std::thread::current());
        // SAFETY: as the caller promises.
        unsafe { work(w) };
    });
}
