//! Machines: this one, described ones, synthetic ones.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use numaloc_model::LogicalPu;
use numaloc_report::figures::{Occupied, Paint, SERIES, machine as drawing};
use numaloc_topology::{ObjectKind, Topology, resolve};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;

use crate::error::failed;

/// Width of a drawing, in pixels.
const WIDTH: f64 = 720.0;
/// PUs of which a square matrix is made: 512 MiB.
const MOST_PUS: usize = 8192;

/// The interpreter that reads hwloc XML in a process of its own.
static INTERPRETER: OnceLock<PathBuf> = OnceLock::new();

/// A machine.
#[pyclass(frozen, subclass, module = "numaloc._numaloc", name = "Machine")]
pub(crate) struct Machine {
    spec: String,
    pub(crate) topology: Topology,
}

#[pymethods]
impl Machine {
    #[new]
    #[pyo3(signature = (spec="this"))]
    fn new(spec: &str) -> PyResult<Self> {
        Ok(Self {
            spec: spec.to_owned(),
            topology: resolve(spec).map_err(failed)?,
        })
    }

    #[getter]
    fn spec(&self) -> &str {
        &self.spec
    }

    #[getter]
    fn name(&self) -> &str {
        self.topology.name()
    }

    #[getter]
    fn summary(&self) -> String {
        self.topology.summary()
    }

    #[getter]
    fn fingerprint(&self) -> String {
        self.topology.fingerprint()
    }

    #[getter]
    fn pus(&self) -> usize {
        self.topology.pus().len()
    }

    #[getter]
    fn nodes(&self) -> usize {
        self.topology.nodes().len()
    }

    #[getter]
    fn is_simulated(&self) -> bool {
        self.topology.hardware().is_some()
    }

    /// Logical node of each PU.
    fn node_of_pu<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        let nodes = self.topology.pus().iter().map(|pu| pu.node.0);
        PyArray1::from_vec(py, nodes.collect())
    }

    /// Core of each PU, numbered from 0.
    fn core_of_pu<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        let mut cores: Vec<u32> = self.topology.pus().iter().map(|pu| pu.core).collect();
        let mut known = cores.clone();
        known.sort_unstable();
        known.dedup();
        for core in &mut cores {
            *core = known.partition_point(|other| other < core) as u32;
        }
        PyArray1::from_vec(py, cores)
    }

    /// The kernel's number of each PU.
    fn os_pus<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        PyArray1::from_vec(py, self.topology.pus().iter().map(|pu| pu.os.0).collect())
    }

    /// Distance of each pair of PUs, as policies see it.
    fn distances<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let count = self.topology.pus().len();
        if count > MOST_PUS {
            return Err(failed(format!(
                "cannot make a matrix of the distances of {count} PUs: expected at most {MOST_PUS}"
            )));
        }
        let pus = 0..count as u32;
        let values = pus.clone().flat_map(|a| {
            let distance = move |b| self.topology.distance(LogicalPu(a), LogicalPu(b));
            pus.clone().map(distance)
        });
        PyArray1::from_vec(py, values.collect()).reshape([count, count])
    }

    /// The machine as nested boxes; `pu_of_thread` puts threads into them.
    #[pyo3(signature = (pu_of_thread=None))]
    fn svg(&self, pu_of_thread: Option<Vec<u32>>) -> PyResult<String> {
        let mut pus = vec![Occupied::default(); self.topology.pus().len()];
        for (thread, pu) in pu_of_thread.unwrap_or_default().into_iter().enumerate() {
            let Some(occupied) = pus.get_mut(pu as usize) else {
                return Err(failed(format!(
                    "cannot draw thread {thread} on PU {pu}: {} has {} PUs",
                    self.topology.name(),
                    self.topology.pus().len()
                )));
            };
            let node = self.topology.node_of(LogicalPu(pu)).index();
            occupied.threads.push((thread, node % SERIES.len()));
        }
        Ok(drawing(&self.topology, &pus, WIDTH, Paint::file()))
    }

    /// Number of objects of each kind, by name.
    fn objects(&self) -> Vec<(String, usize)> {
        let name = |kind: ObjectKind| match kind {
            ObjectKind::Cache(level) => format!("l{level}"),
            other => format!("{other:?}").to_lowercase(),
        };
        let mut counts: std::collections::BTreeMap<ObjectKind, usize> = Default::default();
        for object in self.topology.objects() {
            *counts.entry(object.kind).or_default() += 1;
        }
        counts
            .into_iter()
            .map(|(kind, count)| (name(kind), count))
            .collect()
    }
}

/// Names and descriptions of the machines that are built in.
#[pyfunction]
pub(crate) fn described_machines() -> Vec<(String, String)> {
    numaloc_topology::described_machines()
}

/// From now on hwloc XML is read in a process of its own: hwloc's parser crashes on some malformed files.
#[pyfunction]
pub(crate) fn isolate_xml(interpreter: PathBuf) {
    let _ = INTERPRETER.set(interpreter);
    numaloc_topology::isolate_xml(|| {
        let mut command = Command::new(
            INTERPRETER
                .get()
                .map_or("python3".as_ref(), |p| p.as_path()),
        );
        command.args(["-c", "from numaloc import _numaloc; _numaloc.serve_xml()"]);
        command
    });
}

/// The side of the process that reads hwloc XML for its parent.
#[pyfunction]
pub(crate) fn serve_xml() -> PyResult<()> {
    numaloc_topology::serve_xml(std::io::stdin(), std::io::stdout()).map_err(failed)
}
