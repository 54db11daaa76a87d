//! Plans by `weighted-interleave`, carried out in a guest.

use super::carried_out;

/// Judged by the accesses counted in the guest: all pages of the table are accessed equally often.
#[test]
#[ignore = "boots virtual machines: make test-ci-lab"]
fn ci_a_weighted_plan_spreads_pages_by_its_weights() {
    let shape = ["--nodes", "2", "--cpus", "4", "--memory", "256M"];
    let policies = "--threads packed --pages weighted-interleave --weights 3,1";
    let policies: Vec<&str> = policies.split(' ').collect();
    let (json, words) = carried_out(&shape, &policies);
    let rows = json["all_accesses"].as_array().unwrap();
    let on = |node: usize| {
        rows.iter()
            .map(|row| row[node].as_f64().unwrap())
            .sum::<f64>()
    };
    let share = on(0) / (on(0) + on(1));
    assert!((share - 0.75).abs() < 0.01, "{share}: {json}\n{words}");
}
