//! Open MPI's and PRRTE's rankfile: `rank 3=host slot=5`, logical indexes.
//!
//! A plain number counts cores, unless the launcher's options say that hardware threads are CPUs
//! (`--use-hwthread-cpus`, PRRTE `:hwtcpus`); [`options`] adds that option if and only if the machine has them.

use crate::launcher::Launcher;
use crate::rank_map::RankMap;

/// Makes waiting ranks yield their PU: if several share one, polling would keep the others from running. The launcher
/// sets it itself for more ranks than slots, but not with a rankfile.
pub const YIELD: &str = "OMPI_MCA_mpi_yield_when_idle";

/// The file's text.
#[must_use]
pub fn rankfile(map: &RankMap) -> String {
    let mut text = String::new();
    for (rank, place) in map.places.iter().enumerate() {
        let slots: Vec<u32> = place
            .distinct_pus()
            .iter()
            .map(|pu| if map.smt { pu.logical } else { pu.core })
            .collect();
        text += &format!(
            "rank {rank}={} slot={}\n",
            place.host,
            super::ranges(&slots)
        );
    }
    text
}

/// The launcher options needed with the file.
#[must_use]
pub fn options(map: &RankMap, launcher: Launcher, file: &str) -> Vec<String> {
    if launcher == Launcher::Prrte {
        let threads = if map.smt { ":hwtcpus" } else { "" };
        return vec!["--map-by".into(), format!("rankfile:file={file}{threads}")];
    }
    let mut options = vec!["--rankfile".to_owned(), file.to_owned()];
    if map.smt {
        options.push("--use-hwthread-cpus".to_owned());
    }
    options
}
