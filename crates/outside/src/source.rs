//! The ways to see the accesses of a service that runs already.
//!
//! | source | which thread | which page | reads | how often | needs |
//! |---|---|---|---|---|---|
//! | `pmu` | yes | yes | yes | yes | PEBS or IBS |
//! | `hint-faults` | yes | yes | yes | no | several nodes, `kernel.numa_balancing=1` |
//! | `soft-dirty` | yes | yes | no | no | `CONFIG_MEM_SOFT_DIRTY` |
//! | `scan` | the process | the mapping | yes | no | `CONFIG_PROC_PAGE_MONITOR` |
//! | `page-faults` | yes | new pages | yes | no | nothing; never chosen by itself |

use std::path::Path;

use numaloc_model::profile::WindowSource;
use numaloc_perf::events::{self, MemoryEvent, cpu_list};
use numaloc_perf::live::watch::Watch;
use numaloc_sys::{balancing, references, writes};

/// A source that works here.
#[derive(Debug)]
pub struct Chosen {
    /// Which it is.
    pub source: WindowSource,
    /// Its events.
    pub events: Vec<MemoryEvent>,
    /// Why it was chosen.
    pub why: String,
}

/// The best source of this machine, or the one that the user chose.
///
/// # Errors
/// Why there is none.
pub fn choose(chosen: Option<WindowSource>) -> Result<Chosen, String> {
    let candidates = match &chosen {
        Some(source) => std::slice::from_ref(source),
        None => &WindowSource::ALL[..4],
    };
    let mut missing: Vec<String> = Vec::new();
    for &source in candidates {
        match events_of(source) {
            Ok(events) => {
                let why = match (chosen, missing.is_empty()) {
                    (Some(_), _) => "as --source says".to_owned(),
                    (None, true) => "it is the best there is".to_owned(),
                    (None, false) => missing.join("; "),
                };
                return Ok(Chosen {
                    source,
                    events,
                    why,
                });
            }
            Err(why) => missing.push(why),
        }
    }
    Err(missing.join("; "))
}

/// The nodes of this machine that are online.
fn nodes() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
    cpu_list(text.trim()).len()
}

/// The events of a source, or why it does not work here.
fn events_of(source: WindowSource) -> Result<Vec<MemoryEvent>, String> {
    match source {
        WindowSource::Pmu => {
            let found = events::discover(Path::new(events::SYSFS));
            let found = found.map_err(|_| "no PMU samples addresses here".to_owned())?;
            permitted(found)
        }
        WindowSource::HintFaults if balancing::is_on() != Some(true) => {
            Err("the kernel's NUMA balancing is off (kernel.numa_balancing)".to_owned())
        }
        WindowSource::HintFaults if nodes() < 2 => {
            Err("the kernel balances only machines with several nodes".to_owned())
        }
        WindowSource::SoftDirty if !writes::is_supported() => {
            Err("the kernel does not track writes (CONFIG_MEM_SOFT_DIRTY)".to_owned())
        }
        WindowSource::Scan if !references::is_supported() => {
            Err("the kernel shows no marks of used pages (CONFIG_PROC_PAGE_MONITOR)".to_owned())
        }
        WindowSource::HintFaults | WindowSource::SoftDirty | WindowSource::PageFaults => {
            permitted(vec![MemoryEvent::page_faults()])
        }
        // New pages are seen in addition, if this user may.
        WindowSource::Scan => Ok(permitted(vec![MemoryEvent::page_faults()]).unwrap_or_default()),
    }
}

fn permitted(events: Vec<MemoryEvent>) -> Result<Vec<MemoryEvent>, String> {
    // A period at which nothing is sampled: only whether it can be opened counts.
    match Watch::open(&events, 1 << 40) {
        Ok(_) => Ok(events),
        Err(error) => Err(format!(
            "{} cannot be sampled ({error}): see kernel.perf_event_paranoid",
            events[0].name
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_for_a_source_names_what_better_ones_lack() {
        let found = choose(None).unwrap();
        assert!(!found.why.is_empty() && found.source != WindowSource::PageFaults);
        if found.source == WindowSource::Scan {
            assert!(
                found.why.contains("PMU") && found.why.contains(';'),
                "{}",
                found.why
            );
        }
        let scan = choose(Some(WindowSource::Scan)).unwrap();
        assert_eq!(
            (scan.source, scan.why.as_str()),
            (WindowSource::Scan, "as --source says")
        );
    }
}
