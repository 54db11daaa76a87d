//! Constants of the simulator's model that no machine's description has.

use crate::cache::{Replacement, Shape};
use crate::pages::PageCosts;

/// Constants of the model that machine files do not have. Presets, not measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Core cycles for an access served by a private cache, including the instructions around it.
    pub cycles_per_access: f64,
    /// Number of accesses a core continues with while its oldest miss is outstanding (models the reorder buffer).
    pub window_accesses: u64,
    /// Number of misses a core can have outstanding at once (line fill buffers); 1 makes every miss wait for the one
    /// before, as in a pointer chase.
    pub outstanding: usize,
    /// Number of lines of recognised streams a core can have outstanding at once (prefetching).
    pub prefetched: usize,
    /// Number of written lines a core can have on their way to memory at once (write-back buffer); an access that
    /// evicts another one waits. A preset: the 16 entries of the queue behind the second-level caches of Intel's
    /// server cores.
    pub write_backs: usize,
    /// Limit in nanoseconds by which a PU's clock may be ahead of the others; no more than the shortest latency of
    /// memory has an effect.
    pub quantum_ns: f64,
    /// Time slice of a thread while another waits for the same PU, in microseconds.
    pub time_slice_us: f64,
    /// Cost of a switch between threads, in microseconds.
    pub switch_us: f64,
    /// Mean time between disturbances of a PU whose threads the operating system places, in milliseconds.
    pub os_disturbance_ms: f64,
    /// Factor on the time of accesses served by private caches while another PU of the same core is busy.
    pub smt_slowdown: f64,
    /// Bytes of a message without data on a link.
    pub request_bytes: u64,
    /// Bytes of a message with a line, in addition to the line.
    pub header_bytes: u64,
    /// Time from the creation of a thread to its first access, in microseconds.
    pub thread_start_us: f64,
    /// Whether a line evicted from a last-level cache is also removed from the private caches below it; also set by
    /// machine files.
    pub inclusive: bool,
    /// Which line a set of a last-level cache evicts; `None`: as the machine's file says.
    pub llc_replacement: Option<Replacement>,
    /// Translations of pages that a core keeps (the second level of its TLB); `None`: translation takes no time.
    pub tlb: Option<Shape>,
    /// Costs of page faults and page moves.
    pub page_costs: PageCosts,
    /// Energy constants.
    pub energy: Energy,
}

/// Energy constants: estimates, for comparing placements on one machine, not for predicting a meter.
#[derive(Clone, Debug, PartialEq)]
pub struct Energy {
    /// Watts of a node with cores: idle cores, caches and memory. A preset: a third of a processor's 120 W.
    pub static_w: f64,
    /// Watts of a node without cores: idle memory and its controller. A preset.
    pub memory_node_w: f64,
    /// Nanojoules of a line read from or written to DRAM: 64 bytes at some 39 pJ a bit (DDR3 and DDR4 devices with
    /// their interface; Vogelsang, MICRO 2010, gives 30 to 60 pJ a bit).
    pub dram_line_nj: f64,
    /// Picojoules of a byte on a link between sockets: some 10 pJ a bit (QPI; Mahajan and others, Hot Interconnects
    /// 2010).
    pub link_byte_pj: f64,
    /// Nanojoules of an access served by a last-level cache. A preset in the range of CACTI's results for some tens of
    /// MiB.
    pub llc_access_nj: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            cycles_per_access: 1.5,
            window_accesses: 64,
            outstanding: 10,
            prefetched: 20,
            write_backs: 16,
            quantum_ns: 100.0,
            time_slice_us: 1000.0,
            switch_us: 2.0,
            os_disturbance_ms: 100.0,
            smt_slowdown: 1.6,
            request_bytes: 16,
            header_bytes: 16,
            thread_start_us: 5.0,
            inclusive: false,
            llc_replacement: None,
            tlb: None,
            page_costs: PageCosts::default(),
            energy: Energy {
                static_w: 40.0,
                memory_node_w: 10.0,
                dram_line_nj: 20.0,
                link_byte_pj: 80.0,
                llc_access_nj: 1.0,
            },
        }
    }
}
