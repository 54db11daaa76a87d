//! A shell script placed before the program (`mpirun ... ./bind.sh ./app`): it binds its rank with
//! `numactl` and, for hybrid ranks, sets the place of each OpenMP thread. Works under every launcher. The number of
//! threads per rank is left to the user (`OMP_NUM_THREADS`): a plan has a place for every thread of the recording, and
//! these need not have existed at the same time.

use std::fmt::Write;

use crate::rank_map::{RankMap, RankPlace};

/// `OMP_PLACES` of a rank: one place per planned thread, kernel numbers.
#[must_use]
pub fn omp_places(place: &RankPlace) -> String {
    let places = place.pus.iter().map(|pu| format!("{{{}}}", pu.os));
    places.collect::<Vec<_>>().join(",")
}

/// The script's text.
#[must_use]
pub fn script(map: &RankMap) -> String {
    let mut text = String::from(
        "#!/bin/sh\n\
         # Binds this MPI rank to its planned PUs, then becomes the program: bind.sh PROGRAM [ARGUMENT]...\n\
         rank=${PMIX_RANK:-${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$SLURM_PROCID}}}\n\
         case $rank in\n",
    );
    for (rank, place) in map.places.iter().enumerate() {
        let pus: Vec<u32> = place.distinct_pus().iter().map(|pu| pu.os).collect();
        write!(text, "{rank}) cpus={}", super::ranges(&sorted(pus))).expect("a string grows");
        if place.pus.len() > 1 {
            write!(
                text,
                " OMP_PROC_BIND=true OMP_PLACES='{}'",
                omp_places(place)
            )
            .expect("a string grows");
        }
        text.push_str(" ;;\n");
    }
    text.push_str(
        "*) echo \"bind.sh: rank '$rank' is not in the plan, left unbound\" >&2; exec \"$@\" ;;\n\
         esac\n",
    );
    if map.is_hybrid() {
        text.push_str("export OMP_PROC_BIND OMP_PLACES\n");
    }
    text.push_str("exec numactl --physcpubind=\"$cpus\" --localalloc -- \"$@\"\n");
    text
}

fn sorted(mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_unstable();
    numbers
}
