//! A profile and a machine to a plan.

use std::borrow::Cow;

use numaloc_model::Layer;
use numaloc_plan::registry::{self, JOINT, Place};
use numaloc_plan::{
    Choice, Open, Options, PlanRequest, Planned, Scope, Subject, ThreadPolicy, UnknownPolicy,
    Unobserved,
};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::error::failed;
use crate::machine::Machine;
use crate::map::spread;
use crate::policies::{Given, given};
use crate::profile::Profile;

fn unknown(error: UnknownPolicy) -> PyErr {
    failed(format!(
        "{error}: expected one of {}",
        error.known.join(", ")
    ))
}

/// Plans with one thread policy and one page policy, or with the best by their worth; the answers, and the plan as it
/// stands in a file.
#[pyfunction]
#[pyo3(signature = (
    profile, machine, threads=None, pages=None, layer=None, exclude_helpers=false, spread="auto", page_size=None,
    min_exclusivity=None, in_flight=None, seed=1, weights=None, capacity=None
))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn plan(
    py: Python<'_>,
    profile: &Profile,
    machine: Py<Machine>,
    threads: Option<&Bound<'_, PyAny>>,
    pages: Option<&str>,
    layer: Option<&str>,
    exclude_helpers: bool,
    spread: &str,
    page_size: Option<u64>,
    min_exclusivity: Option<f64>,
    in_flight: Option<f64>,
    seed: u64,
    weights: Option<Vec<u32>>,
    capacity: Option<Vec<u64>>,
) -> PyResult<(String, String)> {
    let standard = Options::default();
    let options = Options {
        spread: self::spread(spread)?,
        page_size,
        min_exclusivity: min_exclusivity.unwrap_or(standard.min_exclusivity),
        in_flight: in_flight.unwrap_or(standard.in_flight),
        weights,
        capacity,
        seed,
        ..standard
    };
    let layer = layer
        .map(|name| {
            Layer::from_choice(name).ok_or_else(|| failed(format!("there is no layer {name:?}")))
        })
        .transpose()?;
    let scope = Scope {
        layer,
        exclude_helpers,
    };
    let given = threads
        .map(|threads| given(threads, &machine.clone_ref(py).into_any()))
        .transpose()?;
    let choice = match &given {
        None => Choice::open(None, pages).map_err(unknown)?,
        Some(Given::Named(name)) => Choice::open(Some(name), pages).map_err(unknown)?,
        Some(Given::Function(_)) if pages == Some(JOINT) => {
            return Err(failed(
                "joint decides threads and pages together: it takes no function for threads",
            ));
        }
        Some(Given::Function(function)) => {
            let pages = pages.map(|pages| registry::pages(pages, Place::Profile));
            Choice::Best(Open {
                threads: Some(vec![ThreadPolicy::Listed(function.policy())]),
                pages: pages.transpose().map_err(unknown)?,
            })
        }
    };
    if !choice.is_one_plan() {
        return Err(failed("a plan needs one policy of each kind, not all"));
    }
    let topology = &machine.get().topology;
    let made = py.detach(|| {
        let recorded = profile.recorded()?;
        let subject = Subject::new(Cow::Borrowed(&*recorded), &scope).map_err(failed)?;
        let request = PlanRequest {
            subject: &subject,
            machine: topology,
            choice: &choice,
            options: &options,
        };
        let planned = numaloc_plan::plan(request, &Unobserved);
        Ok(planned.map(|planned| {
            let assembled = planned.assemble();
            let text = numaloc_formats::plan::to_json(&assembled.plan);
            (shown(&planned, assembled.nameless_pages).to_string(), text)
        }))
    });
    let planned: Result<_, numaloc_plan::PlanError> = made.map_err(|error: PyErr| error)?;
    planned.map_err(|error| {
        let raised = match &given {
            Some(Given::Function(function)) => function.exception(py, &error),
            Some(Given::Named(_)) | None => None,
        };
        raised.unwrap_or_else(|| failed(error))
    })
}

/// The answers: threads by the chosen policy, pages by first touch and the chosen policy.
fn shown(planned: &Planned<'_>, nameless_pages: u64) -> Value {
    let subject = planned.request().subject;
    let row = &planned.threads()[0];
    let pages: Vec<Value> = planned
        .pages()
        .iter()
        .map(numaloc_plan::json::pages)
        .collect();
    json!({
        "layer": subject.layer().name(),
        "unit": subject.unit().name(),
        "threads": subject.profile().threads().iter().map(|t| &t.path).collect::<Vec<_>>(),
        "policy": row.policy,
        "pu": row.mapped.mapping.pu.iter().map(|pu| pu.0).collect::<Vec<_>>(),
        "cost": row.value.cost,
        "lower_bound": row.value.lower_bound,
        "remote": row.value.remote,
        "total": row.value.total,
        "remarks": row.mapped.remarks,
        "pages": pages,
        "nameless_pages": nameless_pages,
        "worth": planned.ranking().as_ref().map(numaloc_plan::json::worth),
        "rank_worth": planned.rank_ranking().as_ref().map(numaloc_plan::json::rank_worth),
    })
}
