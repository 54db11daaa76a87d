//! A matrix and a machine to mappings.

use numaloc_mapping::{Direction, Evaluation, MapError, MapInput, Mapped, MappingPolicy, Spread};
use numaloc_model::CommMatrix;
use numaloc_plan::registry;
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::error::failed;
use crate::machine::Machine;
use crate::policies::{Borrowed, Given, given};

/// Which PUs stay empty.
pub(crate) fn spread(given: &str) -> PyResult<Spread> {
    match given {
        "auto" => Ok(Spread::Auto),
        "spread" => Ok(Spread::Spread),
        "compact" => Ok(Spread::Compact),
        other => Err(failed(format!(
            "there is no spread {other:?}: expected auto, spread or compact"
        ))),
    }
}

/// Policies in the order in which they were given; `all` stands for several.
struct Chosen {
    policies: Vec<(&'static dyn MappingPolicy, Option<usize>)>,
    functions: Vec<Borrowed>,
}

fn chosen(policies: &[Bound<'_, PyAny>], machine: &Py<PyAny>) -> PyResult<Chosen> {
    let mut chosen = Chosen {
        policies: Vec::new(),
        functions: Vec::new(),
    };
    for policy in policies {
        match given(policy, machine)? {
            Given::Named(name) => {
                let known = registry::mapping(&name).map_err(|unknown| {
                    failed(format!(
                        "{unknown}: expected all, or one of {}",
                        unknown.known.join(", ")
                    ))
                })?;
                chosen
                    .policies
                    .extend(known.into_iter().map(|policy| (policy, None)));
            }
            Given::Function(function) => {
                let at = chosen.functions.len();
                chosen.policies.push((function.policy(), Some(at)));
                chosen.functions.push(function);
            }
        }
    }
    Ok(chosen)
}

/// Maps with each policy; the answers as a JSON list. A policy that fails has a field `error` if there are several.
#[pyfunction]
#[pyo3(signature = (matrix, machine, policies, load=None, directed=false, spread="auto", seed=1))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn map(
    py: Python<'_>,
    matrix: PyReadonlyArray2<'_, f64>,
    machine: Py<Machine>,
    policies: Vec<Bound<'_, PyAny>>,
    load: Option<PyReadonlyArray1<'_, f64>>,
    directed: bool,
    spread: &str,
    seed: u64,
) -> PyResult<String> {
    let [rows, columns] = [matrix.shape()[0], matrix.shape()[1]];
    if rows != columns {
        return Err(failed(format!(
            "cannot map a matrix of {rows} x {columns}: expected as many rows as columns, one for each task"
        )));
    }
    let amounts: Vec<f64> = matrix.as_array().iter().copied().collect();
    let comm = CommMatrix::from_dense(rows, &amounts).map_err(failed)?;
    let load: Option<Vec<f64>> = load.map(|load| load.as_array().iter().copied().collect());
    let direction = if directed {
        Direction::Directed
    } else {
        Direction::Auto
    };
    let spread = self::spread(spread)?;
    let chosen = chosen(&policies, &machine.clone_ref(py).into_any())?;
    let topology = &machine.get().topology;
    let answers = py.detach(|| {
        let input = MapInput::directed(&comm, direction, topology)
            .with_load(load.as_deref())
            .with_spread(spread)
            .with_seed(seed);
        let answer = |policy: &'static dyn MappingPolicy| {
            let mapped = numaloc_mapping::map(policy, &input)?;
            let value = numaloc_mapping::evaluate(&input, &mapped.mapping);
            Ok((mapped, value))
        };
        let policies = chosen.policies.iter();
        let answers: Vec<_> = policies.map(|(policy, _)| answer(*policy)).collect();
        answers
    });
    if let ([(_, at)], [Err(error)]) = (&chosen.policies[..], &answers[..]) {
        let raised = at.and_then(|at| chosen.functions[at].exception(py, error));
        return Err(raised.unwrap_or_else(|| failed(error)));
    }
    let names = chosen.policies.iter().map(|(policy, _)| policy.name());
    let shown: Vec<Value> = names
        .zip(&answers)
        .map(|(name, answer)| row(name, answer))
        .collect();
    Ok(Value::from(shown).to_string())
}

fn row(policy: &str, answer: &Result<(Mapped, Evaluation), MapError>) -> Value {
    match answer {
        Err(error) => json!({"policy": policy, "error": error.to_string()}),
        Ok((mapped, value)) => json!({
            "policy": policy,
            "pu": mapped.mapping.pu.iter().map(|pu| pu.0).collect::<Vec<_>>(),
            "cost": value.cost,
            "lower_bound": value.lower_bound,
            "remote": value.remote,
            "total": value.total,
            "node_load": value.node_load,
            "load_std": value.load_std,
            "node_imbalance": value.node_imbalance,
            "repaired": mapped.repaired,
            "remarks": mapped.remarks,
        }),
    }
}
