//! Advice without an access trace: by the model of worth, from the slices of the profile.

use numaloc_analysis::characterise::default_layer;
use numaloc_analysis::contended::contended;
use numaloc_analysis::verdict::uses_openmp;
use numaloc_model::Profile;
use numaloc_plan::ThreadPolicy;
use numaloc_plan::changes::changes;
use numaloc_plan::reference::equal_nodes;
use numaloc_plan::worth::{ERROR, Model};
use numaloc_report::answer::machine_of;
use numaloc_whatif::change::Change;
use numaloc_whatif::lines::waiting_s;

use super::rating::Time;
use super::{Answer, Args, Basis, mapped};
use crate::error::CliError;
use crate::setting::SettingArgs;

/// What the model says of a profile that lacks what a simulation needs.
pub(super) fn answer(
    args: &Args,
    profile: Profile,
    lacks: &'static str,
) -> Result<Answer, CliError> {
    let threads = profile.threads().len();
    let setting = SettingArgs {
        machine: (args.machine != "this").then(|| args.machine.clone()),
        ..SettingArgs::default()
    };
    let reference = setting.reference(&profile)?;
    let nodes = reference.setting.assignment.nodes;
    let topology = match reference.machine {
        Some(machine) => machine,
        None => equal_nodes(nodes, threads)?,
    };
    let machine = setting
        .machine
        .unwrap_or_else(|| machine_of(&reference.assumed));
    let Some(model) = Model::of(&profile, default_layer(&profile), &topology) else {
        let path = args.path().display();
        return Err(CliError::tool(format!(
            "cannot advise on {path}: it has {lacks}, and no accesses of threads to pages on one host"
        ))
        .hint("numaloc record --advise records what is needed"));
    };
    let unbound = mapped(args.path(), &profile, &topology, ThreadPolicy::Os)?;
    let memory = contended(&profile);
    let mut changes = changes(&model, &unbound, &memory);
    if !changes.worth_it() {
        changes.found.sets.clear();
    }
    let transfer_s = model.transfer_s();
    let time = |set: &[Change], seconds: f64| {
        let without = seconds - waiting_s(&memory, set, transfer_s[1], seconds);
        Time {
            simulated: [without; 3],
            waiting: transfer_s.map(|transfer_s| waiting_s(&memory, set, transfer_s, without)),
            remote: None,
        }
    };
    let found = changes.found;
    let as_it_is = time(&[], found.as_it_is);
    let best = found.sets.last();
    let best = best.map_or(as_it_is, |set| time(&set.changes, set.seconds));
    let ratio = best.simulated[0] / as_it_is.simulated[0].max(f64::MIN_POSITIVE);
    Ok(Answer {
        times: [as_it_is, best],
        uncertainty: ERROR * ratio,
        bound: changes.bound_s,
        bindings: Vec::new(),
        path: args.path().to_owned(),
        machine,
        has_openmp: uses_openmp(&profile),
        has_sites: !profile.sites().is_empty(),
        found,
        parts: changes.parts,
        memory,
        profile,
        basis: Basis::Model(lacks),
    })
}
