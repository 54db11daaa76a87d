//! `numaloc lab topology`: the machine as the guest sees it, for plans.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use numaloc_lab::{Job, PrivateCache, Sinks};
use numaloc_topology::{Topology, from_xml};
use serde_json::json;

use super::{Lab, Shape, launch};
use crate::error::CliError;
use crate::ui::Ui;

/// Write the virtual machine's topology as hwloc XML, for `numaloc plan --machine`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc lab topology --output lab.xml
  numaloc lab topology --nodes 2 --cpus 4 > two.xml

Boots the machine once and runs hwloc inside it, so that a plan made for the file fits the guest.")]
pub struct Args {
    #[command(flatten)]
    shape: Shape,
    /// File to write [default and `-`: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

impl Args {
    /// Boots the machine, runs hwloc in it and writes the XML.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let output = self
            .output
            .as_deref()
            .map(|path| ui.output(path, self.force))
            .transpose()?;
        let lab = Lab::new(&self.shape, ui)?;
        let (xml, topology) = ask(&lab)?;
        match &output {
            Some(output) => {
                let path = output.path();
                output.write(xml.as_bytes())?;
                ui.written(
                    output,
                    || {
                        format!(
                            "{}: {}, fingerprint {}\n",
                            path.display(),
                            topology.summary(),
                            topology.fingerprint()
                        )
                    },
                    || json!({"version": 1, "file": path, "fingerprint": topology.fingerprint()}),
                );
            }
            None => ui.result(
                || xml.clone(),
                || json!({"version": 1, "xml": xml, "fingerprint": topology.fingerprint()}),
            ),
        }
        Ok(0)
    }
}

/// The guest's hwloc XML, as text and parsed, with the private cache that the lab counts by.
pub fn ask(lab: &Lab) -> Result<(String, Topology), CliError> {
    let lstopo = launch::program("lstopo-no-graphics")
        .map_err(|error| error.hint("apt-get install hwloc-nox").status(125))?;
    let (out, err) = (Buffer::default(), Buffer::default());
    let sinks = Sinks {
        out: Box::new(out.clone()),
        err: Box::new(err.clone()),
    };
    // Without PCI devices, which are not part of a plan's machine.
    let job = Job::new(lstopo, &["--of", "xml", "--no-io", "-"]);
    let outcome = lab.run_into(&job, sinks)?;
    let xml = counted(&out.text(), &job.cache);
    if outcome.ended.status() != 0 || !xml.contains("<topology") {
        return Err(CliError::tool(format!(
            "hwloc in the guest ended with status {}: {}",
            outcome.ended.status(),
            err.text().lines().last().unwrap_or("no message")
        )));
    }
    let folder = tempfile::tempdir()
        .map_err(|error| CliError::tool(format!("cannot create a temporary folder: {error}")))?;
    let file = folder.path().join("lab.xml");
    std::fs::write(&file, &xml)
        .map_err(|error| CliError::tool(format!("cannot write {}: {error}", file.display())))?;
    let topology = from_xml(&file)?;
    check(lab, &topology)?;
    Ok((xml, topology))
}

/// The XML with the private cache in front of the counters instead of the second-level cache of QEMU's processor, which
/// has twice the size: a plan is to expect the accesses that the lab counts.
fn counted(xml: &str, cache: &PrivateCache) -> String {
    let mut parts = xml.split("<object type=\"L2Cache\"");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (attributes, rest) = part.split_once('>').unwrap_or((part, ""));
        let with = set(attributes, "cache_size", cache.bytes);
        let with = set(&with, "cache_associativity", cache.ways as u64);
        text += &format!("<object type=\"L2Cache\"{with}>{rest}");
    }
    text
}

/// Attributes with another value of the one with this name, if it is there.
fn set(attributes: &str, name: &str, value: u64) -> String {
    let whole = attributes
        .split_once(&format!(" {name}=\""))
        .and_then(|(before, after)| Some((before, after.split_once('"')?.1)));
    whole.map_or_else(
        || attributes.to_owned(),
        |(before, after)| format!("{before} {name}=\"{value}\"{after}"),
    )
}

/// Checks that the guest numbers nodes and CPUs as in our layout.
fn check(lab: &Lab, topology: &Topology) -> Result<(), CliError> {
    let nodes: Vec<usize> = topology.nodes().iter().map(|node| node.pus.len()).collect();
    let numbered = topology
        .pus()
        .iter()
        .enumerate()
        .all(|(at, pu)| pu.os.index() == at)
        && topology
            .nodes()
            .iter()
            .enumerate()
            .all(|(at, node)| node.os.index() == at);
    if nodes == lab.machine.cpus && numbered {
        return Ok(());
    }
    Err(CliError::tool(format!(
        "the guest has {nodes:?} CPUs on its nodes, asked for were {:?}",
        lab.machine.cpus
    )))
}

/// A buffer that several threads append to.
#[derive(Clone, Default)]
pub struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    /// The content so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no panic holds it")).into_owned()
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0
            .lock()
            .expect("no panic holds it")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_level_caches_are_those_that_the_lab_counts_by() {
        let object = |kind: &str, size: u64, ways: u64| {
            format!(
                "<object type=\"{kind}\" gp_index=\"7\" cache_size=\"{size}\" depth=\"2\" cache_associativity=\"{ways}\">\n\
                 <object type=\"PU\" os_index=\"0\"/></object>"
            )
        };
        let xml = |size, ways| {
            [
                object("L3Cache", 1 << 24, 16),
                object("L2Cache", size, ways),
                object("L2Cache", size, ways),
                object("L1Cache", 1 << 16, 2),
            ]
            .concat()
        };
        let cache = PrivateCache::default();
        assert_eq!(counted(&xml(1 << 19, 16), &cache), xml(1 << 18, 8));
        assert_eq!(counted("<topology/>", &cache), "<topology/>");
        let without = "<object type=\"L2Cache\" depth=\"2\"/>";
        assert_eq!(counted(without, &cache), without);
    }
}
