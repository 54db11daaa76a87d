//! What the program's processes inherit from the recorder, so that they reach the recording whatever they do to
//! themselves: the folder of the journals, a socket to the recorder, and the table of shared memory.

use std::path::{Path, PathBuf};

use numaloc_trace::cross_process::Board;
use numaloc_trace::settings::Station;
use numaloc_trace::station::Registrar;

use crate::ui::Ui;

/// Descriptors that processes of the program inherit.
pub struct Passed<'a> {
    registrar: Option<Registrar>,
    table: Option<&'a Board>,
}

impl<'a> Passed<'a> {
    /// Those of the recording in `folder`. Without them, processes find the recording by its path only.
    pub fn to(folder: &Path, table: Option<&'a Board>, ui: &Ui) -> Self {
        let registrar = Registrar::open(folder).and_then(|registrar| {
            registrar.serve()?;
            Ok(registrar)
        });
        if let Err(error) = &registrar {
            ui.remark(format_args!(
                "processes that change their user or root will not be recorded: {error}"
            ));
        }
        Self {
            registrar: registrar.ok(),
            table,
        }
    }

    /// The setting for the program's processes.
    pub fn station(&self) -> Option<Station> {
        self.registrar.as_ref()?.station().ok()
    }

    /// Runs `action`, whose child processes inherit the descriptors.
    pub fn during<T>(&self, action: impl FnOnce() -> T) -> T {
        self.pass_on(true);
        let result = action();
        self.pass_on(false);
        result
    }

    fn pass_on(&self, passed: bool) {
        if let Some(registrar) = &self.registrar {
            registrar.pass_on(passed);
        }
        if let Some(table) = self.table {
            table.pass_on(passed);
        }
    }

    /// What keeps [`Passed::folder`] valid.
    pub fn into_registrar(self) -> Option<Registrar> {
        self.registrar
    }

    /// A path of the folder with the journals, which the program may have moved or hidden.
    pub fn folder(&self, path: &Path) -> PathBuf {
        let registrar = self.registrar.as_ref();
        registrar.map_or_else(|| path.to_owned(), Registrar::current)
    }
}
