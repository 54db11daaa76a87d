//! Which simulations are asked for: threads on PUs and pages on nodes, for each machine, policy and plan.

use std::borrow::Cow;

use numaloc_model::{Mapping, Profile};
use numaloc_plan::registry::{self, AUTONUMA, Place};
use numaloc_plan::{Options, Scope, Subject, ThreadPolicy};
use numaloc_sim::Pages;
use numaloc_topology::Topology;

use super::Args;
use crate::commands::policies;
use crate::error::CliError;
use crate::simulation::{Mapped, Target, planned};

impl Args {
    /// Every combination of machine with thread policy, page policy and plan.
    pub(super) fn cases(
        &self,
        targets: &[Target],
        profile: &Profile,
    ) -> Result<Vec<planned::Unloaded>, CliError> {
        let mut cases = Vec::new();
        let failed = |error| policies::failed(&self.profile, error);
        let subject = Subject::new(Cow::Borrowed(profile), &Scope::default()).map_err(failed)?;
        let options = Options {
            seed: self.seed,
            ..Options::default()
        };
        for (target, found) in targets.iter().enumerate() {
            for name in &self.threads {
                for policy in registry::threads(name, Place::Simulation)? {
                    // For `os`, the PUs that page placement assumes.
                    let mapped =
                        numaloc_plan::threads::map(policy, &subject, &found.topology, &options);
                    let mapping = mapped.map_err(failed)?.mapping;
                    let runs = match policy {
                        ThreadPolicy::Os => (0..u64::from(self.draws))
                            .map(|draw| Mapped::Os {
                                seed: self.seed.wrapping_add(draw),
                            })
                            .collect(),
                        _ => vec![Mapped::Pinned(mapping.pu.clone())],
                    };
                    for (pages, homes) in
                        self.homes(profile, &mapping, &found.topology, &options)?
                    {
                        cases.extend(runs.iter().map(|mapped| planned::Unloaded {
                            target,
                            threads: policy.name().to_owned(),
                            pages: pages.to_owned(),
                            mapped: mapped.clone(),
                            homes: homes.clone(),
                            schedule: Vec::new(),
                        }));
                    }
                }
            }
            for path in &self.plans {
                let plan = numaloc_formats::plan::read(path)?;
                cases.push(planned::of_file(
                    &plan,
                    path,
                    target,
                    profile,
                    &found.topology,
                )?);
            }
        }
        Ok(cases)
    }

    /// The name of each page policy and its placement.
    fn homes(
        &self,
        profile: &Profile,
        mapping: &Mapping,
        machine: &Topology,
        options: &Options,
    ) -> Result<Vec<(&'static str, planned::Homes)>, CliError> {
        let mut homes = Vec::new();
        for given in &self.pages {
            if given == AUTONUMA {
                homes.push((AUTONUMA, planned::Homes::Acting(Pages::AutoNuma)));
                continue;
            }
            let policies = registry::pages(given, Place::Simulation)?;
            let is_only = policies.len() == 1;
            for policy in policies {
                let placed = match policy.name() {
                    "first-touch" => planned::Homes::Acting(Pages::FirstTouch),
                    "interleave" => planned::Homes::Acting(Pages::Interleave),
                    "next-touch" => planned::Homes::Acting(Pages::NextTouch),
                    _ => {
                        let placed =
                            numaloc_plan::pages::place(policy, profile, mapping, machine, options);
                        match placed {
                            Ok(placed) => planned::Homes::Placed(placed.placement.node),
                            Err(error) if is_only => return Err(CliError::usage(error)),
                            // Of several, one that the machine does not have what it needs for is left out.
                            Err(_) => continue,
                        }
                    }
                };
                homes.push((policy.name(), placed));
            }
        }
        Ok(homes)
    }
}
