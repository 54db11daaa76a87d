//! Statistics of a run, as one JSON object (`NUMALOC_OCR_STATS=FILE`).

use crate::worker::Counters;

/// Statistics of a run.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Sums over workers.
    pub counters: Counters,
    /// Wall time.
    pub seconds: f64,
    /// Time on the described machine, if the run was simulated.
    pub simulated_seconds: Option<f64>,
    /// Workers.
    pub workers: usize,
    /// Nodes with PUs.
    pub nodes: usize,
    /// Name of the machine.
    pub machine: String,
    /// Largest number of bytes ever used for tasks, events and so on (without contents of data blocks).
    pub object_bytes: u64,
    /// Mappings the kernel refused to bind to their node.
    pub bindings_refused: u64,
    /// Errors of the program reported in checked mode.
    pub complaints: u64,
}

impl Stats {
    /// Share of the bytes of tasks' blocks that were on another node, 0 to 1.
    #[must_use]
    pub fn remote_share(&self) -> f64 {
        let all = self.counters.local_bytes + self.counters.remote_bytes;
        if all == 0 {
            0.0
        } else {
            self.counters.remote_bytes as f64 / all as f64
        }
    }

    /// One object; field names carry their units.
    #[must_use]
    pub fn to_json(&self) -> String {
        let c = &self.counters;
        let simulated = self
            .simulated_seconds
            .map_or("null".to_owned(), |seconds| format!("{seconds:.9}"));
        let machine: String = self
            .machine
            .chars()
            .filter(|c| *c != '"' && *c != '\\' && !c.is_control())
            .collect();
        format!(
            "{{\"version\":1,\"machine\":\"{machine}\",\"placement\":\"{}\",\"nodes\":{},\"workers\":{},\
             \"seconds\":{:.9},\"simulated_seconds\":{simulated},\"tasks\":{},\"stolen\":{},\
             \"stolen_from_other_nodes\":{},\"through_inbox\":{},\"planned\":{},\"planned_no_opinion\":{},\
             \"unplanned\":{},\"hints_compared\":{},\"hints_agreeing\":{},\"local_bytes\":{},\
             \"remote_bytes\":{},\"weighted_remote_bytes\":{:.0},\"remote_share\":{:.6},\
             \"object_bytes\":{},\"bindings_refused\":{},\"complaints\":{}}}\n",
            if self.simulated_seconds.is_some() {
                "simulated"
            } else {
                "threads"
            },
            self.nodes,
            self.workers,
            self.seconds,
            c.tasks,
            c.stolen,
            c.stolen_far,
            c.inbox,
            c.planned,
            c.no_opinion,
            c.unplanned,
            c.hint_compared,
            c.hint_agrees,
            c.local_bytes,
            c.remote_bytes,
            c.weighted_remote_bytes,
            self.remote_share(),
            self.object_bytes,
            self.bindings_refused,
            self.complaints,
        )
    }
}
