//! MPICH's launcher: `-hosts` and `-bind-to user:`, kernel numbers.
//!
//! One binding list serves every host: the k-th rank of a host takes its k-th entry. Hydra cannot express
//! different lists per host; the [per-rank wrapper](super::wrapper) does the binding then.

use crate::rank_map::RankMap;

/// The options; `None` if hosts need different lists.
#[must_use]
pub fn options(map: &RankMap) -> Option<Vec<String>> {
    let lists: Vec<Vec<String>> = map
        .by_host()
        .iter()
        .map(|(_, ranks)| {
            let entries = ranks.iter().map(|&rank| {
                let pus = map.places[rank as usize].distinct_pus();
                pus.iter()
                    .map(|pu| pu.os.to_string())
                    .collect::<Vec<_>>()
                    .join("+")
            });
            entries.collect()
        })
        .collect();
    let longest = lists.iter().max_by_key(|list| list.len())?;
    if lists.iter().any(|list| !longest.starts_with(list)) {
        return None;
    }
    let mut options = hosts(map);
    options.extend(["-bind-to".to_owned(), format!("user:{}", longest.join(","))]);
    Some(options)
}

/// The host of each rank, in rank order; empty on a machine that is no cluster.
#[must_use]
pub fn hosts(map: &RankMap) -> Vec<String> {
    if map.places.iter().all(|place| place.host == "localhost") {
        return Vec::new();
    }
    let mut runs: Vec<(&str, u32)> = Vec::new();
    for place in &map.places {
        match runs.last_mut() {
            Some((host, count)) if *host == place.host => *count += 1,
            _ => runs.push((&place.host, 1)),
        }
    }
    let list = runs.iter().map(|(host, count)| format!("{host}:{count}"));
    vec!["-hosts".to_owned(), list.collect::<Vec<_>>().join(",")]
}
