//! `numaloc compare`: what plans are worth on this machine, measured.

use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::error::CliError;
use crate::ui::Ui;

mod statistics;
use statistics::{Sample, differ};

const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const ENERGY: &str = "/sys/class/powercap/intel-rapl:0/energy_uj";

/// Run a program under several plans and the system's defaults, interleaved at random, and compare
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc compare --plan deloc.json --plan joint.json --runs 10 -- ./app --size 1000

Each round runs every variant once, in an order drawn from the seed. Times are wall times of the whole
process, for plans those of `numaloc run` around it. AutoNUMA is a variant where the machine has several
nodes and the sysctl may be written; it is set back whatever happens.")]
pub struct Args {
    /// A plan made by `numaloc plan`; give one per variant
    #[arg(long = "plan", value_name = "FILE", required = true)]
    plans: Vec<PathBuf>,
    /// Runs of each variant
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..))]
    runs: u32,
    /// Seed of the order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// One way to run the program.
struct Variant {
    name: String,
    plan: Option<PathBuf>,
    /// What the kernel's NUMA balancing must be set to, where that is ours to say.
    balancing: Option<&'static str>,
    seconds: Sample,
    joules: Sample,
}

impl Args {
    /// Runs and compares.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        for plan in &self.plans {
            numaloc_formats::plan::read(plan)?;
        }
        let nodes = numaloc_topology::from_this_machine()?.nodes().len();
        let (guard, why_not) = match Balancing::take(nodes) {
            Ok(guard) => (Some(guard), None),
            Err(why) => (None, Some(why)),
        };
        let mut variants = self.variants(guard.is_some());
        let mut draw = self.seed;
        for round in 0..self.runs {
            let mut order: Vec<usize> = (0..variants.len()).collect();
            for last in (1..order.len()).rev() {
                // A linear congruential step (Knuth's MMIX constants), upper bits used.
                draw = draw
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                order.swap(last, (draw >> 33) as usize % (last + 1));
            }
            for at in order {
                if ui.progress() {
                    eprint!(
                        "\rround {} of {}: {:<40}",
                        round + 1,
                        self.runs,
                        variants[at].name
                    );
                }
                self.measure(&mut variants[at])?;
            }
        }
        if ui.progress() {
            eprintln!();
        }
        drop(guard);
        ui.result(
            || text(&variants, why_not.as_deref()),
            || as_json(&variants, why_not.as_deref()),
        );
        Ok(0)
    }

    fn variants(&self, balancing: bool) -> Vec<Variant> {
        let variant = |name: String, plan: Option<&PathBuf>, on: &'static str| Variant {
            name,
            plan: plan.cloned(),
            balancing: balancing.then_some(on),
            seconds: Sample::default(),
            joules: Sample::default(),
        };
        let mut variants = vec![variant("os-default".to_owned(), None, "0")];
        if balancing {
            variants.push(variant("autonuma".to_owned(), None, "1"));
        }
        for plan in &self.plans {
            variants.push(variant(plan.display().to_string(), Some(plan), "0"));
        }
        variants
    }

    fn measure(&self, variant: &mut Variant) -> Result<(), CliError> {
        if let Some(value) = variant.balancing {
            std::fs::write(BALANCING, value)
                .map_err(|error| CliError::tool(format!("cannot write {BALANCING}: {error}")))?;
        }
        let mut command = match &variant.plan {
            None => Command::new(&self.command[0]),
            Some(plan) => {
                let own = std::env::current_exe().map_err(CliError::tool)?;
                let mut command = Command::new(own);
                command
                    .args(["--quiet", "run", "--plan"])
                    .arg(plan)
                    .arg("--");
                command.arg(&self.command[0]);
                command
            }
        };
        command
            .args(&self.command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let before = energy();
        let start = Instant::now();
        let status = command.status().map_err(|error| {
            CliError::tool(format!("cannot run {}: {error}", self.command[0].display()))
        })?;
        let seconds = start.elapsed().as_secs_f64();
        if !status.success() {
            return Err(CliError::tool(format!(
                "{} under {} ended with {status}",
                self.command[0].display(),
                variant.name
            ))
            .expected("a program that succeeds, so that times can be compared"));
        }
        variant.seconds.push(seconds);
        if let (Some(before), Some(after)) = (before, energy())
            && after >= before
        {
            variant.joules.push((after - before) as f64 * 1e-6);
        }
        Ok(())
    }
}

/// Microjoules of package 0 so far.
fn energy() -> Option<u64> {
    std::fs::read_to_string(ENERGY).ok()?.trim().parse().ok()
}

/// The kernel's NUMA balancing, ours until dropped. A helper process sets it back when our end of its
/// pipe closes, so even SIGKILL of this process leaves the machine as it was.
struct Balancing(Child);

impl Balancing {
    fn take(nodes: usize) -> Result<Self, String> {
        if nodes < 2 {
            return Err("this machine has one NUMA node".to_owned());
        }
        let old = std::fs::read_to_string(BALANCING).map_err(|e| format!("{BALANCING}: {e}"))?;
        std::fs::write(BALANCING, old.trim()).map_err(|e| format!("{BALANCING}: {e}"))?;
        let script = "trap '' INT TERM HUP QUIT; cat >/dev/null; echo \"$1\" >\"$2\"";
        let helper = std::os::unix::process::CommandExt::process_group(
            Command::new("sh").args(["-c", script, "sh", old.trim(), BALANCING]),
            0,
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("sh: {e}"))?;
        Ok(Self(helper))
    }
}

impl Drop for Balancing {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn counters() -> &'static str {
    if Path::new("/sys/bus/event_source/devices/cpu").exists() {
        "not read by this release; use `perf stat -e LLC-load-misses,node-load-misses` around a run"
    } else {
        "this machine offers no hardware events"
    }
}

fn energy_missing() -> String {
    match std::fs::read_to_string(ENERGY) {
        Ok(_) => "the counter wrapped around".to_owned(),
        Err(error) => format!("{ENERGY}: {error}"),
    }
}

fn text(variants: &[Variant], no_balancing: Option<&str>) -> String {
    let base = &variants[0].seconds;
    let mut out = format!(
        "{:<28} {:>10} {:>12} {:>9}  {:<16} {:>10}\n",
        "variant", "mean", "95 % CI +-", "speed-up", "against default", "energy"
    );
    for (at, variant) in variants.iter().enumerate() {
        let verdict = match at {
            0 => "-",
            _ if differ(base, &variant.seconds) => "significant",
            _ => "not significant",
        };
        let joules = match variant.joules.len() {
            0 => "n/a".to_owned(),
            _ => format!("{:.2} J", variant.joules.mean()),
        };
        out += &format!(
            "{:<28} {:>8.4} s {:>10.4} s {:>8.3}x  {verdict:<16} {joules:>10}\n",
            variant.name,
            variant.seconds.mean(),
            variant.seconds.half_width(),
            base.mean() / variant.seconds.mean(),
        );
    }
    if let Some(why) = no_balancing {
        out += &format!("autonuma: n/a ({why})\n");
    }
    if variants.iter().all(|variant| variant.joules.len() == 0) {
        out += &format!("energy: n/a ({})\n", energy_missing());
    }
    out += &format!("LLC misses, remote DRAM: n/a ({})\n", counters());
    out
}

fn as_json(variants: &[Variant], no_balancing: Option<&str>) -> Value {
    let base = &variants[0].seconds;
    let rows: Vec<Value> = variants
        .iter()
        .enumerate()
        .map(|(at, variant)| {
            let energy = (variant.joules.len() > 0).then(|| variant.joules.mean());
            json!({
                "variant": variant.name,
                "runs": variant.seconds.len(),
                "seconds": variant.seconds.values(),
                "mean_s": variant.seconds.mean(),
                "ci95_half_width_s": variant.seconds.half_width(),
                "speed_up": base.mean() / variant.seconds.mean(),
                "significant": at > 0 && differ(base, &variant.seconds),
                "energy_j": energy,
                "remote_share": Value::Null,
            })
        })
        .collect();
    json!({
        "version": 1,
        "variants": rows,
        "not_available": {
            "autonuma": no_balancing,
            "counters": counters(),
        },
    })
}
