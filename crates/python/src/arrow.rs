//! Columns of a profile as Arrow arrays, and a table of them that other libraries import without copies.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::UInt8Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, RecordBatch, RecordBatchIterator,
    StringArray, UInt8Array, UInt32Array, UInt64Array,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{Field, Schema};
use numaloc_formats::profile::TableInfo;
use numaloc_formats::profile::arrays::Array;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::error::failed;

/// A decoded column as an Arrow array. Numbers keep their memory; texts and nullable columns, which only small tables
/// have, are laid out again.
pub(crate) fn array(column: Array) -> PyResult<ArrayRef> {
    Ok(match column {
        Array::U32(values) => Arc::new(UInt32Array::from(values)),
        Array::U64(values) => Arc::new(UInt64Array::from(values)),
        Array::MaybeU64(values) => Arc::new(UInt64Array::from(values)),
        Array::F64(values) => Arc::new(Float64Array::from(values)),
        Array::Bool(values) => Arc::new(BooleanArray::from(values)),
        Array::Text(values) => Arc::new(StringArray::from(values)),
        Array::MaybeText(values) => Arc::new(StringArray::from(values)),
        Array::Word { places, words } => {
            let words = Arc::new(StringArray::from(words));
            let places = UInt8Array::from(places);
            Arc::new(DictionaryArray::<UInt8Type>::try_new(places, words).map_err(failed)?)
        }
    })
}

/// A table of a profile: an Arrow record batch that pandas, Polars, DuckDB and PyArrow take over without copies
/// (`__arrow_c_stream__`, the Arrow PyCapsule interface).
#[pyclass(frozen, module = "numaloc", name = "Table")]
pub(crate) struct Table {
    name: &'static str,
    row: &'static str,
    batch: RecordBatch,
}

impl Table {
    /// A table of arrays in the order of its declaration; units and meanings become metadata of the columns.
    pub(crate) fn new(info: &TableInfo, arrays: Vec<(&'static str, ArrayRef)>) -> PyResult<Self> {
        let fields: Vec<Field> = arrays
            .iter()
            .map(|(name, array)| {
                let field = Field::new(*name, array.data_type().clone(), array.is_nullable());
                let declared = info.columns.iter().find(|column| column.name == *name);
                field.with_metadata(declared.map_or_else(HashMap::new, |column| {
                    HashMap::from([
                        ("unit".to_owned(), column.unit.to_string()),
                        ("about".to_owned(), column.about.to_owned()),
                    ])
                }))
            })
            .collect();
        let arrays = arrays.into_iter().map(|(_, array)| array).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(failed)?;
        Ok(Self {
            name: info.name,
            row: info.row,
            batch,
        })
    }
}

#[pymethods]
impl Table {
    /// Name of the table.
    #[getter]
    fn name(&self) -> &'static str {
        self.name
    }

    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        let schema = self.batch.schema();
        schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    /// Unit of each column, by name.
    #[getter]
    fn units(&self) -> HashMap<String, String> {
        let schema = self.batch.schema();
        let unit = |field: &Arc<Field>| {
            let unit = field.metadata().get("unit").cloned().unwrap_or_default();
            (field.name().clone(), unit)
        };
        schema.fields().iter().map(unit).collect()
    }

    /// Bytes of all columns in memory.
    #[getter]
    fn nbytes(&self) -> usize {
        self.batch.get_array_memory_size()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        format!(
            "<numaloc.Table {}: {} rows, one per {}; columns {}>",
            self.name,
            self.batch.num_rows(),
            self.row,
            self.column_names().join(", ")
        )
    }

    /// The schema, as a capsule `arrow_schema`.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema_ref().as_ref()).map_err(failed)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The rows, as a capsule `arrow_array_stream` that shares the table's memory. The schema is never converted:
    /// consumers may ask for another one, and producers may ignore that.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = std::iter::once(Ok(self.batch.clone()));
        let reader = RecordBatchIterator::new(batches, self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}
