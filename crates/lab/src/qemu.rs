//! QEMU's command line. What the guest sees of it ([`guest`]) is part of the key under which a guest is kept.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::error::LabError;
use crate::job::Job;
use crate::kernel::Kernel;
use crate::machine::Machine;

const QEMU: &str = "qemu-system-x86_64";
/// Arguments of the stock kernel: it prints what it does, by which its progress is seen (`patience.rs`); without
/// mitigations (which cost only emulated time) and without watchdogs (an emulated CPU may not be scheduled for a long
/// time). For the same reason the kernel must not test whether the timer interrupts it in time: it panics if it does
/// not.
///
/// It boots on one CPU, and `guest/init` adds the others: QEMU 7.2 may translate code that another CPU changes at this
/// moment, and keep the translation of what was there before. The kernel changes its code when it boots, by
/// breakpoints, and CPUs that keep one execute it forever. With all CPUs from the start one boot in some dozens hung,
/// the idle CPUs at a breakpoint of `sched_clock_idle_wakeup_event`. The kernel's locks stay those of several CPUs, so
/// that its code is not changed when the second one is added. Automatic NUMA balancing changes it, too, and is chosen
/// before that ([`guest`]).
const KERNEL_ARGUMENTS: &str = "console=ttyS0 panic=-1 mitigations=off tsc=reliable lpj=4000000 no_timer_check \
    nowatchdog nosoftlockup rcupdate.rcu_cpu_stall_suppress=1 random.trust_cpu=on audit=0 maxcpus=1 noreplace-smp";
/// Environment variable with the path of the guest's state, for the shell that QEMU starts to read or write it: paths
/// may have any characters.
pub(crate) const STATE: &str = "NUMALOC_LAB_STATE";
/// The guest's ports, and the sockets in the folder of a run to which QEMU connects them.
pub(crate) const PORTS: [&str; 3] = ["control", "out", "err"];

/// The program.
///
/// # Errors
/// [`LabError::Tool`] if it is not installed.
pub(crate) fn find() -> Result<PathBuf, LabError> {
    numaloc_launch::find(QEMU.as_ref()).map_err(|why| missing(QEMU, &why, "qemu-system-x86"))
}

fn missing(tool: &str, why: &dyn std::fmt::Display, package: &'static str) -> LabError {
    LabError::Tool {
        tool: tool.to_owned(),
        why: why.to_string(),
        package,
    }
}

/// QEMU separates options by commas; a comma in a value is doubled.
fn shown(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// CPUs, memory, kernel and devices of a guest whose files are in `folder`. Of the job it depends on two things only:
/// whether the kernel balances pages, and whether there is a port for samples.
pub(crate) fn guest(machine: &Machine, kernel: &Kernel, job: &Job, folder: &Path) -> Vec<String> {
    let at = |name: &str| shown(&folder.join(name));
    let mut arguments: Vec<String> = [
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-machine",
        "pc",
        "-cpu",
        "max,la57=off",
        "-accel",
        "tcg,thread=multi,tb-size=256",
    ]
    .map(str::to_owned)
    .into();
    arguments.extend(machine.qemu_arguments());
    let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
    add("-kernel", kernel.image.display().to_string());
    add("-initrd", folder.join("initrd").display().to_string());
    let balancing = if job.autonuma { "enable" } else { "disable" };
    add(
        "-append",
        format!("{KERNEL_ARGUMENTS} numa_balancing={balancing}"),
    );
    add(
        "-serial",
        format!("file:{}", folder.join("console").display()),
    );
    add("-device", "virtio-serial-pci".to_owned());
    let mut port = |name: &str, options: &str| {
        let socket = at(name);
        add(
            "-chardev",
            format!("socket,id={name},path={socket}{options}"),
        );
        let device = format!("virtserialport,chardev={name},name=numaloc.{name}");
        add("-device", device);
    };
    for name in PORTS {
        port(name, "");
    }
    if job.sample_period.is_some() {
        port("samples", ",server=on,wait=off");
    }
    let disk = at("job");
    add(
        "-drive",
        format!("if=none,id=job,file={disk},format=raw,readonly=on,cache=writeback"),
    );
    add("-device", "virtio-blk-pci,drive=job".to_owned());
    arguments
}

/// What counts the guest's accesses: not part of the guest.
pub(crate) fn counting(machine: &Machine, plugin: &Path, job: &Job, folder: &Path) -> [String; 2] {
    let sizes: Vec<String> = machine.memory.iter().map(u64::to_string).collect();
    let samples = job.sample_period.map_or_else(String::new, |period| {
        format!(
            ",samples={},period={period}",
            shown(&folder.join("samples"))
        )
    });
    let options = format!(
        "{},out={},sizes={},cache={},ways={}{samples}",
        shown(plugin),
        shown(&folder.join("counts")),
        sizes.join(":"),
        job.cache.bytes,
        job.cache.ways
    );
    ["-plugin".to_owned(), options]
}

/// Starts QEMU with its log in `folder`. It ends with this process, in whatever way that ends.
pub(crate) fn start(qemu: &Path, arguments: &[String], folder: &Path) -> Result<Child, LabError> {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(qemu)
        .args(arguments)
        .env(STATE, folder.join("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let log = std::fs::File::create(folder.join("qemu.log"));
    command.stderr(log.map_or_else(|_| Stdio::null(), Stdio::from));
    // A separate process group: Ctrl-C is handled by us, and we end QEMU.
    command.process_group(0);
    command
        .spawn()
        .map_err(|error| missing("setpriv", &error, "util-linux"))
}
