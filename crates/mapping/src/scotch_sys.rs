//! The few calls of libscotch we need, bound by hand; the only `unsafe` of this crate.
//!
//! Signatures are those of Scotch 7.0 with 64-bit numbers (`SCOTCH_Num` = `int64_t`). Every call runs in its own
//! context with one thread and a fixed seed, so results are reproducible, and calls on different threads do not share a
//! random state.

#![allow(unsafe_code)]

use std::ffi::{c_double, c_int, c_void};
use std::ptr::{null, null_mut};

/// Direct k-way multilevel mapping, Scotch's own default.
pub(crate) const DEFAULT: i64 = 0x00000;
/// Pure dual recursive bipartitioning.
pub(crate) const RECURSIVE: i64 = 0x00100;
/// Quality over speed.
#[allow(dead_code, reason = "the benchmark's best-of runs use it")]
pub(crate) const QUALITY: i64 = 0x00001;

const OPTION_DETERMINISTIC: c_int = 0;

/// Storage for any of Scotch's opaque structures; the largest of 7.0 takes 160 bytes.
#[repr(C, align(16))]
struct Opaque([u64; 64]);

impl Opaque {
    fn new() -> Box<Self> {
        Box::new(Self([0; 64]))
    }

    fn at(&mut self) -> *mut c_void {
        std::ptr::from_mut(self).cast()
    }
}

unsafe extern "C" {
    fn SCOTCH_archSizeof() -> c_int;
    fn SCOTCH_graphSizeof() -> c_int;
    fn SCOTCH_stratSizeof() -> c_int;
    fn SCOTCH_numSizeof() -> c_int;
    fn SCOTCH_archInit(arch: *mut c_void) -> c_int;
    fn SCOTCH_archExit(arch: *mut c_void);
    fn SCOTCH_archTleaf(
        arch: *mut c_void,
        levels: i64,
        sizes: *const i64,
        links: *const i64,
    ) -> c_int;
    fn SCOTCH_archSub(
        sub: *mut c_void,
        whole: *mut c_void,
        terminals: i64,
        list: *const i64,
    ) -> c_int;
    fn SCOTCH_contextInit(context: *mut c_void) -> c_int;
    fn SCOTCH_contextExit(context: *mut c_void);
    fn SCOTCH_contextOptionSetNum(context: *mut c_void, option: c_int, value: i64) -> c_int;
    fn SCOTCH_contextRandomClone(context: *mut c_void) -> c_int;
    fn SCOTCH_contextRandomSeed(context: *mut c_void, seed: i64);
    fn SCOTCH_contextThreadSpawn(context: *mut c_void, n: c_int, cores: *const c_int) -> c_int;
    fn SCOTCH_contextBindGraph(
        context: *mut c_void,
        graph: *const c_void,
        bound: *mut c_void,
    ) -> c_int;
    fn SCOTCH_graphInit(graph: *mut c_void) -> c_int;
    fn SCOTCH_graphExit(graph: *mut c_void);
    fn SCOTCH_graphBuild(
        graph: *mut c_void,
        base: i64,
        vertices: i64,
        start: *const i64,
        end: *const i64,
        load: *const i64,
        label: *const i64,
        edges: i64,
        to: *const i64,
        weight: *const i64,
    ) -> c_int;
    fn SCOTCH_stratInit(strat: *mut c_void) -> c_int;
    fn SCOTCH_stratExit(strat: *mut c_void);
    fn SCOTCH_stratGraphMapBuild(
        strat: *mut c_void,
        flags: i64,
        parts: i64,
        imbalance: c_double,
    ) -> c_int;
    fn SCOTCH_graphMap(
        graph: *mut c_void,
        arch: *const c_void,
        strat: *mut c_void,
        part: *mut i64,
    ) -> c_int;
}

/// An undirected graph with integer weights: each edge in both rows.
pub(crate) struct Graph {
    /// Where each vertex's row starts; one more at the end.
    pub start: Vec<i64>,
    /// Other ends.
    pub to: Vec<i64>,
    /// Weights, at least 1.
    pub weight: Vec<i64>,
}

/// A tree-leaf target: every object of a level has the same number of children.
pub(crate) struct Target {
    /// Children by level, root first, each at least 2 (at least one level).
    pub sizes: Vec<i64>,
    /// Cost of the links below each level; a path costs the sum over the levels it descends.
    pub links: Vec<i64>,
    /// The leaves in use, ascending; empty if all are.
    pub leaves: Vec<i64>,
}

/// Calls an exit function of Scotch on drop.
struct Guard(Box<Opaque>, unsafe extern "C" fn(*mut c_void));

impl Guard {
    fn at(&mut self) -> *mut c_void {
        self.0.at()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: made only right after the matching init succeeded, and dropped once.
        unsafe { (self.1)(self.0.at()) }
    }
}

fn init(
    call: &'static str,
    start: unsafe extern "C" fn(*mut c_void) -> c_int,
    exit: unsafe extern "C" fn(*mut c_void),
) -> Result<Guard, &'static str> {
    let mut memory = Opaque::new();
    // SAFETY: the memory is writable, aligned for any type, and larger than the structure (checked
    // by `sizes_fit` before the first call).
    if unsafe { start(memory.at()) } != 0 {
        return Err(call);
    }
    Ok(Guard(memory, exit))
}

fn sizes_fit() -> bool {
    // SAFETY: these take nothing and only return constants.
    let sizes = unsafe {
        [
            SCOTCH_archSizeof(),
            SCOTCH_graphSizeof(),
            SCOTCH_stratSizeof(),
        ]
    };
    // SAFETY: as above.
    let number = unsafe { SCOTCH_numSizeof() } as usize;
    sizes.iter().all(|&s| s as usize <= size_of::<Opaque>()) && number == size_of::<i64>()
}

/// Gives an initialised context a random state of its own; one thread, no binding.
fn set_up(context: &mut Guard, seed: i64) -> Result<(), &'static str> {
    // SAFETY: the context is initialised.
    unsafe {
        if SCOTCH_contextOptionSetNum(context.at(), OPTION_DETERMINISTIC, 1) != 0 {
            return Err("SCOTCH_contextOptionSetNum");
        }
        if SCOTCH_contextRandomClone(context.at()) != 0 {
            return Err("SCOTCH_contextRandomClone");
        }
        SCOTCH_contextRandomSeed(context.at(), seed);
        if SCOTCH_contextThreadSpawn(context.at(), 1, null()) != 0 {
            return Err("SCOTCH_contextThreadSpawn");
        }
    }
    Ok(())
}

/// Makes an initialised graph refer to the arrays of `graph`, which must outlive it. Their lengths fit (see [`map`]).
fn build(plain: &mut Guard, graph: &Graph) -> Result<(), &'static str> {
    // SAFETY: the arrays have the lengths stated, and the caller keeps them; null for end, load and label is Scotch's
    // way to say "compact, all 1, none".
    let failed = unsafe {
        SCOTCH_graphBuild(
            plain.at(),
            0,
            graph.start.len() as i64 - 1,
            graph.start.as_ptr(),
            null(),
            null(),
            null(),
            graph.to.len() as i64,
            graph.to.as_ptr(),
            if graph.weight.is_empty() {
                null_mut()
            } else {
                graph.weight.as_ptr()
            },
        )
    };
    if failed == 0 {
        Ok(())
    } else {
        Err("SCOTCH_graphBuild")
    }
}

/// Maps a graph onto a target; returns each vertex's position among the target's leaves.
///
/// # Errors
/// The name of the call that failed.
pub(crate) fn map(
    graph: &Graph,
    target: &Target,
    strategy: i64,
    imbalance: f64,
    seed: i64,
) -> Result<Vec<i64>, &'static str> {
    let vertices = graph.start.len() - 1;
    assert_eq!(
        graph.start[vertices] as usize,
        graph.to.len(),
        "rows cover the edges"
    );
    assert_eq!(graph.to.len(), graph.weight.len(), "one weight an edge");
    assert_eq!(
        target.sizes.len(),
        target.links.len(),
        "one link cost a level"
    );
    if !sizes_fit() {
        return Err("SCOTCH_numSizeof (the library is not the 64-bit one)");
    }
    let leaves: i64 = target.sizes.iter().product();
    let parts = if target.leaves.is_empty() {
        leaves
    } else {
        target.leaves.len() as i64
    };

    let mut context = init("SCOTCH_contextInit", SCOTCH_contextInit, SCOTCH_contextExit)?;
    set_up(&mut context, seed)?;

    let mut whole = init("SCOTCH_archInit", SCOTCH_archInit, SCOTCH_archExit)?;
    // SAFETY: both arrays have `levels` values (asserted above); Scotch copies them.
    let failed = unsafe {
        SCOTCH_archTleaf(
            whole.at(),
            target.sizes.len() as i64,
            target.sizes.as_ptr(),
            target.links.as_ptr(),
        )
    };
    if failed != 0 {
        return Err("SCOTCH_archTleaf");
    }
    // Declared after `whole`, so dropped before it: a sub-architecture refers to its parent.
    let mut sub = None;
    if !target.leaves.is_empty() {
        let mut part = init("SCOTCH_archInit", SCOTCH_archInit, SCOTCH_archExit)?;
        // SAFETY: the list has as many values as stated; `whole` outlives the sub-architecture.
        let failed =
            unsafe { SCOTCH_archSub(part.at(), whole.at(), parts, target.leaves.as_ptr()) };
        if failed != 0 {
            return Err("SCOTCH_archSub");
        }
        sub = Some(part);
    }

    let mut plain = init("SCOTCH_graphInit", SCOTCH_graphInit, SCOTCH_graphExit)?;
    build(&mut plain, graph)?;
    let mut bound = init("SCOTCH_graphInit", SCOTCH_graphInit, SCOTCH_graphExit)?;
    // SAFETY: context and graph are initialised and outlive the bound graph.
    if unsafe { SCOTCH_contextBindGraph(context.at(), plain.at(), bound.at()) } != 0 {
        return Err("SCOTCH_contextBindGraph");
    }
    let mut strat = init("SCOTCH_stratInit", SCOTCH_stratInit, SCOTCH_stratExit)?;
    // SAFETY: the strategy is initialised.
    if unsafe { SCOTCH_stratGraphMapBuild(strat.at(), strategy, parts, imbalance) } != 0 {
        return Err("SCOTCH_stratGraphMapBuild");
    }
    let mut part = vec![0; vertices];
    let arch = sub.as_mut().map_or(whole.at(), |sub| sub.at());
    // SAFETY: all four are initialised; the answer has room for every vertex.
    if unsafe { SCOTCH_graphMap(bound.at(), arch, strat.at(), part.as_mut_ptr()) } != 0 {
        return Err("SCOTCH_graphMap");
    }
    if part.iter().any(|p| !(0..parts).contains(p)) {
        return Err("SCOTCH_graphMap (a vertex outside the target)");
    }
    Ok(part)
}
