//! What a network's links can do: one table of figures with defaults and sources, and what a cluster file or the
//! command line says instead.

use serde::{Deserialize, Serialize};

/// A figure of the model of networks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Name in cluster files and on the command line; its end is the unit.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// Value if nobody states another; `None`: that of the interconnect.
    pub default: Option<f64>,
    /// Smallest value that is read.
    pub least: f64,
    /// Largest value that is read.
    pub most: f64,
    /// Unit.
    pub unit: &'static str,
    /// Where the default comes from.
    pub source: &'static str,
}

/// All figures that are single numbers.
pub const FIGURES: [Figure; 6] = [
    Figure {
        name: "overhead_ns",
        what: "time that a processor works for a message at each end (LogGP's o)",
        default: None,
        least: 0.0,
        most: 1e9,
        unit: "ns",
        source: "the interconnect",
    },
    Figure {
        name: "latency_ns",
        what: "time of the first byte between two hosts of one switch, without overheads (LogGP's L)",
        default: None,
        least: 0.0,
        most: 1e12,
        unit: "ns",
        source: "the interconnect",
    },
    Figure {
        name: "hop_ns",
        what: "additional time for each further switch",
        default: None,
        least: 0.0,
        most: 1e9,
        unit: "ns",
        source: "the interconnect",
    },
    Figure {
        name: "host_bytes_per_s",
        what: "bytes per second and direction of a link (1 / LogGP's G)",
        default: None,
        least: 1.0,
        most: 1e15,
        unit: "bytes per second",
        source: "the interconnect",
    },
    Figure {
        name: "shared_latency_ns",
        what: "time of the first byte between two ranks of one NUMA node",
        default: Some(300.0),
        least: 0.0,
        most: 1e9,
        unit: "ns",
        source: "assumed: a few transfers of a cache line of about 100 ns",
    },
    Figure {
        name: "shared_bytes_per_s",
        what: "bytes per second between two ranks of one host",
        default: Some(1.2e10),
        least: 1.0,
        most: 1e15,
        unit: "bytes per second",
        source: "assumed: a core copies about 12 GB/s, and long messages are copied once",
    },
];

/// An interconnect by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interconnect {
    /// Value of `interconnect`.
    pub name: &'static str,
    /// See [`FIGURES`].
    pub overhead_ns: f64,
    /// See [`FIGURES`].
    pub latency_ns: f64,
    /// See [`FIGURES`].
    pub hop_ns: f64,
    /// See [`FIGURES`].
    pub host_bytes_per_s: f64,
    /// Where the figures come from.
    pub source: &'static str,
}

const fn interconnect(
    name: &'static str,
    [overhead_ns, latency_ns, hop_ns]: [f64; 3],
    host_bytes_per_s: f64,
    source: &'static str,
) -> Interconnect {
    Interconnect {
        name,
        overhead_ns,
        latency_ns,
        hop_ns,
        host_bytes_per_s,
        source,
    }
}

/// The interconnects; the first is assumed if none is named.
pub const INTERCONNECTS: [Interconnect; 6] = [
    interconnect(
        "hdr",
        [200.0, 700.0, 130.0],
        25e9,
        "InfiniBand HDR, 4 lanes of 50 Gb/s; 130 ns of a switch by its data sheet; 1.1 us from rank to rank assumed",
    ),
    interconnect(
        "slingshot-11",
        [200.0, 1400.0, 350.0],
        25e9,
        "200 Gb/s a port; 350 ns of a switch (De Sensi et al., SC 2020); 1.8 us from rank to rank assumed",
    ),
    interconnect(
        "tofu-d",
        [100.0, 490.0, 100.0],
        6.8e9,
        "Ajima et al., CLUSTER 2018: 6.8 GB/s a link, 0.49 us a put; overhead and hop assumed",
    ),
    interconnect(
        "10gbe",
        [5e3, 2e4, 1e3],
        1.25e9 * TCP_SHARE,
        "IEEE 802.3ae, payload of TCP in frames of 1,518 bytes; latencies of TCP assumed",
    ),
    interconnect(
        "25gbe",
        [5e3, 1.5e4, 1e3],
        3.125e9 * TCP_SHARE,
        "IEEE 802.3by, payload of TCP in frames of 1,518 bytes; latencies of TCP assumed",
    ),
    interconnect(
        "100gbe",
        [4e3, 1e4, 600.0],
        12.5e9 * TCP_SHARE,
        "IEEE 802.3bm, payload of TCP in frames of 1,518 bytes; latencies of TCP assumed",
    ),
];

/// Payload of a TCP segment with time stamps (1,448 bytes) over a frame with preamble and gap (1,538 bytes).
const TCP_SHARE: f64 = 1448.0 / 1538.0;

/// How a dragonfly sends messages between its groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// Over the direct link of two groups.
    Minimal,
    /// Of all messages, the share that loads the busiest link least goes by way of other groups.
    #[default]
    Adaptive,
}

/// The link above a switch that has a name.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Uplink {
    /// The switch.
    pub switch: String,
    /// Number of parallel links.
    #[serde(default = "one")]
    pub links: f64,
    /// Bytes per second and direction of one; by default that of every link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
}

fn one() -> f64 {
    1.0
}

/// What a cluster file says of its links: `[cluster.links]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Links {
    /// One of [`INTERCONNECTS`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interconnect: Option<String>,
    /// See [`FIGURES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead_ns: Option<f64>,
    /// See [`FIGURES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
    /// See [`FIGURES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_ns: Option<f64>,
    /// See [`FIGURES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_bytes_per_s: Option<f64>,
    /// See [`FIGURES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_latency_ns: Option<f64>,
    /// See [`FIGURES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_bytes_per_s: Option<f64>,
    /// Bytes per second and direction of one link by level, those of hosts last: of a tree its levels, of a dragonfly
    /// between groups, within a group, and of hosts; of a torus between neighbours, and of hosts. Empty: all as
    /// `host_bytes_per_s`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bytes_per_s: Vec<f64>,
    /// Number of parallel links by level, in the same order. Empty: of a tree as many as hosts below, so that nothing
    /// is tapered; otherwise one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parallel: Vec<f64>,
    /// Of dragonflies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// Links above switches that have names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uplinks: Vec<Uplink>,
}

/// The single figures, all known; times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkFigures {
    /// LogGP's o.
    pub overhead_s: f64,
    /// LogGP's L at one switch.
    pub latency_s: f64,
    /// Additional time for each further switch.
    pub hop_s: f64,
    /// 1 / LogGP's G.
    pub host_bytes_per_s: f64,
    /// L between ranks of one NUMA node.
    pub shared_latency_s: f64,
    /// 1 / G between ranks of one host.
    pub shared_bytes_per_s: f64,
}

/// A figure of links that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LinksError {
    /// A value out of its range.
    #[error("{name} is {value}, expected {least:e} to {most:e}")]
    Range {
        /// The figure.
        name: String,
        /// Its value.
        value: f64,
        /// Smallest that is read.
        least: f64,
        /// Largest that is read.
        most: f64,
    },
    /// An interconnect that is not known.
    #[error("unknown interconnect {name:?}, expected {}", names())]
    Interconnect {
        /// The name.
        name: String,
    },
    /// A setting that is not `NAME=VALUE` with a known name and a number.
    #[error(
        "cannot read {given:?}, expected interconnect=NAME or one of {} with a number",
        figure_names()
    )]
    Setting {
        /// What was given.
        given: String,
    },
}

fn names() -> String {
    INTERCONNECTS.map(|one| one.name).join(", ")
}

fn figure_names() -> String {
    FIGURES.map(|one| one.name).join(", ")
}

impl Links {
    /// The value of a figure by name, if stated.
    fn stated(&self, name: &str) -> Option<f64> {
        match name {
            "overhead_ns" => self.overhead_ns,
            "latency_ns" => self.latency_ns,
            "hop_ns" => self.hop_ns,
            "host_bytes_per_s" => self.host_bytes_per_s,
            "shared_latency_ns" => self.shared_latency_ns,
            _ => self.shared_bytes_per_s,
        }
    }

    /// Whether neither an interconnect nor its bandwidth is stated, so that the figures are only assumed.
    #[must_use]
    pub fn is_assumed(&self) -> bool {
        self.interconnect.is_none() && self.host_bytes_per_s.is_none()
    }

    /// The interconnect that the other figures come from.
    #[must_use]
    pub fn interconnect(&self) -> &'static Interconnect {
        let named = self.interconnect.as_deref();
        let found = INTERCONNECTS.iter().find(|one| Some(one.name) == named);
        found.unwrap_or(&INTERCONNECTS[0])
    }

    /// Stated figures, and those of the interconnect for all others.
    #[must_use]
    pub fn figures(&self) -> LinkFigures {
        let known = self.interconnect();
        let of = |name: &str, interconnect: f64| {
            let default = FIGURES.iter().find(|figure| figure.name == name);
            let default = default.and_then(|figure| figure.default);
            self.stated(name).or(default).unwrap_or(interconnect)
        };
        LinkFigures {
            overhead_s: of("overhead_ns", known.overhead_ns) * 1e-9,
            latency_s: of("latency_ns", known.latency_ns) * 1e-9,
            hop_s: of("hop_ns", known.hop_ns) * 1e-9,
            host_bytes_per_s: of("host_bytes_per_s", known.host_bytes_per_s),
            shared_latency_s: of("shared_latency_ns", 0.0) * 1e-9,
            shared_bytes_per_s: of("shared_bytes_per_s", known.host_bytes_per_s),
        }
    }

    /// Sets a figure from `NAME=VALUE`.
    ///
    /// # Errors
    /// [`LinksError`] for an unknown name, and for a value out of its range.
    pub fn set(&mut self, setting: &str) -> Result<(), LinksError> {
        let unreadable = || LinksError::Setting {
            given: setting.to_owned(),
        };
        let (name, value) = setting.split_once('=').ok_or_else(unreadable)?;
        if name == "interconnect" {
            self.interconnect = Some(value.to_owned());
            return self.check();
        }
        let number = Some(value.parse::<f64>().map_err(|_| unreadable())?);
        match name {
            "overhead_ns" => self.overhead_ns = number,
            "latency_ns" => self.latency_ns = number,
            "hop_ns" => self.hop_ns = number,
            "host_bytes_per_s" => self.host_bytes_per_s = number,
            "shared_latency_ns" => self.shared_latency_ns = number,
            "shared_bytes_per_s" => self.shared_bytes_per_s = number,
            _ => return Err(unreadable()),
        }
        self.check()
    }

    /// Checks ranges and names.
    ///
    /// # Errors
    /// [`LinksError`] of the first figure that is wrong.
    pub fn check(&self) -> Result<(), LinksError> {
        if let Some(name) = &self.interconnect
            && INTERCONNECTS.iter().all(|one| one.name != name)
        {
            return Err(LinksError::Interconnect { name: name.clone() });
        }
        for figure in &FIGURES {
            let value = self.stated(figure.name);
            in_range(figure.name, value, figure.least..=figure.most)?;
        }
        let speeds = self.bytes_per_s.iter().copied();
        let of_uplinks = self.uplinks.iter().filter_map(|link| link.bytes_per_s);
        in_range("bytes_per_s", speeds.chain(of_uplinks), 1.0..=1e15)?;
        let counts = self.parallel.iter().copied();
        let of_uplinks = self.uplinks.iter().map(|link| link.links);
        // Less than one link: a share of a link that others use as well.
        in_range("parallel", counts.chain(of_uplinks), 1e-6..=1e6)
    }
}

fn in_range(
    name: &str,
    values: impl IntoIterator<Item = f64>,
    range: std::ops::RangeInclusive<f64>,
) -> Result<(), LinksError> {
    match values.into_iter().find(|value| !range.contains(value)) {
        None => Ok(()),
        Some(value) => Err(LinksError::Range {
            name: name.to_owned(),
            value,
            least: *range.start(),
            most: *range.end(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stated_replaces_the_interconnects_figures() {
        let mut links = Links::default();
        assert!(links.is_assumed());
        assert_eq!(links.figures().host_bytes_per_s, 25e9);
        links.set("interconnect=10gbe").unwrap();
        links.set("latency_ns=30000").unwrap();
        let figures = links.figures();
        assert_eq!(figures.latency_s, 30000.0 * 1e-9);
        assert_eq!(figures.overhead_s, 5000.0 * 1e-9);
        assert!((figures.host_bytes_per_s - 1.1769e9).abs() < 1e5);
        assert_eq!(figures.shared_bytes_per_s, 1.2e10);
        assert!(!links.is_assumed());
    }

    #[test]
    fn figures_that_no_network_has_are_refused_in_one_line() {
        let mut links = Links::default();
        for (setting, why) in [
            ("latency_ns", "expected interconnect=NAME"),
            ("latency=5", "expected interconnect=NAME"),
            ("latency_ns=fast", "expected interconnect=NAME"),
            ("latency_ns=NaN", "expected 0e0 to 1e12"),
            ("host_bytes_per_s=0", "expected 1e0 to 1e15"),
            ("interconnect=token-ring", "expected hdr, slingshot-11"),
        ] {
            let error = links.clone().set(setting).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        }
        links.bytes_per_s = vec![1e9, -1.0];
        assert!(links.check().is_err());
        links.bytes_per_s.clear();
        links.parallel = vec![0.0];
        assert!(links.check().is_err());
    }

    #[test]
    fn the_documentation_has_every_figure_and_interconnect() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mpi.md");
        let page = std::fs::read_to_string(page).unwrap();
        for figure in FIGURES {
            let row = page
                .lines()
                .find(|line| line.starts_with(&format!("| `{}` |", figure.name)));
            let row = row.unwrap_or_else(|| panic!("{} is missing", figure.name));
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            assert_eq!(cells[3].parse().ok(), figure.default, "{row}");
            let range = cells[4].split_once(" to ").unwrap();
            assert_eq!(range.0.parse(), Ok(figure.least), "{row}");
            assert_eq!(range.1.parse(), Ok(figure.most), "{row}");
            assert_eq!(cells[5], figure.unit);
        }
        for one in INTERCONNECTS {
            assert!(
                page.contains(&format!("`{}`", one.name)),
                "{} is missing",
                one.name
            );
        }
    }

    #[test]
    fn the_defaults_are_in_their_ranges() {
        for one in INTERCONNECTS {
            let links = Links {
                interconnect: Some(one.name.to_owned()),
                overhead_ns: Some(one.overhead_ns),
                latency_ns: Some(one.latency_ns),
                hop_ns: Some(one.hop_ns),
                host_bytes_per_s: Some(one.host_bytes_per_s),
                ..Links::default()
            };
            assert_eq!(links.check(), Ok(()));
            assert!(!one.source.is_empty());
        }
        for figure in FIGURES {
            let default = figure.default.unwrap_or(figure.least);
            assert!((figure.least..=figure.most).contains(&default));
        }
    }
}
