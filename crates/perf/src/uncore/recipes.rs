//! Lists the events of each PMU: what they count, how they are encoded and scaled.
//!
//! Sources: the event lists of the Linux kernel (`arch/x86/events/intel/uncore_snbep.c` for what sysfs lists,
//! `tools/perf/pmu-events/arch/x86/*/uncore-*.json`, `amdzen{1,4}/data-fabric.json`,
//! `amdzen4/memory-controller.json`, `arch/arm64/arm/cmn`), which follow Intel's uncore performance
//! monitoring guides and AMD's processor programming references.

use std::collections::BTreeMap;

use crate::events::{Parameters, Pmu};

use super::{Quantity, Topic};

/// Bytes of a cache line, which one DRAM command or data-fabric beat moves.
const LINE: f64 = 64.0;
/// A UPI data flit carries a ninth of a line ("Uncore Performance Monitoring": ALL_DATA / 9 * 64 bytes).
const UPI_FLIT: f64 = 64.0 / 9.0;
/// A QPI data flit carries 8 bytes.
const QPI_FLIT: f64 = 8.0;
/// One outbound data packet of the link controllers of Zen 1 to 3.
const GMI_PACKET: f64 = 32.0;

/// How an event is encoded.
pub enum Encoding {
    /// `events/NAME`.
    Listed(&'static str),
    /// Encoded from its fields.
    Raw(Parameters),
}

/// The value of one count.
pub enum Scale {
    /// A constant of the event.
    Fixed(f64),
    /// As stated in `events/NAME.scale` and `.unit`; `unstated` if these files do not exist.
    Listed {
        /// The implied scale of kernels without the files, if known.
        unstated: Option<f64>,
    },
}

/// One event.
pub struct Recipe {
    pub quantity: Quantity,
    pub encoding: Encoding,
    pub scale: Scale,
}

/// The events known for one PMU.
#[derive(Default)]
pub struct Known {
    pub recipes: Vec<Recipe>,
    pub missing: BTreeMap<Topic, String>,
}

impl Known {
    fn listed(&mut self, quantity: Quantity, event: &'static str, unstated: Option<f64>) {
        self.recipes.push(Recipe {
            quantity,
            encoding: Encoding::Listed(event),
            scale: Scale::Listed { unstated },
        });
    }

    fn raw(&mut self, quantity: Quantity, event: u64, umask: u64, scale: f64) {
        self.fields(quantity, &[("event", event), ("umask", umask)], scale);
    }

    fn fields(&mut self, quantity: Quantity, fields: &[(&str, u64)], scale: f64) {
        let fields = fields.iter().map(|&(name, value)| (name.to_owned(), value));
        self.recipes.push(Recipe {
            quantity,
            encoding: Encoding::Raw(fields.collect()),
            scale: Scale::Fixed(scale),
        });
    }
}

/// The events of the PMU `name` on a machine whose PMUs are `all`.
pub fn of(name: &str, all: &[&str], pmu: &Pmu<'_>, modalias: &str) -> Known {
    let mut known = Known::default();
    match family(name) {
        "uncore_imc" => controller(&mut known, name, pmu),
        "uncore_upi" => known.raw(Quantity::LinkSent, 0x02, 0x0f, UPI_FLIT),
        "uncore_qpi" => {
            // The kernel's names refer to flits received (RxL_FLITS_G1.DRS_DATA, G2.NCB_DATA).
            for event in ["drs_data", "ncb_data"] {
                known.listed(Quantity::LinkReceived, event, Some(QPI_FLIT));
            }
        }
        "uncore_cha" => {
            known.raw(Quantity::LocalReads, 0x50, 0x01, 1.0);
            known.raw(Quantity::RemoteReads, 0x50, 0x02, 1.0);
        }
        "uncore_ha" => {
            known.raw(Quantity::LocalReads, 0x01, 0x01, 1.0);
            known.raw(Quantity::RemoteReads, 0x01, 0x02, 1.0);
        }
        "amd_umc" => {
            let cas = |direction| [("event", 0x0a), ("rdwrmask", direction)];
            known.fields(Quantity::DramRead, &cas(1), LINE);
            known.fields(Quantity::DramWritten, &cas(2), LINE);
            let why = "amd_umc counts no queue".to_owned();
            known.missing.insert(Topic::Queue, why);
        }
        "amd_df" => {
            let controllers = all.iter().any(|name| family(name) == "amd_umc");
            data_fabric(&mut known, pmu, modalias, controllers);
        }
        "arm_cmn" => known.listed(Quantity::DramMoved, "hnf_mc_reqs", Some(LINE)),
        "power" => known.listed(Quantity::DramEnergy, "energy-ram", None),
        _ => {}
    }
    known
}

/// `uncore_imc` of `uncore_imc_3`, but not of `uncore_imc_free_running_0`.
fn family(name: &str) -> &str {
    match name.rsplit_once('_') {
        Some((family, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => family,
        _ => name,
    }
}

/// Intel's memory controllers. Their generation, which determines the queue's events, is recognised by the kernel's
/// encoding of `cas_count_read`.
fn controller(known: &mut Known, name: &str, pmu: &Pmu<'_>) {
    if pmu.listed("data_reads").is_some() {
        // Desktop processors, whose uncore differs from that of servers.
        known.listed(Quantity::DramRead, "data_reads", None);
        known.listed(Quantity::DramWritten, "data_writes", None);
    } else {
        known.listed(Quantity::DramRead, "cas_count_read", Some(LINE));
        known.listed(Quantity::DramWritten, "cas_count_write", Some(LINE));
    }
    let read = pmu.listed("cas_count_read").unwrap_or_default();
    let field = |field: &str| read.iter().find(|(name, _)| name == field).map(|f| f.1);
    match (field("event"), field("umask")) {
        // Sandy Bridge to Cascade Lake: one read queue per channel, in DRAM clocks like `clockticks`.
        (Some(0x04), Some(0x03)) => {
            known.raw(Quantity::QueueOccupancy, 0x80, 0x00, 1.0);
            known.raw(Quantity::QueueInserts, 0x10, 0x00, 1.0);
            known.listed(Quantity::QueueClocks, "clockticks", Some(1.0));
        }
        // Ice Lake and Sapphire Rapids: one read queue per pseudo-channel.
        (Some(0x04), Some(0x0f)) | (Some(0x05), Some(0xcf)) => {
            known.raw(Quantity::QueueOccupancy, 0x80, 0x00, 1.0);
            known.raw(Quantity::QueueOccupancy, 0x81, 0x00, 1.0);
            known.raw(Quantity::QueueInserts, 0x10, 0x03, 1.0);
        }
        _ => {
            let why = format!("the queue events of {name} are not known");
            known.missing.insert(Topic::Queue, why);
        }
    }
}

/// AMD's data fabric. A unit mask of 12 bits identifies the second version (from Zen 4), whose event numbers
/// differ between families.
fn data_fabric(known: &mut Known, pmu: &Pmu<'_>, modalias: &str, controllers: bool) {
    let wide = pmu.encode(&[("umask".to_owned(), 0xfff)]).is_some();
    if !wide {
        for channel in 0..8 {
            known.raw(Quantity::DramMoved, 0x07 + channel * 0x40, 0x38, LINE);
        }
        for link in 0..4 {
            known.raw(Quantity::LinkSent, 0x7c7 + link * 0x40, 0x02, GMI_PACKET);
        }
        let why = "amd_df before Zen 4 does not distinguish local from remote reads".to_owned();
        known.missing.insert(Topic::Home, why);
    } else if modalias.contains("fam0019") {
        for station in 0..12 {
            let event = 0x1f + station * 0x40;
            known.raw(Quantity::LocalReads, event, 0x7fe, 1.0);
            known.raw(Quantity::RemoteReads, event, 0xbfe, 1.0);
            if !controllers {
                known.raw(Quantity::DramRead, event, 0x7fe, LINE);
                known.raw(Quantity::DramRead, event, 0xbfe, LINE);
                known.raw(Quantity::DramWritten, event, 0x7ff, LINE);
                known.raw(Quantity::DramWritten, event, 0xbff, LINE);
            }
        }
        for link in 0..8 {
            known.raw(Quantity::LinkSent, 0xb5f + link * 0x40, 0xf3e, LINE);
        }
    } else {
        let why = "the events of amd_df are not known for this processor family";
        for topic in [Topic::Dram, Topic::Link, Topic::Home] {
            known.missing.insert(topic, why.to_owned());
        }
    }
    let why = "amd_df counts no queue".to_owned();
    known.missing.insert(Topic::Queue, why);
}
