//! Profiles: tables and matrices straight from the columns of the files, analyses from the checked profile.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use numaloc_analysis::characterise::default_of;
use numaloc_analysis::{Characterisation, segments};
use numaloc_formats::profile::{self, Folder, TableInfo};
use numaloc_model::profile::Amount;
use numaloc_model::{CommMatrix, Layer, Profile as Recorded, number};
use numaloc_plan::Reference;
use numaloc_report::{figures, json, markdown, next};
use numaloc_topology::resolve;
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use serde_json::json;

use crate::arrow::{self, Table};
use crate::error::failed;
use crate::machine::Machine;

/// Threads of which a square matrix is made: 2 GiB.
const MOST_THREADS: usize = 16_384;

/// Decoded columns by table and name.
type Decoded = HashMap<(&'static str, &'static str), ArrayRef>;

/// A profile folder. Columns are read when they are asked for, and kept; the rows of all tables are made and checked
/// when an analysis asks for them.
#[pyclass(frozen, module = "numaloc._numaloc", name = "Profile")]
pub(crate) struct Profile {
    folder: Folder,
    columns: Mutex<Decoded>,
    rows: Mutex<Option<Arc<Recorded>>>,
}

/// The unit of a matrix's cells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Events,
    Bytes,
    Lines,
}

/// A table by its name.
fn info(name: &str) -> PyResult<TableInfo> {
    let tables = profile::tables();
    let names: Vec<&str> = tables.iter().map(|table| table.name).collect();
    let message = format!(
        "there is no table {name:?}: expected one of {}",
        names.join(", ")
    );
    let mut tables = tables.into_iter();
    tables
        .find(|table| table.name == name)
        .ok_or_else(|| failed(message))
}

impl Profile {
    /// Columns of a table in the order of their declaration; those that were not read yet are read now.
    fn decoded(
        &self,
        info: &TableInfo,
        chosen: &dyn Fn(&str) -> bool,
    ) -> PyResult<Vec<(&'static str, ArrayRef)>> {
        let mut known = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |name: &str| chosen(name) && !known.contains_key(&(info.name, name));
        if info.columns.iter().any(|column| is_new(column.name)) {
            let read = self.folder.columns(info.table, &is_new).map_err(failed)?;
            for (name, column) in read {
                known.insert((info.name, name), arrow::array(column)?);
            }
        }
        let columns = info.columns.iter().filter(|column| chosen(column.name));
        let array = |name| Some((name, known.get(&(info.name, name))?.clone()));
        Ok(columns.filter_map(|column| array(column.name)).collect())
    }

    fn column(&self, table: &str, name: &str) -> PyResult<ArrayRef> {
        let info = info(table)?;
        let mut found = self.decoded(&info, &|column| column == name)?;
        found
            .pop()
            .map(|(_, array)| array)
            .ok_or_else(|| failed(format!("table {table} has no column {name}")))
    }

    /// Layers with at least one row, and the place of each row's layer in [`Layer::ALL`].
    fn present(&self, places: &[u8]) -> Vec<Layer> {
        let mut has = [false; 256];
        for &place in places {
            has[usize::from(place)] = true;
        }
        let all = Layer::ALL.into_iter().enumerate();
        all.filter(|(place, _)| has[*place])
            .map(|(_, layer)| layer)
            .collect()
    }

    /// The layer that was asked for, or the default one.
    fn layer(&self, present: &[Layer], asked: Option<&str>) -> PyResult<Layer> {
        let Some(name) = asked else {
            return Ok(default_of(present));
        };
        let layer =
            Layer::from_choice(name).filter(|layer| present.iter().any(|p| layer.holds(*p)));
        layer.ok_or_else(|| {
            let names: Vec<&str> = present.iter().map(|layer| layer.name()).collect();
            failed(format!(
                "{} has no layer {name:?}: expected one of {}",
                self.folder.path().display(),
                names.join(", ")
            ))
        })
    }

    /// Row-major sums of a layer.
    fn sums(
        &self,
        layer: Option<&str>,
        unit: Option<&str>,
    ) -> PyResult<(usize, Vec<f64>, Layer, Unit)> {
        let threads = self.column("threads", "thread")?.len();
        if threads > MOST_THREADS {
            return Err(failed(format!(
                "cannot make a square matrix of {threads} threads: expected at most {MOST_THREADS}; use the rows of the table communication"
            )));
        }
        let unit = unit.map(self::unit).transpose()?;
        let info = info("communication")?;
        let amount_name = |unit| match unit {
            Some(Unit::Bytes) => &["bytes"][..],
            Some(Unit::Events) => &["events"],
            _ => &["events", "bytes"],
        };
        let wanted = ["src", "dst", "layer"];
        let columns = self.decoded(&info, &|column| {
            wanted.contains(&column) || amount_name(unit).contains(&column)
        })?;
        let get = |name: &str| {
            let found = columns.iter().find(|(column, _)| *column == name);
            found
                .map(|(_, array)| array.clone())
                .ok_or_else(|| failed(format!("no column {name}")))
        };
        let layers = get("layer")?;
        let places = layers.as_dictionary::<UInt8Type>().keys().values().clone();
        let present = self.present(&places);
        let layer = self.layer(&present, layer)?;
        let natural = match Amount::of_layer(layer) {
            Amount::Events => Unit::Events,
            Amount::Bytes => Unit::Bytes,
        };
        let unit = unit.unwrap_or(natural);
        let counted = if unit == Unit::Lines { natural } else { unit };
        let amounts = get(if counted == Unit::Bytes {
            "bytes"
        } else {
            "events"
        })?;
        let scale = match (unit, counted) {
            (Unit::Lines, Unit::Bytes) => 1.0 / self.folder.meta().line_size.max(1) as f64,
            _ => 1.0,
        };
        let mut holds = [false; 256];
        for (place, stored) in Layer::ALL.into_iter().enumerate() {
            holds[place] = layer.holds(stored);
        }
        let (src, dst) = (get("src")?, get("dst")?);
        let (src, dst) = (
            src.as_primitive::<UInt32Type>(),
            dst.as_primitive::<UInt32Type>(),
        );
        let amounts = amounts.as_primitive::<UInt64Type>().values().clone();
        let pairs = src.values().iter().zip(dst.values());
        let rows = pairs.zip(places.iter().zip(amounts.iter()));
        let cells = rows
            .filter(|(_, (place, _))| holds[usize::from(**place)])
            .map(|((src, dst), (_, amount))| {
                (*src as usize, *dst as usize, *amount as f64 * scale)
            });
        let mut sums = CommMatrix::dense_sums(threads, cells).map_err(failed)?;
        for thread in 0..threads {
            sums[thread * threads + thread] = 0.0;
        }
        Ok((threads, sums, layer, unit))
    }

    /// The rows of all tables, checked.
    pub(crate) fn recorded(&self) -> PyResult<Arc<Recorded>> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = &*rows {
            return Ok(rows.clone());
        }
        let read = Arc::new(profile::read(self.folder.path()).map_err(failed)?);
        *rows = Some(read.clone());
        Ok(read)
    }

    fn characterised(
        &self,
        layer: Option<&str>,
        machine: Option<&Machine>,
        nodes: Option<usize>,
    ) -> PyResult<(Arc<Recorded>, Reference, Characterisation)> {
        let mut recorded = self.recorded()?;
        let rules = numaloc_formats::segments::built_in();
        if !segments::named(&recorded, &rules).is_empty() {
            segments::name_memory(Arc::make_mut(&mut recorded), &rules);
        }
        let layer = match layer {
            None => None,
            some => Some(self.layer(&recorded.layers(), some)?),
        };
        let threads = recorded.threads().len();
        let mut reference = match (nodes, machine) {
            (Some(nodes), _) => Reference::nodes(threads, layer, nodes.clamp(1, 4096)),
            (None, Some(machine)) => Reference::machine(threads, layer, machine.topology.clone()),
            (None, None) => {
                let this = resolve("this").map_err(failed)?;
                Reference::this_machine(threads, layer, this)
            }
        };
        reference.setting.segments = rules;
        let found = reference.characterise(&recorded).map_err(failed)?;
        Ok((recorded, reference, found))
    }
}

fn unit(name: &str) -> PyResult<Unit> {
    match name {
        "events" => Ok(Unit::Events),
        "bytes" => Ok(Unit::Bytes),
        "lines" => Ok(Unit::Lines),
        other => Err(failed(format!(
            "there is no unit {other:?}: expected events, bytes or lines"
        ))),
    }
}

#[pymethods]
impl Profile {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        Ok(Self {
            folder: Folder::open(&path).map_err(failed)?,
            columns: Mutex::default(),
            rows: Mutex::default(),
        })
    }

    #[getter]
    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Origin and limits, as JSON.
    fn meta(&self) -> String {
        let meta = self.folder.meta();
        json!({
            "command": meta.command,
            "frontend": meta.frontend,
            "complete": meta.complete,
            "sampled_share": meta.sampled,
            "notes": meta.notes,
            "clock": meta.clock.name(),
            "time_unit": meta.clock.unit(),
            "line_size_bytes": meta.line_size,
            "page_size_bytes": self.folder.page_size(),
            "environment": meta.conditions.environment.iter().cloned()
                .collect::<HashMap<String, String>>(),
        })
        .to_string()
    }

    /// A table; reads the columns that were not read yet.
    fn table(&self, py: Python<'_>, name: &str) -> PyResult<Table> {
        let info = info(name)?;
        let arrays = py.detach(|| self.decoded(&info, &|_| true))?;
        Table::new(&info, arrays)
    }

    /// Layers of the communication table.
    fn layers(&self, py: Python<'_>) -> PyResult<Vec<&'static str>> {
        let layers = py.detach(|| self.column("communication", "layer"))?;
        let present = self.present(layers.as_dictionary::<UInt8Type>().keys().values());
        Ok(present.into_iter().map(Layer::name).collect())
    }

    /// Threads x threads amounts.
    #[pyo3(signature = (layer=None, unit=None))]
    fn matrix<'py>(
        &self,
        py: Python<'py>,
        layer: Option<&str>,
        unit: Option<&str>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let (threads, sums, _, _) = py.detach(|| self.sums(layer, unit))?;
        PyArray1::from_vec(py, sums).reshape([threads, threads])
    }

    /// The matrix as a drawing.
    #[pyo3(signature = (layer=None, unit=None))]
    fn matrix_svg(
        &self,
        py: Python<'_>,
        layer: Option<&str>,
        unit: Option<&str>,
    ) -> PyResult<String> {
        py.detach(|| {
            let (threads, sums, _, _) = self.sums(layer, unit)?;
            let matrix = CommMatrix::from_dense(threads, &sums).map_err(failed)?;
            Ok(figures::matrix(
                &matrix,
                number::count,
                figures::Paint::file(),
            ))
        })
    }

    /// The object of `numaloc show --json`, as text, and the page of `numaloc report -o page.md`.
    #[pyo3(signature = (layer=None, machine=None, nodes=None))]
    fn shown(
        &self,
        py: Python<'_>,
        layer: Option<&str>,
        machine: Option<&Machine>,
        nodes: Option<usize>,
    ) -> PyResult<(String, String)> {
        py.detach(|| {
            let (recorded, reference, found) = self.characterised(layer, machine, nodes)?;
            let path = self.folder.path().display().to_string();
            let named = machine.map(|machine| machine.topology.name());
            let is_unknown = reference.machine.is_none();
            let has_trace = profile::traces::are_in(self.folder.path());
            let steps = next::steps(&path, &recorded, &found, named, is_unknown, has_trace, &[]);
            let shown = json::Shown {
                profile: &recorded,
                found: &found,
                assumed: &reference.assumed,
                next: &steps,
            };
            let title = recorded.meta().command.first().cloned().unwrap_or(path);
            let page = markdown::page(&title, &recorded, &found, &reference.assumed, &[], &steps);
            Ok((json::object(&shown).to_string(), page))
        })
    }
}
