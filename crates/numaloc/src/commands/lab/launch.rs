//! Collects what a lab run needs from this machine: the plugin, the program's path, files, environment, launchers.

use std::path::{Path, PathBuf};

use numaloc_lab::{GuestFile, Job};
use numaloc_launch::{OWN_FAILURE, Part, sibling};
use numaloc_model::Plan;

use crate::error::CliError;

const PLUGIN: &str = "libnumaloc_lab_plugin.so";
/// Environment variable with the path of the plugin.
const CHOSEN: &str = "NUMALOC_LAB_PLUGIN";
/// Path of the plan in the guest.
const PLAN: &str = "/numaloc-lab/plan.json";

/// The counting plugin: `$NUMALOC_LAB_PLUGIN`, or the one that belongs to this program.
pub fn plugin() -> Result<PathBuf, CliError> {
    if let Some(path) = std::env::var_os(CHOSEN) {
        return Ok(path.into());
    }
    sibling(PLUGIN, Part::Library, None).map_err(|why| {
        CliError::tool(format!("cannot count accesses: {why}"))
            .hint(why.hint(CHOSEN))
            .status(OWN_FAILURE)
    })
}

fn own_executable() -> Result<PathBuf, CliError> {
    numaloc_launch::own_file().map_err(|error| {
        CliError::tool(format!("cannot find our own executable: {error}")).status(OWN_FAILURE)
    })
}

/// A program by path or, without a slash, by `PATH`.
pub fn program(name: &str) -> Result<PathBuf, CliError> {
    let cannot = |why: &dyn std::fmt::Display| CliError::tool(format!("cannot run {name}: {why}"));
    let found = numaloc_launch::find(name.as_ref())
        .map_err(|why| cannot(&why).status(if why.is_missing() { 127 } else { 126 }))?;
    std::path::absolute(found).map_err(|why| cannot(&why).status(126))
}

/// The program's environment: our variables for OpenMP and library look-up, then those of `--env`.
///
/// The default is passive waiting: vCPUs share few host cores, and threads that spin at barriers would starve the
/// threads they wait for.
pub fn environment(asked: &[String]) -> Result<Vec<(String, String)>, CliError> {
    let passed = ["OMP_", "GOMP_", "KMP_"];
    let mut list = vec![
        ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
        ("HOME".to_owned(), "/".to_owned()),
        ("OMP_WAIT_POLICY".to_owned(), "passive".to_owned()),
    ];
    let mut set = |name: String, value: String| {
        list.retain(|(known, _)| *known != name);
        list.push((name, value));
    };
    for (name, value) in std::env::vars() {
        if name == "LD_LIBRARY_PATH" || passed.iter().any(|prefix| name.starts_with(prefix)) {
            set(name, value);
        }
    }
    for given in asked {
        match given.split_once('=') {
            Some((name, value)) => set(name.to_owned(), value.to_owned()),
            None => {
                let value = std::env::var(given).map_err(|_| {
                    CliError::usage(format!("--env {given}: not set here"))
                        .expected("NAME=VALUE, or the name of a variable that is set")
                })?;
                set(given.clone(), value);
            }
        }
    }
    Ok(list)
}

/// `HOST` or `HOST:GUEST`.
pub fn file(given: &str) -> Result<GuestFile, CliError> {
    let (host, guest) = given.split_once(':').unwrap_or((given, given));
    let absolute = |path: &str| {
        std::path::absolute(path)
            .map_err(|error| CliError::usage(format!("--file {given}: {error}")))
    };
    let file = GuestFile {
        host: absolute(host)?,
        guest: absolute(guest)?,
    };
    if !file.host.exists() {
        return Err(CliError::usage(format!(
            "--file {given}: no such file or folder"
        )));
    }
    Ok(file)
}

/// Starts the job with numactl.
pub fn with_numactl(job: &mut Job, arguments: &str) -> Result<(), CliError> {
    let numactl =
        program("numactl").map_err(|error| error.hint("apt-get install numactl").status(125))?;
    job.launcher = Some((
        numactl,
        arguments.split_whitespace().map(str::to_owned).collect(),
    ));
    Ok(())
}

/// Starts the job with `numaloc run --online` inside the guest, with more `options` of that command.
pub fn with_online(job: &mut Job, options: &str) -> Result<(), CliError> {
    if options.contains("autopin") {
        let library = sibling(numaloc_apply::LIBRARY, Part::Library, None).map_err(|why| {
            CliError::tool(format!("cannot count the program's marks: {why}"))
                .hint(why.hint("NUMALOC_PLUGIN_DIR"))
                .status(OWN_FAILURE)
        })?;
        job.preloaded.push(library);
    }
    let options = options.split_whitespace().map(str::to_owned);
    let arguments = ["run", "--online"].map(str::to_owned).into_iter();
    let arguments = arguments.chain(options).chain(["--".to_owned()]);
    job.launcher = Some((own_executable()?, arguments.collect()));
    // The program is a child of the launcher, which the agent does not follow.
    job.launcher_traces = true;
    Ok(())
}

/// The plan.
fn read(plan: &Path) -> Result<Plan, CliError> {
    numaloc_formats::plan::read(plan).map_err(|error| CliError::from(error).status(125))
}

/// Starts the job with `numaloc run --plan` inside the guest, with more `options` of that command.
pub fn with_plan(job: &mut Job, plan: &Path, options: &[&str]) -> Result<(), CliError> {
    if !plan.is_file() {
        return Err(CliError::tool(format!(
            "cannot read the plan {}: no such file",
            plan.display()
        ))
        .status(125));
    }
    job.files.push(GuestFile {
        host: plan.to_owned(),
        guest: PLAN.into(),
    });
    let mut arguments = ["run", "--force-program", "--plan", PLAN, "--verify"]
        .map(str::to_owned)
        .to_vec();
    arguments.extend(options.iter().map(|&option| option.to_owned()));
    arguments.push("--".to_owned());
    job.launcher = Some((own_executable()?, arguments));
    job.launcher_traces = true;
    let plan = read(plan)?;
    for (is_needed, library, what) in [
        (
            !plan.schedule.is_empty(),
            numaloc_apply::LIBRARY,
            "make the later moves of the plan",
        ),
        (
            plan.provenance.is_dealt(),
            numaloc_apply::preload::DEALER,
            "deal loops as the plan was recorded",
        ),
    ] {
        if is_needed {
            let library = sibling(library, Part::Library, None).map_err(|why| {
                CliError::tool(format!("cannot {what}: {why}"))
                    .hint(why.hint("NUMALOC_PLUGIN_DIR"))
                    .status(OWN_FAILURE)
            })?;
            job.preloaded.push(library);
        }
    }
    Ok(())
}
