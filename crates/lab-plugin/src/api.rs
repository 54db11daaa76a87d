//! The part of QEMU's plugin interface (version 1, QEMU 6 to 8) that is used here, as `extern "C"` declarations.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// QEMU's handle of this plugin.
pub type PluginId = u64;
/// Opaque description of a memory operation.
pub type MemInfo = u32;

/// A translation block.
#[repr(C)]
pub struct Block {
    _opaque: [u8; 0],
}
/// An instruction of a translation block.
#[repr(C)]
pub struct Insn {
    _opaque: [u8; 0],
}
/// The physical side of a memory operation.
#[repr(C)]
pub struct HwAddr {
    _opaque: [u8; 0],
}

/// Information QEMU passes to a plugin at load.
#[repr(C)]
pub struct Info {
    /// Architecture of the guest.
    pub target_name: *const c_char,
    /// Oldest interface version QEMU supports.
    pub version_min: c_int,
    /// Newest interface version QEMU supports.
    pub version_cur: c_int,
    /// True for whole-machine emulation, false for one user program.
    pub system_emulation: bool,
    /// vCPUs at start; only with `system_emulation`.
    pub smp_vcpus: c_int,
    /// Largest number of vCPUs; only with `system_emulation`.
    pub max_vcpus: c_int,
}

/// The callback does not read guest registers.
pub const NO_REGS: c_int = 0;
/// The callback is called for loads and stores.
pub const READ_AND_WRITE: c_int = 3;

/// Called when a block is translated.
pub type BlockCallback = extern "C" fn(PluginId, *mut Block);
/// Called when an instruction executes: vCPU, user data.
pub type ExecCallback = extern "C" fn(c_uint, *mut c_void);
/// Called at a memory access: vCPU, operation, virtual address, user data.
pub type MemCallback = extern "C" fn(c_uint, MemInfo, u64, *mut c_void);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, callback: BlockCallback);
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Insn;
    pub fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub fn qemu_plugin_insn_haddr(insn: *const Insn) -> *mut c_void;
    pub fn qemu_plugin_insn_data(insn: *const Insn) -> *const u8;
    pub fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        callback: ExecCallback,
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        callback: MemCallback,
        flags: c_int,
        rw: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_mem_is_store(info: MemInfo) -> bool;
    pub fn qemu_plugin_get_hwaddr(info: MemInfo, vaddr: u64) -> *mut HwAddr;
    pub fn qemu_plugin_hwaddr_is_io(address: *const HwAddr) -> bool;
    pub fn qemu_plugin_hwaddr_phys_addr(address: *const HwAddr) -> u64;
}
