//! `numaloc ranks`: the rank mapping of a plan in the format of each MPI launcher.

use std::path::PathBuf;

use numaloc_mpi::export::{hydra, rankfile, slurm, wrapper};
use numaloc_mpi::one_list::{Unequal, one_list};
use numaloc_mpi::{Launcher, RankMap};
use numaloc_topology::resolve;
use serde_json::json;

use crate::error::CliError;
use crate::simulation::planned::refuse_roles;
use crate::ui::Ui;

/// Write the position of each MPI rank in a plan, in the format of a launcher
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc ranks plan.json
  numaloc ranks plan.json --for openmpi -o rankfile && mpirun --rankfile rankfile ./app
  numaloc ranks plan.json --for wrapper -o bind.sh && srun -n 16 sh bind.sh ./app
  numaloc ranks plan.json --machine cluster.toml --for slurm-hosts -o hosts")]
pub struct Args {
    /// Plan made by `numaloc plan`
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// Machine or cluster that the plan was made for
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
    /// Output format
    #[arg(long = "for", value_name = "FORM", default_value = "table")]
    form: Form,
    /// File to write [default and `-`: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// A readable table
    Table,
    /// Open MPI 4 rankfile (mpirun --rankfile FILE)
    Openmpi,
    /// Open MPI 5 and PRRTE rankfile (--map-by rankfile:file=FILE)
    Prrte,
    /// Options of MPICH's mpiexec: -hosts and -bind-to user:
    Hydra,
    /// Options of Intel MPI's mpiexec: -hosts and its pin list
    Intel,
    /// Options of srun: --distribution and --cpu-bind
    Slurm,
    /// Slurm host file (SLURM_HOSTFILE)
    SlurmHosts,
    /// A shell script to run the program through: it applies numactl and OMP_PLACES for each rank
    Wrapper,
}

impl Args {
    /// Prints or writes the rank map.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let output = self
            .output
            .as_deref()
            .map(|path| ui.output(path, self.force))
            .transpose()?;
        let plan = numaloc_formats::plan::read(&self.plan)?;
        refuse_roles(&plan, &self.plan)?;
        let machine = resolve(&self.machine)?;
        if machine.fingerprint() != plan.fingerprint {
            return Err(CliError::tool(format!(
                "plan {} was made for {} [{}], --machine is {} [{}]",
                self.plan.display(),
                plan.machine,
                plan.fingerprint,
                machine.name(),
                machine.fingerprint()
            ))
            .hint("name the plan's machine with --machine"));
        }
        let map = RankMap::from_plan(&plan, &machine).map_err(CliError::tool)?;
        let map = match self.form {
            Form::Hydra | Form::Intel | Form::Slurm => {
                let one = one_list(&map, &machine).map_err(unequal)?;
                if one != map {
                    ui.remark("PUs are renumbered by symmetries of the hosts, so that one list fits all hosts");
                }
                one
            }
            _ => map,
        };
        let no_list = || {
            CliError::tool("this launcher has no option for the plan's PUs: its list of PUs begins again at each mention of a host")
                .hint("--for wrapper writes a script that works under every launcher")
        };
        let words = |options: Vec<String>| options.join(" ") + "\n";
        let text = match self.form {
            Form::Table => table(&map),
            Form::Openmpi | Form::Prrte => rankfile::rankfile(&map),
            Form::Hydra => words(hydra::options(&map).ok_or_else(no_list)?),
            Form::Intel => words(hydra::intel_options(&map).ok_or_else(no_list)?),
            Form::Slurm if slurm::cpu_bind(&map).is_none() => return Err(no_list()),
            Form::Slurm => words(slurm::options(&map)),
            Form::SlurmHosts => slurm::hostfile(&map),
            Form::Wrapper => wrapper::script(&map),
        };
        if matches!(self.form, Form::Openmpi | Form::Prrte) {
            let launcher = if self.form == Form::Prrte {
                Launcher::Prrte
            } else {
                Launcher::OpenMpi
            };
            let file = self
                .output
                .as_ref()
                .map_or("FILE".into(), |path| path.to_string_lossy());
            ui.remark(format_args!(
                "use it with: {}",
                rankfile::options(&map, launcher, &file).join(" ")
            ));
            if map.shares_pus() {
                ui.remark(format_args!(
                    "several ranks share a PU: set {}=1, so that waiting ranks let the others run",
                    rankfile::YIELD
                ));
            }
        }
        if self.form == Form::Slurm && text.contains("--distribution=arbitrary") {
            ui.remark(
                "use it with SLURM_HOSTFILE=FILE, where FILE is written by --for slurm-hosts -o FILE",
            );
        }
        match &output {
            Some(output) => output.write(text.as_bytes())?,
            None => ui.result(|| text, || json(&map)),
        }
        Ok(0)
    }
}

/// The error if one list does not fit all hosts.
pub(super) fn unequal(why: Unequal) -> CliError {
    CliError::tool(format!(
        "this launcher has one list of PUs for all hosts: {why}"
    ))
    .hint("--for wrapper writes a script that works under every launcher")
}

fn table(map: &RankMap) -> String {
    let mut text = String::from("rank  host              PUs (L#)    PUs (P#)\n");
    for (rank, place) in map.places.iter().enumerate() {
        let pus = place.distinct_pus();
        let list = |number: fn(&numaloc_mpi::rank_map::HostPu) -> u32| {
            pus.iter()
                .map(|pu| number(pu).to_string())
                .collect::<Vec<_>>()
                .join(",")
        };
        text += &format!(
            "{rank:<5} {:<17} {:<11} {}\n",
            place.host,
            list(|pu| pu.logical),
            list(|pu| pu.os)
        );
    }
    text
}

fn json(map: &RankMap) -> serde_json::Value {
    let ranks = map.places.iter().enumerate().map(|(rank, place)| {
        let pus = place.distinct_pus();
        json!({
            "rank": rank,
            "host": place.host,
            "pus": pus.iter().map(|pu| pu.logical).collect::<Vec<_>>(),
            "os_pus": pus.iter().map(|pu| pu.os).collect::<Vec<_>>(),
        })
    });
    json!({"version": 1, "ranks": ranks.collect::<Vec<_>>()})
}
