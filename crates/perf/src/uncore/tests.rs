//! Machines as folders, and software events that are opened like uncore events.

use super::*;
use crate::live::counting::Counters;

/// A tree like `/sys`, removed at the end of the test.
struct Tree(tempfile::TempDir);

impl Tree {
    /// `sockets` of two CPUs; `nodes` gives the CPUs of each node.
    fn new(sockets: u32, nodes: &[&str]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for cpu in 0..2 * sockets {
            let file = format!("{CPUS}/cpu{cpu}/topology/physical_package_id");
            tree.file(&file, &(cpu / 2).to_string());
        }
        for (node, cpus) in nodes.iter().enumerate() {
            tree.file(&format!("{NODES}/node{node}/cpulist"), cpus);
        }
        tree
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn pmu(&self, name: &str, kind: u32, cpumask: &str, files: &[(&str, &str)]) {
        self.file(&format!("{PMUS}/{name}/type"), &kind.to_string());
        self.file(&format!("{PMUS}/{name}/cpumask"), cpumask);
        for (file, text) in files {
            self.file(&format!("{PMUS}/{name}/{file}"), text);
        }
    }

    fn offer(&self) -> Offer {
        discover(self.0.path())
    }
}

const FORMAT: [(&str, &str); 2] = [
    ("format/event", "config:0-7"),
    ("format/umask", "config:8-15"),
];
const IMC: [(&str, &str); 9] = [
    FORMAT[0],
    FORMAT[1],
    ("events/cas_count_read", "event=0x04,umask=0x03"),
    ("events/cas_count_read.scale", "6.103515625e-5"),
    ("events/cas_count_read.unit", "MiB"),
    ("events/cas_count_write", "event=0x04,umask=0x0c"),
    ("events/cas_count_write.scale", "6.103515625e-5"),
    ("events/cas_count_write.unit", "MiB"),
    ("events/clockticks", "event=0xff"),
];
const RAPL: [(&str, &str); 4] = [
    ("format/event", "config:0-7"),
    ("events/energy-ram", "event=0x03"),
    ("events/energy-ram.scale", "2.3283064365386962890625e-10"),
    ("events/energy-ram.unit", "Joules"),
];

/// Counters of a quantity on a socket, as (pmu, config, CPU).
fn of(offer: &Offer, quantity: Quantity, socket: u32) -> Vec<(&str, u64, u32)> {
    let here = |c: &&Counter| c.quantity == quantity && c.socket == socket;
    let found = offer.counters.iter().filter(here);
    found
        .map(|c| match &c.source {
            Source::Event { config, cpu, .. } => (c.pmu.as_str(), config[0], *cpu),
            Source::File { .. } => (c.pmu.as_str(), 0, 0),
        })
        .collect()
}

/// Values of all figures if `count` gives the counts of 2 s.
fn values(offer: &Offer, count: impl Fn(&Counter) -> Option<f64>) -> Vec<(String, Option<f64>)> {
    let counts: Vec<Option<f64>> = offer.counters.iter().map(count).collect();
    figures::of(&offer.counters, &offer.nodes)
        .iter()
        .map(|figure| {
            let name = format!("{} {} {}", figure.name, figure.socket, figure.unit);
            (name, figure.value(&offer.counters, &counts, 2.0))
        })
        .collect()
}

fn near(values: &[(String, Option<f64>)], name: &str, expected: f64) {
    let (_, found) = values
        .iter()
        .find(|(found, _)| found == name)
        .unwrap_or_else(|| panic!("no {name} in {values:?}"));
    let found = found.unwrap_or_else(|| panic!("{name} has no value"));
    assert!(
        (found - expected).abs() <= 1e-9 * expected,
        "{name}: {found}, expected {expected}"
    );
}

/// Two sockets of two nodes each (sub-NUMA clusters), two controllers a socket.
fn xeon() -> Tree {
    let tree = Tree::new(2, &["0", "1", "2", "3"]);
    tree.pmu("uncore_imc_0", 20, "0,2", &IMC);
    tree.pmu("uncore_imc_1", 21, "0,2", &IMC);
    tree.pmu("uncore_imc_free_running_0", 22, "0,2", &IMC);
    let upi = [FORMAT[0], ("format/umask", "config:8-15,32-39")];
    tree.pmu("uncore_upi_0", 23, "0,2", &upi);
    tree.pmu("uncore_cha_0", 24, "0,2", &FORMAT);
    tree.pmu("power", 25, "0,2", &RAPL);
    tree
}

#[test]
fn two_sockets_of_intel_with_upi_and_rapl() {
    let offer = xeon().offer();
    assert_eq!(offer.missing, BTreeMap::new());
    assert_eq!(
        offer.nodes,
        BTreeMap::from([(0, vec![0, 1]), (1, vec![2, 3])])
    );
    assert_eq!(
        of(&offer, Quantity::DramRead, 1),
        [("uncore_imc_0", 0x304, 2), ("uncore_imc_1", 0x304, 2)]
    );
    assert_eq!(of(&offer, Quantity::DramWritten, 0)[1].1, 0xc04);
    assert_eq!(of(&offer, Quantity::QueueOccupancy, 0)[0].1, 0x80);
    assert_eq!(of(&offer, Quantity::QueueInserts, 0)[0].1, 0x10);
    assert_eq!(
        of(&offer, Quantity::LinkSent, 0),
        [("uncore_upi_0", 0xf02, 0)]
    );
    assert_eq!(of(&offer, Quantity::LocalReads, 0)[0].1, 0x150);
    assert_eq!(of(&offer, Quantity::RemoteReads, 1)[0].1, 0x250);
    assert_eq!(of(&offer, Quantity::DramEnergy, 1), [("power", 3, 2)]);
}

#[test]
fn figures_by_hand() {
    let values = values(&xeon().offer(), |counter| {
        let first = f64::from(1 - counter.socket);
        Some(match counter.quantity {
            // Two controllers: 2 x 1e9 x 64 bytes.
            Quantity::DramRead => 1e9,
            Quantity::DramWritten => 5e8 * first,
            Quantity::QueueOccupancy => 6e9,
            Quantity::QueueInserts => 1e8,
            // 2 s at 1.5 GHz.
            Quantity::QueueClocks => 3e9,
            // 9 flits a line.
            Quantity::LinkSent => 9e9,
            Quantity::LocalReads => 3e6,
            Quantity::RemoteReads => 1e6,
            // 2^32 counts are 1 J.
            Quantity::DramEnergy => 4_294_967_296.0 * 7.0,
            _ => return None,
        })
    });
    near(&values, "dram-read 0 GB", 128.0);
    near(&values, "dram-read-bandwidth 1 GB/s", 64.0);
    near(&values, "dram-write-bandwidth 0 GB/s", 32.0);
    near(&values, "dram-written 1 GB", 0.0);
    near(&values, "read-queue-length 0 entries", 2.0);
    // 60 cycles at 1.5 GHz.
    near(&values, "read-queue-latency 0 ns", 40.0);
    near(&values, "link-sent 1 GB", 64.0);
    near(&values, "remote-reads 0 %", 25.0);
    near(&values, "dram-energy 1 J", 7.0);
    assert_eq!(values.len(), 2 * 9);
}

#[test]
fn a_figure_names_its_sources_and_has_no_value_without_all_counts() {
    let offer = xeon().offer();
    let figures = figures::of(&offer.counters, &offer.nodes);
    let read = figures.iter().find(|f| f.name == "dram-read").unwrap();
    assert_eq!(read.from, "uncore_imc_{0,1}/cas_count_read/");
    assert_eq!((read.unit, &read.nodes[..]), ("GB", &[0, 1][..]));
    let link = figures.iter().find(|f| f.name == "link-sent").unwrap();
    assert_eq!(link.from, "uncore_upi_0/event=0x2,umask=0xf/");
    // One of two controllers was not counted: half a sum is no figure.
    let half = values(&offer, |c| (c.pmu != "uncore_imc_1").then_some(1.0));
    let value = |name: &str| half.iter().find(|(found, _)| found == name).unwrap().1;
    assert_eq!(value("dram-read 0 GB"), None);
    assert!(value("link-sent 0 GB").is_some());
    // Nothing was read: no share.
    let idle = values(&offer, |_| Some(0.0));
    let share = idle.iter().find(|(name, _)| name == "remote-reads 0 %");
    assert_eq!(share.unwrap().1, None);
}

#[test]
fn older_intel_with_qpi_home_agents_and_no_scales() {
    let tree = Tree::new(2, &["0-1", "2-3"]);
    let unscaled = [IMC[0], IMC[1], IMC[2], IMC[5], IMC[8]];
    tree.pmu("uncore_imc_0", 9, "0,2", &unscaled);
    let qpi = [
        ("format/event", "config:0-7,21"),
        FORMAT[1],
        ("events/drs_data", "event=0x102,umask=0x08"),
        ("events/ncb_data", "event=0x103,umask=0x04"),
    ];
    tree.pmu("uncore_qpi_0", 10, "0,2", &qpi);
    tree.pmu("uncore_ha_0", 11, "0,2", &FORMAT);
    let powercap = "class/powercap/intel-rapl:1";
    tree.file(&format!("{powercap}/name"), "package-1");
    tree.file(&format!("{powercap}:0/name"), "core");
    tree.file(&format!("{powercap}:1/name"), "dram");
    tree.file(&format!("{powercap}:1/energy_uj"), "17");
    tree.file(&format!("{powercap}:1/max_energy_range_uj"), "100");
    let offer = tree.offer();
    assert_eq!(offer.missing, BTreeMap::new());
    // Bit 8 of the event is bit 21 of the word.
    let received = of(&offer, Quantity::LinkReceived, 1);
    assert_eq!(received[0].1, 0x0020_0802);
    assert_eq!(received[1].1, 0x0020_0403);
    assert_eq!(of(&offer, Quantity::RemoteReads, 0)[0].1, 0x201);
    let energy = &offer.counters[offer.counters.len() - 1];
    assert_eq!((energy.socket, energy.quantity), (1, Quantity::DramEnergy));
    let values = values(&offer, |counter| {
        Some(if counter.quantity == Quantity::DramEnergy {
            5e6
        } else {
            1e9
        })
    });
    near(&values, "dram-read 0 GB", 64.0);
    near(&values, "link-received 1 GB", 16.0);
    near(&values, "dram-energy 1 J", 5.0);
}

#[test]
fn ice_lake_has_two_queues_a_channel_whose_clock_is_not_known() {
    let tree = Tree::new(1, &["0-1"]);
    let mut imc = IMC;
    imc[2].1 = "event=0x04,umask=0x0f";
    tree.pmu("uncore_imc_0", 9, "0", &imc);
    let offer = tree.offer();
    let queues = of(&offer, Quantity::QueueOccupancy, 0);
    assert_eq!((queues[0].1, queues[1].1), (0x80, 0x81));
    assert_eq!(of(&offer, Quantity::QueueInserts, 0)[0].1, 0x310);
    let values = values(&offer, |_| Some(100.0));
    near(&values, "read-queue-latency 0 cycles", 2.0);
    assert!(!values.iter().any(|(name, _)| name.contains("length")));
    let link = &offer.missing[&Topic::Link];
    assert!(link.contains("has no uncore_upi_*"), "{link}");
}

#[test]
fn amd_with_data_fabric_and_memory_controllers() {
    let tree = Tree::new(2, &["0-1", "2-3"]);
    tree.file(
        "devices/system/cpu/modalias",
        "cpu:type:x86,ven0002fam0019mod0011:feature:",
    );
    let fabric = [
        ("format/event", "config:0-7,32-37"),
        ("format/umask", "config:8-15,24-27"),
    ];
    tree.pmu("amd_df", 14, "0,2", &fabric);
    let umc = [
        ("format/event", "config:0-7"),
        ("format/rdwrmask", "config:8-9"),
    ];
    tree.pmu("amd_umc_0", 15, "0", &umc);
    tree.pmu("amd_umc_12", 27, "2", &umc);
    let offer = tree.offer();
    assert_eq!(
        of(&offer, Quantity::DramRead, 1),
        [("amd_umc_12", 0x10a, 2)]
    );
    assert_eq!(
        of(&offer, Quantity::DramWritten, 0),
        [("amd_umc_0", 0x20a, 0)]
    );
    // Event 0xb5f, mask 0xf3e: the upper bits of both are in separate fields.
    let links = of(&offer, Quantity::LinkSent, 0);
    assert_eq!(links[0], ("amd_df", 0x0000_000b_0f00_3e5f, 0));
    assert_eq!(links.len(), 8);
    assert_eq!(of(&offer, Quantity::RemoteReads, 1).len(), 12);
    assert_eq!(offer.missing[&Topic::Queue], "amd_df counts no queue");
    let without = &offer.missing[&Topic::Energy];
    assert!(without.contains("energy-ram"), "{without}");

    // Without the controllers' PMU (Linux before 6.10) the fabric gives the volume.
    fs::remove_dir_all(tree.0.path().join(PMUS).join("amd_umc_0")).unwrap();
    fs::remove_dir_all(tree.0.path().join(PMUS).join("amd_umc_12")).unwrap();
    let offer = tree.offer();
    assert_eq!(of(&offer, Quantity::DramRead, 0).len(), 24);
    let values = values(&offer, |c| {
        Some(f64::from(u8::from(c.quantity != Quantity::LocalReads)))
    });
    near(&values, "remote-reads 1 %", 100.0);

    // Another family has other event numbers: none is guessed.
    tree.file(
        "devices/system/cpu/modalias",
        "cpu:type:x86,ven0002fam001Amod0002:feature:",
    );
    let offer = tree.offer();
    assert_eq!(offer.counters, []);
    assert!(offer.missing[&Topic::Link].contains("processor family"));
}

#[test]
fn amd_before_zen_4_and_arm() {
    let tree = Tree::new(1, &["0-1"]);
    let fabric = [
        ("format/event", "config:0-7,32-35,59-60"),
        ("format/umask", "config:8-15"),
    ];
    tree.pmu("amd_df", 14, "0", &fabric);
    let offer = tree.offer();
    assert_eq!(
        of(&offer, Quantity::LinkSent, 0)[0].1,
        0x0000_0007_0000_02c7
    );
    let values = values(&offer, |_| Some(1e9));
    near(&values, "dram-moved 0 GB", 8.0 * 64.0);
    near(&values, "link-sent 0 GB", 4.0 * 32.0);
    assert!(offer.missing[&Topic::Home].contains("before Zen 4"));

    let tree = Tree::new(1, &["0-1"]);
    let mesh = [
        ("format/type", "config:0-15"),
        ("format/eventid", "config:16-26"),
        ("events/hnf_mc_reqs", "type=0x5,eventid=0xd"),
    ];
    tree.pmu("arm_cmn_0", 30, "0", &mesh);
    let offer = tree.offer();
    assert_eq!(
        of(&offer, Quantity::DramMoved, 0),
        [("arm_cmn_0", 0xd_0005, 0)]
    );
}

#[test]
fn a_machine_with_nothing_names_everything() {
    let tree = Tree::new(1, &["0-1"]);
    for name in ["breakpoint", "msr", "software", "tracepoint", "uprobe"] {
        tree.pmu(name, 1, "", &[]);
    }
    let offer = tree.offer();
    assert_eq!(offer.counters, []);
    assert_eq!(
        offer.missing.keys().copied().collect::<Vec<_>>(),
        Topic::ALL
    );
    let dram = &offer.missing[&Topic::Dram];
    assert!(
        dram.ends_with("has no uncore_imc_*, amd_umc_*, amd_df or arm_cmn_*"),
        "{dram}"
    );
}

#[test]
fn invalid_descriptions_are_reported_and_not_counted() {
    for (file, text, why) in [
        ("events/cas_count_read.scale", "NaN", "no valid scale"),
        ("events/cas_count_read.scale", "-1", "no valid scale"),
        ("events/cas_count_read.unit", "furlongs", "no valid scale"),
        ("events/cas_count_read", "event=0x1ff", "no format for"),
        ("events/cas_count_read", "\u{1}", "no format for"),
        ("events/cas_count_read", "event=0xzz", "lists no event"),
        ("cpumask", "7-x", "no cpumask"),
    ] {
        let tree = Tree::new(1, &["0-1"]);
        let read_only: Vec<_> = IMC[..5].to_vec();
        tree.pmu("uncore_imc_0", 9, "0", &read_only);
        tree.file(&format!("{PMUS}/uncore_imc_0/{file}"), text);
        let offer = tree.offer();
        assert_eq!(of(&offer, Quantity::DramRead, 0), [], "{file} = {text:?}");
        assert!(
            offer.missing[&Topic::Dram].contains(why),
            "{:?}",
            offer.missing
        );
    }
}

/// A software event (the kernel's clock of a CPU, event 0) in place of a memory controller: the same
/// discovery, opening and reading as for an uncore event.
#[test]
fn software_events_are_opened_and_read_like_uncore_events() {
    let tree = Tree::new(1, &["0-1"]);
    let mut imc = IMC;
    imc[2].1 = "event=0x0,umask=0x0";
    imc[3].1 = "1";
    imc[4].1 = "Bytes";
    tree.pmu("uncore_imc_0", 1, "0", &imc[..5]);
    let counters = Counters::open(tree.offer());
    let missing = |topic| {
        counters
            .missing()
            .iter()
            .find(|(missing, _)| *missing == topic)
    };
    if let Some((_, why)) = missing(Topic::Dram) {
        // Without the permission, the reason is reported and no figure is shown.
        assert!(
            why.contains("perf_event_open of uncore_imc_0/cas_count_read/"),
            "{why}"
        );
        assert!(counters.figures().is_empty());
        return;
    }
    let at = |name| {
        counters
            .figures()
            .iter()
            .position(|figure| figure.name == name)
    };
    let (volume, rate) = (at("dram-read").unwrap(), at("dram-read-bandwidth").unwrap());
    let before = counters.read();
    let start = std::time::Instant::now();
    while start.elapsed() < std::time::Duration::from_millis(20) {}
    let values = counters.since(&before, 2.0);
    // A nanosecond is a "byte" here: at least the 20 ms (the two clocks may differ slightly), and half of
    // them in each of "2 s".
    let volume = values[volume].unwrap();
    assert!(volume >= 0.019, "{volume} GB");
    assert!((values[rate].unwrap() - volume / 2.0).abs() < 1e-12);
}

/// A PMU the kernel does not have.
#[test]
fn a_refused_counter_takes_its_quantity_along_and_energy_falls_back_to_files() {
    let tree = Tree::new(1, &["0-1"]);
    let no_such = 4_000_000;
    tree.pmu("uncore_imc_0", no_such, "0", &IMC[..5]);
    tree.pmu("power", no_such, "0", &RAPL);
    let powercap = "class/powercap/intel-rapl:0";
    tree.file(&format!("{powercap}/name"), "package-0");
    tree.file(&format!("{powercap}:0/name"), "dram");
    tree.file(&format!("{powercap}:0/energy_uj"), "1000000");
    let counters = Counters::open(tree.offer());
    let (topic, why) = &counters.missing()[0];
    assert_eq!(*topic, Topic::Dram);
    assert!(why.contains("uncore_imc_0/cas_count_read/"), "{why}");
    assert!(why.contains("perf_event_paranoid"), "{why}");
    let names: Vec<_> = counters
        .figures()
        .iter()
        .map(|f| (f.name, &f.from[..]))
        .collect();
    assert_eq!(
        names,
        [("dram-energy", "powercap/intel-rapl:0:0/energy_uj/")]
    );
    let before = counters.read();
    tree.file(&format!("{powercap}:0/energy_uj"), "3500000");
    assert_eq!(counters.since(&before, 1.0), [Some(2.5)]);
}
