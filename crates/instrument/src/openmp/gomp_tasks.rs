//! libgomp's entry points for tasks.
//!
//! libgomp copies a task's data and passes the copy to the task's function. We pass it a [`Block`] instead: our
//! [`Task`] first, then the program's data; [`run`] calls the program's function with the latter.

use std::alloc::Layout;
use std::ffi::{c_int, c_long, c_uint, c_ulong, c_ulonglong, c_void};
use std::mem::MaybeUninit;

use crate::openmp::gomp::Body;
use crate::openmp::sharing::hands_out;
use crate::openmp::tasks::{self, Dependence, Task};
use crate::openmp::team;
use crate::real::real;

/// Copies a task's data if a bitwise copy is not enough.
type CopyData = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);

// Flags of GOMP_task and GOMP_taskloop used here (libgomp's ABI, `gomp-constants.h`).
const DEPEND: c_uint = 1 << 3;
const NOGROUP: c_uint = 1 << 11;
const DETACH: c_uint = 1 << 13;

/// A task's data as libgomp sees it. libgomp writes the bounds of a loop's part to the first two words of its copy,
/// the event of a detached task to the first, and reads the third for task reductions: the program's data has the same
/// words.
#[derive(Clone, Copy)]
#[repr(C)]
struct Block {
    words: [u64; 3],
    body: Body,
    copy: Option<CopyData>,
    task: Task,
    given: Given,
    /// Offset in bytes of the program's data.
    offset: usize,
    /// Address at which this Block was made, and the program's own data.
    origin: *const c_void,
    data: *mut c_void,
}

/// What libgomp writes at the beginning of a task's data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Given {
    Nothing,
    Bounds,
    Event,
}

/// Runs a task, or a part of a task loop.
unsafe extern "C-unwind" fn run(argument: *mut c_void) {
    // SAFETY: `create` made a Block, and libgomp a copy of it for this task alone.
    let block = unsafe { &mut *argument.cast::<Block>() };
    let (body, offset, words) = (block.body, block.offset, block.words);
    // SAFETY: the program's data follows in the same memory.
    let data = unsafe { argument.byte_add(offset) };
    match block.given {
        Given::Nothing => {}
        // SAFETY: the data of a loop's task begins with its bounds.
        Given::Bounds => unsafe { data.cast::<[u64; 2]>().write([words[0], words[1]]) },
        Given::Event => {
            // SAFETY: the data of a detached task begins with its event.
            unsafe { data.cast::<u64>().write(words[0]) };
            let task = &block.task;
            task.detach(words[0] as usize, task.dependences());
        }
    }
    // SAFETY: the program's own function, with what it expects.
    block.task.run(|| unsafe { body(data) });
}

/// Copies a Block whose data the program must copy itself.
unsafe extern "C-unwind" fn copy(to: *mut c_void, from: *mut c_void) {
    // SAFETY: libgomp passes what `create` gave it, and memory of the requested size and alignment. libomp in its
    // place passes a bitwise copy, possibly when the program's own data is gone, and has already written the bounds,
    // which must be kept.
    unsafe {
        let (block, copied) = (from.cast::<Block>().read(), to.cast::<Block>());
        let bounds = copied.cast::<MaybeUninit<[u64; 2]>>().read();
        copied.write(block);
        if block.given == Given::Bounds {
            copied.cast::<MaybeUninit<[u64; 2]>>().write(bounds);
        }
        let data = match block.origin == from {
            true => block.data,
            false => from.byte_add(block.offset),
        };
        if let Some(copy) = block.copy {
            copy(to.byte_add(block.offset), data);
        }
    }
}

/// A task as requested by the program.
struct Request {
    body: Body,
    data: *mut c_void,
    copy: Option<CopyData>,
    size: c_long,
    align: c_long,
    given: Given,
}

impl Request {
    /// Calls `create` with what libgomp gets instead: data, function to copy it, size, alignment.
    ///
    /// # Safety
    /// As libgomp's.
    unsafe fn with(
        self,
        task: Task,
        create: impl FnOnce(*mut c_void, Option<CopyData>, c_long, c_long),
    ) {
        let align = (self.align.max(1) as usize).max(align_of::<Block>());
        let size = self.size.max(0) as usize;
        let offset = size_of::<Block>().next_multiple_of(align);
        let Ok(layout) = Layout::from_size_align(offset + size, align) else {
            std::process::abort();
        };
        let mut near = Near([0; NEAR]);
        let far = layout.size() > NEAR || layout.align() > align_of::<Near>();
        let at: *mut u8 = if far {
            // SAFETY: the size is not 0.
            unsafe { std::alloc::alloc(layout) }
        } else {
            near.0.as_mut_ptr()
        };
        if at.is_null() {
            std::process::abort();
        }
        // SAFETY: `at` has `layout`, room for the Block and the data after it; the data is the caller's and has this
        // size. Where a task loop has three words or more, the third is for libgomp to read.
        unsafe {
            let mut words = [0; 3];
            if self.given == Given::Bounds && size >= size_of_val(&words) {
                words = self.data.cast::<[u64; 3]>().read_unaligned();
            }
            at.cast::<Block>().write(Block {
                words,
                body: self.body,
                copy: self.copy,
                task,
                given: self.given,
                offset,
                origin: at.cast(),
                data: self.data,
            });
            if size > 0 {
                at.add(offset)
                    .copy_from_nonoverlapping(self.data.cast(), size);
            }
        }
        let copies = self.copy.map(|_| copy as CopyData);
        create(at.cast(), copies, layout.size() as c_long, align as c_long);
        if far {
            // SAFETY: allocated above; libgomp has copied it, or run the task.
            unsafe { std::alloc::dealloc(at, layout) };
        }
    }
}

/// Blocks up to this size are on the stack.
const NEAR: usize = 512;
#[repr(C, align(64))]
struct Near([u8; NEAR]);

/// Reads libgomp's list of a task's dependences.
///
/// # Safety
/// The list was made by the compiler.
unsafe fn dependences(list: *const *mut c_void) -> Vec<Dependence> {
    // SAFETY: the first word is the number of addresses and the second how many of them are written. If the first is
    // 0, four words follow (all, out, mutexinoutset, in), then the addresses, then objects that each hold an address
    // and a kind.
    let word = |index: usize| unsafe { *list.add(index) } as u64;
    if word(0) != 0 {
        let (all, out) = (word(0) as usize, word(1) as usize);
        return (0..all).map(|i| (word(2 + i), i < out)).collect();
    }
    let [all, out, mutex, read] = [1, 2, 3, 4].map(|index| word(index) as usize);
    let plain = out + mutex + read;
    let named = (0..plain.min(all)).map(|i| (word(5 + i), i < out + mutex));
    let objects = (plain..all).map(|i| {
        const READS: u64 = 1;
        let object = word(5 + i) as *const u64;
        // SAFETY: a depend object: address, kind.
        let (address, kind) = unsafe { (*object, *object.add(1)) };
        (address, kind != READS)
    });
    named.chain(objects).collect()
}

/// Creates a task.
///
/// # Safety
/// As libgomp's.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C-unwind" fn GOMP_task(
    body: Body,
    data: *mut c_void,
    copy: Option<CopyData>,
    size: c_long,
    align: c_long,
    deferred: bool,
    flags: c_uint,
    depend: *mut *mut c_void,
    priority: c_int,
    detach: *mut c_void,
) {
    hands_out!(GOMP_task);
    let real = real!(GOMP_task: fn(Body, *mut c_void, Option<CopyData>, c_long, c_long, bool, c_uint, *mut *mut c_void, c_int, *mut c_void));
    let detaches = flags & DETACH != 0;
    let mut task = Task::new();
    let mut depends = Vec::new();
    if flags & DEPEND != 0 {
        // SAFETY: with this flag there is a list.
        depends = unsafe { dependences(depend) };
        task.depend(depends.clone());
    }
    task.ready();
    let request = Request {
        body,
        data,
        copy,
        size,
        align,
        given: if detaches && !data.is_null() {
            Given::Event
        } else {
            Given::Nothing
        },
    };
    // SAFETY: guaranteed by the caller, with our function and data in place of the program's.
    unsafe {
        request.with(task, |data, copy, size, align| {
            real(
                run, data, copy, size, align, deferred, flags, depend, priority, detach,
            );
        });
        // The body may have done this already, or may not have begun.
        if detaches {
            task.detach(*detach.cast::<usize>(), &depends);
        }
    }
}

macro_rules! loops {
    ($($name:ident: $bound:ty;)*) => {$(
        /// Creates the tasks of a loop, and waits for them unless flags forbid it.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C-unwind" fn $name(
            body: Body,
            data: *mut c_void,
            copy: Option<CopyData>,
            size: c_long,
            align: c_long,
            flags: c_uint,
            tasks: c_ulong,
            priority: c_int,
            start: $bound,
            end: $bound,
            step: $bound,
        ) {
            hands_out!($name);
            let real = real!($name: fn(Body, *mut c_void, Option<CopyData>, c_long, c_long, c_uint, c_ulong, c_int, $bound, $bound, $bound));
            let waits = flags & NOGROUP == 0;
            if waits {
                team::begin_group();
            }
            let task = Task::new();
            task.ready();
            let request = Request {
                body,
                data,
                copy,
                size,
                align,
                given: Given::Bounds,
            };
            // SAFETY: guaranteed by the caller, with our function and data in place of the program's.
            unsafe {
                request.with(task, |data, copy, size, align| {
                    real(run, data, copy, size, align, flags, tasks, priority, start, end, step);
                });
            }
            if waits {
                team::end_group();
            }
        }
    )*};
}

loops! {
    GOMP_taskloop: c_long;
    GOMP_taskloop_ull: c_ulonglong;
}

macro_rules! wrap {
    ($($(#[$about:meta])* $name:ident, then $then:path;)*) => {$(
        $(#[$about])*
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name() {
            let real = real!($name: fn());
            // SAFETY: guaranteed by the caller.
            unsafe { real() };
            $then();
        }
    )*};
}

wrap! {
    /// Waits for the tasks that the calling task has created.
    GOMP_taskwait, then tasks::wait_for_children;
    /// Begins a taskgroup.
    GOMP_taskgroup_start, then team::begin_group;
    /// Waits for all tasks that were created in the taskgroup.
    GOMP_taskgroup_end, then team::end_group;
}

/// Waits for the child tasks that use the same data.
///
/// # Safety
/// As libgomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_taskwait_depend(depend: *mut *mut c_void) {
    let real = real!(GOMP_taskwait_depend: fn(*mut *mut c_void));
    // SAFETY: guaranteed by the caller.
    unsafe { real(depend) };
    // SAFETY: the list was made by the compiler.
    tasks::wait_for(&unsafe { dependences(depend) });
}
