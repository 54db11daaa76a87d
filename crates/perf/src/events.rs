//! Finds the events of this machine that sample the addresses of memory accesses. Reads sysfs instead of a table
//! of processor models.
//!
//! Each PMU is a folder of `/sys/bus/event_source/devices`: `type` is its number, `format/NAME` says which
//! bits of which configuration word a parameter occupies, `events/NAME` gives named parameter lists.

use std::fs;
use std::path::Path;

use crate::error::PerfError;

/// Where the kernel lists its PMUs.
pub const SYSFS: &str = "/sys/bus/event_source/devices";
/// Loads faster than this many cycles are not sampled: 1 takes every load, as CMLB does.
const LATENCY_THRESHOLD: u64 = 1;

/// An event that samples data addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryEvent {
    /// Its name as in perf.
    pub name: String,
    /// The PMU's number.
    pub kind: u32,
    /// `config`, `config1`, `config2`.
    pub config: [u64; 3],
    /// Required precision of the address: 2 asks the hardware for the exact instruction (PEBS).
    pub precise: u8,
    /// The CPUs the PMU belongs to; all when empty (hybrid processors have one PMU for each kind of core).
    pub cpus: Vec<u32>,
    /// Another event that must count in the same group (Intel's `mem-loads-aux`).
    pub leader: Option<[u64; 3]>,
    /// Sampling periods must be a multiple of this (16 for IBS); 0 allows any period.
    pub granule: u64,
    /// Whether it counts page faults instead of accesses.
    pub faults: bool,
}

impl MemoryEvent {
    /// The smallest period from `wanted` on that the event supports.
    #[must_use]
    pub fn period(&self, wanted: u64) -> u64 {
        wanted.max(1).next_multiple_of(self.granule.max(1))
    }

    /// First touches of pages: a software event that every Linux kernel has. For tests: it takes the same
    /// path through the kernel as hardware samples.
    #[must_use]
    pub fn page_faults() -> Self {
        Self {
            name: "page-faults".to_owned(),
            kind: 1,
            config: [2, 0, 0],
            faults: true,
            ..Self::default()
        }
    }
}

/// The memory events of the machine whose PMUs are listed in `folder` ([`SYSFS`]).
///
/// # Errors
/// [`PerfError::NoMemoryEvents`] names what was looked for and what is there.
pub fn discover(folder: &Path) -> Result<Vec<MemoryEvent>, PerfError> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .map_err(|error| PerfError::io("read", folder, error))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mut events = Vec::new();
    let mut spe = None;
    for name in &names {
        let path = folder.join(name);
        let pmu = Pmu::read(&path, name);
        match name.as_str() {
            "ibs_op" => events.extend(pmu.and_then(|pmu| pmu.operations())),
            _ if name.starts_with("arm_spe") => spe = Some(name),
            _ if name.starts_with("cpu") => {
                if let Some(pmu) = pmu {
                    events.extend(
                        ["mem-loads", "mem-stores"]
                            .iter()
                            .filter_map(|event| pmu.named(event)),
                    );
                }
            }
            _ => {}
        }
    }
    if !events.is_empty() {
        return Ok(events);
    }
    let missing = match spe {
        Some(pmu) => format!(
            "{pmu} (Arm SPE) writes a raw trace that is not decoded live; perf mem record, perf inject --itrace=M and \
             numaloc import read it"
        ),
        None => format!(
            "no PMU of this machine samples data addresses: {} has neither cpu*/events/mem-loads (Intel) nor ibs_op \
             (AMD) nor arm_spe_* (Arm), only {}",
            folder.display(),
            names.join(", ")
        ),
    };
    Err(PerfError::NoMemoryEvents { missing })
}

/// One PMU: its folder in sysfs.
pub(crate) struct Pmu<'a> {
    folder: &'a Path,
    name: &'a str,
    pub(crate) kind: u32,
    cpus: Vec<u32>,
}

/// Parameters of an event and their values, in their given order.
pub(crate) type Parameters = Vec<(String, u64)>;

impl<'a> Pmu<'a> {
    pub(crate) fn read(folder: &'a Path, name: &'a str) -> Option<Self> {
        let text = |file: &str| fs::read_to_string(folder.join(file)).ok();
        Some(Self {
            folder,
            name,
            kind: text("type")?.trim().parse().ok()?,
            cpus: text("cpus")
                .map(|list| cpu_list(list.trim()))
                .unwrap_or_default(),
        })
    }

    /// The event `events/NAME`, with the lowest latency threshold the PMU accepts.
    fn named(&self, event: &str) -> Option<MemoryEvent> {
        let mut config = self.parameters(event)?;
        if let Some(format) = self.format("ldlat") {
            format.set(&mut config, LATENCY_THRESHOLD);
        }
        Some(MemoryEvent {
            name: format!("{}/{event}/", self.name),
            kind: self.kind,
            config,
            precise: 2,
            cpus: self.cpus.clone(),
            leader: (event == "mem-loads")
                .then(|| self.parameters("mem-loads-aux"))
                .flatten(),
            ..MemoryEvent::default()
        })
    }

    /// An event that samples every n-th operation (not cycle), if the PMU can count operations.
    fn operations(&self) -> Option<MemoryEvent> {
        let mut config = [0; 3];
        if let Some(format) = self.format("cnt_ctl") {
            format.set(&mut config, 1);
        }
        Some(MemoryEvent {
            name: format!("{}//", self.name),
            kind: self.kind,
            config,
            cpus: self.cpus.clone(),
            granule: 16,
            ..MemoryEvent::default()
        })
    }

    /// The configuration words of `events/NAME`.
    fn parameters(&self, event: &str) -> Option<[u64; 3]> {
        self.encode(&self.listed(event)?)
    }

    /// `events/NAME`, a list such as `event=0xcd,umask=0x1,ldlat=3`.
    pub(crate) fn listed(&self, event: &str) -> Option<Parameters> {
        let text = fs::read_to_string(self.folder.join("events").join(event)).ok()?;
        let parameter = |parameter: &str| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, "1"));
            let value = match value.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok()?,
                None => value.parse().ok()?,
            };
            Some((name.to_owned(), value))
        };
        text.trim().split(',').map(parameter).collect()
    }

    /// The configuration words of these parameters; `None` if the PMU lacks one of them or its field is
    /// too narrow for the value.
    pub(crate) fn encode(&self, parameters: &[(String, u64)]) -> Option<[u64; 3]> {
        let mut config = [0; 3];
        for (name, value) in parameters {
            let format = self.format(name)?;
            if !format.fits(*value) {
                return None;
            }
            format.set(&mut config, *value);
        }
        Some(config)
    }

    fn format(&self, parameter: &str) -> Option<Format> {
        let text = fs::read_to_string(self.folder.join("format").join(parameter)).ok()?;
        Format::parse(text.trim())
    }
}

/// The bits of a parameter: `config1:0-15`, `config:0-7,21`.
#[derive(Debug, PartialEq, Eq)]
struct Format {
    word: usize,
    bits: Vec<u32>,
}

impl Format {
    fn parse(text: &str) -> Option<Self> {
        let (word, ranges) = text.split_once(':')?;
        let word = match word {
            "config" => 0,
            "config1" => 1,
            "config2" => 2,
            _ => return None,
        };
        let bits = cpu_list(ranges);
        (!bits.is_empty() && bits.iter().all(|&bit| bit < 64)).then_some(Self { word, bits })
    }

    fn fits(&self, value: u64) -> bool {
        self.bits.len() >= 64 || value >> self.bits.len() == 0
    }

    /// Writes the low bits of `value` to the parameter's bits.
    fn set(&self, config: &mut [u64; 3], value: u64) {
        for (at, &bit) in self.bits.iter().enumerate() {
            let on = value >> at.min(63) & 1;
            config[self.word] = config[self.word] & !(1 << bit) | on << bit;
        }
    }
}

/// Parses the kernel's list format `0-3,8`. Invalid text gives an empty list.
pub fn cpu_list(text: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) if last < 1 << 16 => numbers.extend(first..=last),
            _ => return Vec::new(),
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pmu(folder: &Path, name: &str, files: &[(&str, &str)]) {
        for (file, text) in files {
            let path = folder.join(name).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn intel_load_latency_and_stores() {
        // As listed on a Sapphire Rapids.
        let sysfs = tempfile::tempdir().unwrap();
        pmu(
            sysfs.path(),
            "cpu",
            &[
                ("type", "4\n"),
                ("format/event", "config:0-7\n"),
                ("format/umask", "config:8-15\n"),
                ("format/ldlat", "config1:0-15\n"),
                ("events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
                ("events/mem-loads-aux", "event=0x03,umask=0x82\n"),
                ("events/mem-stores", "event=0xcd,umask=0x2\n"),
            ],
        );
        let events = discover(sysfs.path()).unwrap();
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].name, "cpu/mem-loads/");
        assert_eq!(events[0].config, [0x1cd, 1, 0]);
        assert_eq!(events[0].leader, Some([0x8203, 0, 0]));
        assert_eq!(events[1].config[0], 0x2cd);
        assert_eq!(events[1].leader, None);
    }

    #[test]
    fn amd_operations_and_hybrid_cpus() {
        let sysfs = tempfile::tempdir().unwrap();
        pmu(
            sysfs.path(),
            "ibs_op",
            &[("type", "11"), ("format/cnt_ctl", "config:19")],
        );
        pmu(
            sysfs.path(),
            "cpu_atom",
            &[
                ("type", "10"),
                ("cpus", "8-11"),
                ("format/event", "config:0-7"),
                ("events/mem-stores", "event=0xd0"),
            ],
        );
        let events = discover(sysfs.path()).unwrap();
        assert_eq!(events[0].cpus, [8, 9, 10, 11]);
        assert_eq!((events[1].kind, events[1].config[0]), (11, 1 << 19));
        assert_eq!(
            (events[0].period(1000), events[1].period(1000)),
            (1000, 1008)
        );
    }

    #[test]
    fn a_machine_without_memory_events_lists_its_pmus() {
        let sysfs = tempfile::tempdir().unwrap();
        pmu(sysfs.path(), "software", &[("type", "1")]);
        let error = discover(sysfs.path()).unwrap_err();
        assert!(error.to_string().ends_with("only software"), "{error}");
        assert!(error.hint().unwrap().contains("--frontend qemu"));
        pmu(sysfs.path(), "arm_spe_0", &[("type", "9")]);
        let error = discover(sysfs.path()).unwrap_err();
        assert!(error.to_string().contains("Arm SPE"), "{error}");
    }

    #[test]
    fn invalid_bits_are_no_format() {
        assert_eq!(Format::parse("config9:1"), None);
        assert_eq!(Format::parse("config:64"), None);
        assert_eq!(Format::parse("config:3-1"), None);
        assert_eq!(Format::parse("config:0-7,32-35").unwrap().bits.len(), 12);
    }
}
