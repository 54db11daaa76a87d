//! Slurm: a host per task (`SLURM_HOSTFILE`, `--distribution=arbitrary`) and `--cpu-bind`, kernel numbers.
//!
//! Slurm gives every node the same list, starts again at its front for each node, and honours it only
//! if the step owns all CPUs of the node. If nodes need different lists, tasks are left unbound
//! (`--cpu-bind=none`) and the [per-rank wrapper](super::wrapper) does the binding.

use crate::rank_map::RankMap;

/// The text of `SLURM_HOSTFILE`: the hosts of tasks 0, 1, ..., one per line.
#[must_use]
pub fn hostfile(map: &RankMap) -> String {
    map.places
        .iter()
        .map(|place| format!("{}\n", place.host))
        .collect()
}

/// The `--cpu-bind` value; `None` if nodes need different lists.
#[must_use]
pub fn cpu_bind(map: &RankMap) -> Option<String> {
    let hybrid = map
        .places
        .iter()
        .any(|place| place.distinct_pus().len() > 1);
    let lists: Vec<Vec<String>> = map
        .by_host()
        .iter()
        .map(|(_, ranks)| {
            let entries = ranks.iter().map(|&rank| {
                let pus = map.places[rank as usize].distinct_pus();
                if hybrid {
                    mask(pus.iter().map(|pu| pu.os))
                } else {
                    pus[0].os.to_string()
                }
            });
            entries.collect()
        })
        .collect();
    let longest = lists.iter().max_by_key(|list| list.len())?;
    if lists.iter().any(|list| !longest.starts_with(list)) {
        return None;
    }
    Some(format!(
        "{}:{}",
        if hybrid { "mask_cpu" } else { "map_cpu" },
        longest.join(",")
    ))
}

/// Bits as `0x...` without leading zeros.
pub(super) fn mask(cpus: impl Iterator<Item = u32>) -> String {
    let mut digits: Vec<u8> = vec![0];
    for cpu in cpus {
        let at = cpu as usize / 4;
        if digits.len() <= at {
            digits.resize(at + 1, 0);
        }
        digits[at] |= 1 << (cpu % 4);
    }
    let text: String = digits
        .iter()
        .rev()
        .map(|&d| char::from_digit(u32::from(d), 16).expect("four bits"))
        .collect();
    format!("0x{text}")
}

/// The options of `srun` that are needed besides `SLURM_HOSTFILE`.
#[must_use]
pub fn options(map: &RankMap) -> Vec<String> {
    let mut options = vec![format!("--ntasks={}", map.places.len())];
    if map.places.iter().any(|place| place.host != "localhost") {
        options.push("--distribution=arbitrary".to_owned());
    }
    options.push(format!(
        "--cpu-bind={}",
        cpu_bind(map).unwrap_or_else(|| "none".to_owned())
    ));
    options
}
