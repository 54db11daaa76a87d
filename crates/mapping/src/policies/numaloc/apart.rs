//! Tasks that exchange nothing get a core of their own while there is one: J does not change, and a task that shares a
//! core is slower.

use numaloc_model::{LogicalPu, Mapping};

use crate::input::MapInput;
use crate::slots::{Slots, Spread};

/// Moves each task without partners from a shared core to an empty one, on its own node first (ties: the lowest core).
/// With a load vector tasks stay on their node, whose load was levelled. O(tasks + PUs) per moved task.
pub(super) fn silent_tasks_apart(input: &MapInput, mapping: &mut Mapping) {
    let topology = input.topology();
    let core = |pu: LogicalPu| topology.pus()[pu.index()].core;
    let slots = Slots::new(topology, input.tasks(), input.spread());
    if input.spread() == Spread::Compact {
        return;
    }
    let mut tasks_on = vec![0_u32; topology.objects().len()];
    for &pu in &mapping.pu {
        tasks_on[core(pu) as usize] += 1;
    }
    for task in 0..mapping.pu.len() {
        let at = mapping.pu[task];
        let has_partners = input.graph().volume(task) > 0.0;
        if has_partners || tasks_on[core(at) as usize] < 2 {
            continue;
        }
        let home = topology.node_of(at);
        let empty = (0..topology.pus().len())
            .map(LogicalPu::from_index)
            .filter(|&pu| slots.capacity()[pu.index()] > 0 && tasks_on[core(pu) as usize] == 0);
        let free = |pu: &LogicalPu| topology.node_of(*pu) == home;
        let found = empty.clone().find(free).or_else(|| {
            let mut elsewhere = empty;
            elsewhere.next().filter(|_| input.load().is_none())
        });
        if let Some(pu) = found {
            tasks_on[core(at) as usize] -= 1;
            tasks_on[core(pu) as usize] += 1;
            mapping.pu[task] = pu;
        }
    }
}
