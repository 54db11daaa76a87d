//! placeholder
use crate::block::{Block, New};
use crate::edt::Edt;
use crate::worker::Worker;
pub struct Recorder;
impl Recorder {
    pub fn new(
        _: &std::path::Path,
        _: &crate::config::Config,
        _: &crate::machine::Machine,
    ) -> Result<Self, String> {
        Ok(Self)
    }
    pub fn write(&self, _: &crate::runtime::Runtime) -> Result<(), String> {
        Ok(())
    }
}
pub fn task_created(_: &mut Worker, _: *mut Edt, _: &mut Edt) {}
pub fn block_created(_: &mut Worker, _: *mut Edt, _: &mut Block, _: &New, _: bool) {}
pub fn before_run(_: &mut Worker, _: *mut Edt) {}
pub fn after_run(_: &mut Worker, _: *mut Edt) {}
