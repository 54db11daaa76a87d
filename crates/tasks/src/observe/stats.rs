//! Statistics of a run, as one JSON object (`NUMALOC_OCR_STATS=FILE`).

/// Counters of a worker; statistics sum them over workers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Tasks run.
    pub tasks: u64,
    /// Tasks taken from another worker of the same node.
    pub stolen: u64,
    /// Tasks taken from a worker of another node.
    pub stolen_far: u64,
    /// Tasks that came through a node's inbox.
    pub inbox: u64,
    /// Tasks placed by the plan.
    pub planned: u64,
    /// Tasks whose node the plan leaves open.
    pub no_opinion: u64,
    /// Tasks not in the plan.
    pub unplanned: u64,
    /// Tasks that the plan placed on the node of their hint.
    pub hint_agrees: u64,
    /// Tasks with a hint that the plan placed.
    pub hint_compared: u64,
    /// Bytes of tasks' data blocks on the node where the task runs.
    pub local_bytes: u64,
    /// Bytes of tasks' data blocks on another node.
    pub remote_bytes: u64,
    /// Remote bytes, each weighted by its distance over the local distance.
    pub weighted_remote_bytes: f64,
}

impl Counters {
    pub(crate) fn add(&mut self, other: &Self) {
        self.tasks += other.tasks;
        self.stolen += other.stolen;
        self.stolen_far += other.stolen_far;
        self.inbox += other.inbox;
        self.planned += other.planned;
        self.no_opinion += other.no_opinion;
        self.unplanned += other.unplanned;
        self.hint_agrees += other.hint_agrees;
        self.hint_compared += other.hint_compared;
        self.local_bytes += other.local_bytes;
        self.remote_bytes += other.remote_bytes;
        self.weighted_remote_bytes += other.weighted_remote_bytes;
    }
}

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
