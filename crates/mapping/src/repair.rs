//! Makes a mapping respect capacities, for policies whose own balance is only a tolerance.

use crate::input::MapInput;

/// Moves tasks off overloaded PUs, each to the cheapest seat (ties: lowest PU), until no PU exceeds its capacity. From
/// an overloaded PU, the tasks that communicate least with the others on it are moved. Returns the number of moves.
/// O(moved x P x degree).
///
/// # Panics
/// If the capacities are fewer than the tasks.
pub(crate) fn repair(input: &MapInput, capacity: &[u32], pu: &mut [usize]) -> usize {
    let mut tasks_on: Vec<Vec<usize>> = vec![Vec::new(); capacity.len()];
    for (task, &pu) in pu.iter().enumerate() {
        tasks_on[pu].push(task);
    }
    let mut homeless = Vec::new();
    for at in 0..capacity.len() {
        while tasks_on[at].len() > capacity[at] as usize {
            let here = |task: usize| -> f64 {
                let on = |&(other, _): &(usize, f64)| pu[other] == at;
                input.graph().row(task).filter(on).map(|(_, w)| w).sum()
            };
            let loosest = (0..tasks_on[at].len())
                .min_by(|&a, &b| here(tasks_on[at][a]).total_cmp(&here(tasks_on[at][b])))
                .expect("an overloaded PU has tasks");
            homeless.push(tasks_on[at].remove(loosest));
        }
    }
    for &task in &homeless {
        let cost = |seat: usize| -> f64 {
            let far = |(other, w): (usize, f64)| w * input.distances().mean(seat, pu[other]);
            input.graph().row(task).map(far).sum()
        };
        let cheapest = (0..capacity.len())
            .filter(|&seat| tasks_on[seat].len() < capacity[seat] as usize)
            .map(|seat| (cost(seat), seat))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .expect("seats for all tasks");
        tasks_on[cheapest.1].push(task);
        pu[task] = cheapest.1;
    }
    homeless.len()
}
