//! The table `variables`: named parts of objects. Without it, only objects have names.

use std::path::Path;

use numaloc_model::Profile;
use numaloc_model::profile::{Object, ObjectKind, Variable};

use super::{check_range, check_same_rows};
use crate::columns::{self, Source, Table};
use crate::error::FormatError;

pub(super) fn write(profile: &Profile, path: &Path) -> Result<(), FormatError> {
    let rows: Vec<(u32, &Variable)> = profile
        .objects
        .iter()
        .enumerate()
        .flat_map(|(at, object)| object.variables.iter().map(move |v| (at as u32, v)))
        .collect();
    columns::write(
        path,
        rows.len(),
        &[
            ("object", Source::U32(Box::new(|i| rows[i].0))),
            ("name", Source::Text(Box::new(|i| &rows[i].1.name))),
            ("offset", Source::U64(Box::new(|i| rows[i].1.offset))),
            ("size", Source::U64(Box::new(|i| rows[i].1.size))),
            (
                "source",
                Source::MaybeText(Box::new(|i| rows[i].1.source.as_deref())),
            ),
        ],
    )
}

/// Adds the variables to their objects, by ascending offset.
pub(super) fn read(path: &Path, objects: &mut [Object]) -> Result<(), FormatError> {
    if !path.exists() {
        return Ok(());
    }
    let table = Table::open(path)?;
    let object = table.u32("object")?;
    let name = table.text("name", "UTF-8 text", |text| Some(text.to_owned()))?;
    let (offset, size) = (table.u64("offset")?, table.u64("size")?);
    let source = table.maybe_text("source")?;
    let rows = check_same_rows(
        path,
        &[
            object.len(),
            name.len(),
            offset.len(),
            size.len(),
            source.len(),
        ],
    )?;
    check_range(path, "object", &object, objects.len())?;
    for (row, (name, source)) in name.into_iter().zip(source).enumerate().take(rows) {
        let of = &objects[object[row] as usize];
        // The heap grows, so its identity has no size.
        let whole = match of.kind {
            ObjectKind::Heap => 1 << 47,
            _ => of.size,
        };
        if offset[row]
            .checked_add(size[row])
            .is_none_or(|end| end > whole)
        {
            return Err(FormatError::corrupt(
                path,
                format!("row {row}, column offset"),
                format!("{} bytes at {}", size[row], offset[row]),
                format!("a part of the object's {whole} bytes"),
            ));
        }
        objects[object[row] as usize].variables.push(Variable {
            name,
            offset: offset[row],
            size: size[row],
            source,
        });
    }
    for object in objects {
        object.variables.sort_by_key(|variable| variable.offset);
    }
    Ok(())
}
