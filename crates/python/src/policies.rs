//! Functions of Python as thread policies next to ours.
//!
//! A function receives the communication of each pair, as a symmetric matrix, and the machine, and returns a PU for
//! each task. Its answer is checked as ours are: no task without a PU, no PU with more than its share.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use numaloc_mapping::{MapError, MapInput, Mapped, MappingPolicy, check_mapping};
use numaloc_model::{LogicalPu, Mapping};
use numaloc_plan::registry::{self, Kind, Place};
use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::{NumalocError, failed};

/// Policies are known by static references. A slot holds the function of one call, and is used again after it: there
/// are as many slots as calls at one time.
struct Slot {
    content: Mutex<Content>,
}

#[derive(Default)]
struct Content {
    name: &'static str,
    /// The function and the machine.
    call: Option<(Py<PyAny>, Py<PyAny>)>,
    /// What the function raised.
    raised: Option<PyErr>,
}

static FREE: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());
/// Names of functions that were policies. Each is kept once, for the life of the process.
static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn interned(name: &str) -> &'static str {
    let mut names = locked(&NAMES);
    let names = names.get_or_insert_with(HashSet::new);
    match names.get(name) {
        Some(known) => known,
        None => {
            let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
            names.insert(kept);
            kept
        }
    }
}

/// A function of Python as a policy, for one call.
pub(crate) struct Borrowed(&'static Slot);

impl Borrowed {
    /// The policy that calls `function` with a matrix and `machine`.
    fn new(name: &str, function: Py<PyAny>, machine: Py<PyAny>) -> Self {
        let slot = locked(&FREE).pop().unwrap_or_else(|| {
            Box::leak(Box::new(Slot {
                content: Mutex::default(),
            }))
        });
        *locked(&slot.content) = Content {
            name: interned(name),
            call: Some((function, machine)),
            raised: None,
        };
        Self(slot)
    }

    /// The policy.
    pub(crate) fn policy(&self) -> &'static dyn MappingPolicy {
        self.0
    }

    /// The exception of an error; what the function raised is its cause.
    pub(crate) fn exception(&self, py: Python<'_>, error: impl std::fmt::Display) -> Option<PyErr> {
        let raised = locked(&self.0.content).raised.take()?;
        let exception = NumalocError::new_err(error.to_string());
        exception.set_cause(py, Some(raised));
        Some(exception)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let content = std::mem::take(&mut *locked(&self.0.content));
        // The references are given back while Python's lock is held.
        Python::attach(|_| drop(content));
        locked(&FREE).push(self.0);
    }
}

impl MappingPolicy for Slot {
    fn name(&self) -> &'static str {
        locked(&self.content).name
    }

    fn summary(&self) -> &'static str {
        "a function of Python"
    }

    fn source(&self) -> &'static str {
        "the caller"
    }

    fn map(&self, input: &MapInput) -> Result<Mapped, MapError> {
        let policy = self.name();
        let wrong = |why: String| MapError::Foreign { policy, why };
        let answer = Python::attach(|py| {
            let content = locked(&self.content);
            let call = content.call.as_ref();
            let call =
                call.map(|(function, machine)| (function.clone_ref(py), machine.clone_ref(py)));
            // The function may map with other policies.
            drop(content);
            let Some((function, machine)) = call else {
                return Err("it is not being called".to_owned());
            };
            ask(py, &function, &machine, input).map_err(|raised| {
                let why = raised.value(py).to_string();
                let kind = raised
                    .get_type(py)
                    .name()
                    .map_or_else(|_| String::new(), |n| n.to_string());
                locked(&self.content).raised = Some(raised);
                format!("{kind}: {why}")
            })
        });
        let mapping = Mapping {
            pu: answer.map_err(wrong)?,
        };
        match check_mapping(input, &mapping) {
            Ok(()) => Ok(Mapped::plain(mapping.pu)),
            Err(flaw) => Err(wrong(format!("its answer is no mapping: {flaw}"))),
        }
    }
}

/// Calls a function with matrix and machine.
fn ask(
    py: Python<'_>,
    function: &Py<PyAny>,
    machine: &Py<PyAny>,
    input: &MapInput,
) -> PyResult<Vec<LogicalPu>> {
    let tasks = input.tasks();
    let mut amounts = vec![0.0; tasks * tasks];
    for (a, b, weight) in input.graph().pairs() {
        amounts[a * tasks + b] = weight;
        amounts[b * tasks + a] = weight;
    }
    let matrix = PyArray1::from_vec(py, amounts).reshape([tasks, tasks])?;
    let answer = function.bind(py).call1((matrix, machine))?;
    let pus = answer.try_iter()?.map(|pu| {
        // NumPy's integers are integers by `__index__`.
        let number: i64 = pu?.call_method0("__index__")?.extract()?;
        Ok(LogicalPu(u32::try_from(number).unwrap_or(u32::MAX)))
    });
    pus.collect()
}

/// The policies that a list of names and functions gives, in its order.
pub(crate) enum Given {
    /// A name.
    Named(String),
    /// A function.
    Function(Borrowed),
}

/// Reads a policy: a name, or a function, which is called by its `__name__`.
pub(crate) fn given(policy: &Bound<'_, PyAny>, machine: &Py<PyAny>) -> PyResult<Given> {
    let py = policy.py();
    if let Ok(name) = policy.cast::<PyString>() {
        return Ok(Given::Named(name.to_string()));
    }
    if !policy.is_callable() {
        return Err(failed(format!(
            "{} is no policy: expected a name or a function (matrix, machine) -> PU of each task",
            policy.repr()?
        )));
    }
    let name: String = match policy.getattr("__name__") {
        Ok(name) => name.extract()?,
        Err(_) => policy.get_type().name()?.extract()?,
    };
    let ours = registry::entries(Kind::Threads, Place::Profile);
    if ours
        .iter()
        .any(|entry| entry.name == name || entry.aliases.contains(&&*name))
    {
        return Err(failed(format!(
            "a function is named {name}, as one of numaloc's policies: give it another __name__"
        )));
    }
    let function = policy.clone().unbind();
    Ok(Given::Function(Borrowed::new(
        &name,
        function,
        machine.clone_ref(py),
    )))
}

/// Name, summary and source of each policy of a kind (`threads` or `pages`) for `matrix`, `profile` or `simulation`.
#[pyfunction]
pub(crate) fn policies(kind: &str, place: &str) -> PyResult<Vec<(String, String, String)>> {
    let kind = match kind {
        "threads" => Kind::Threads,
        "pages" => Kind::Pages,
        other => {
            return Err(failed(format!(
                "there is no kind {other:?}: expected threads or pages"
            )));
        }
    };
    let place = match place {
        "matrix" => Place::Matrix,
        "profile" => Place::Profile,
        "simulation" => Place::Simulation,
        other => {
            return Err(failed(format!(
                "there is no place {other:?}: expected matrix, profile or simulation"
            )));
        }
    };
    let entries = registry::entries(kind, place).into_iter();
    let texts = entries.map(|entry| [entry.name, entry.summary, entry.source].map(str::to_owned));
    Ok(texts
        .map(|[name, summary, source]| (name, summary, source))
        .collect())
}
