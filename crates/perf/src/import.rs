//! Imports `perf.data` files, which are untrusted input.
//!
//! [`header`] checks the file's own structure before anything is allocated for it; the crate
//! `linux-perf-data` then reads the checked part: order of records across CPUs, compression. It gets a header
//! written by us without feature sections, because it trusts the sizes in those.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use linux_perf_data::linux_perf_event_reader::{
    PerfEventType, SamplingPolicy, SoftwareCounterType,
};
use linux_perf_data::{AttributeDescription, Endianness, PerfFileReader, PerfFileRecord};
use numaloc_model::Profile;

use crate::collect::{Collector, Options, Origin, Source};
use crate::error::PerfError;
use crate::record::{Event, Layout};

mod header;

use header::Header;

/// Makes a profile of a `perf.data` file.
///
/// A truncated file (perf killed, disk full) gives a profile of what it holds, with `complete` unset.
///
/// # Errors
/// [`PerfError`] names what is wrong with the file, where, and what to do.
pub fn import(path: &Path, options: &Options) -> Result<Profile, PerfError> {
    let header = Header::read(path)?;
    let file = File::open(path).map_err(|error| PerfError::io("read", path, error))?;
    let reader = Overlaid {
        header: header.rewritten(),
        file: BufReader::new(file),
        at: 0,
    };
    let refuse = |error: linux_perf_data::Error| PerfError::Corrupt {
        path: path.to_owned(),
        offset: header.data.offset,
        found: one_line(&error.to_string()),
        expected: "records that follow their events' layout",
    };
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = PerfFileReader::parse_file(reader).map_err(refuse)?;
    let big_endian = perf_file.endian() == Endianness::BigEndian;
    let (layouts, sources) = events(perf_file.event_attributes(), &header, big_endian);
    let mut collector = Collector::new(options.clone(), sources);
    let mut damaged = 0_u64;
    let mut process = None;
    while let Some(record) = record_iter.next_record(&mut perf_file).map_err(refuse)? {
        let PerfFileRecord::EventRecord { attr_index, record } = record else {
            continue;
        };
        let body = record.data.as_slice();
        match layouts[attr_index].parse(record.record_type.0, record.misc, &body) {
            Some(event) => {
                if let Event::Name {
                    name, exec: true, ..
                } = &event
                {
                    process.get_or_insert_with(|| name.clone());
                }
                collector.feed(attr_index, event);
            }
            None => damaged += 1,
        }
    }
    let mut notes = vec![format!(
        "imported from {}",
        path.file_name().map_or_else(
            || path.display().to_string(),
            |name| name.to_string_lossy().into_owned()
        )
    )];
    if header.cut_short {
        notes.push("the file is truncated: only its intact part was read".to_owned());
    }
    if damaged > 0 {
        notes.push(format!(
            "{damaged} records were shorter than their type and left out"
        ));
    }
    collector.finish(Origin {
        command: program_of(&header.command, process.as_deref()),
        complete: !header.cut_short && damaged == 0,
        notes,
        name: path.display().to_string(),
    })
}

/// The layout of each event's records, and what it samples.
fn events(
    attributes: &[AttributeDescription],
    header: &Header,
    big_endian: bool,
) -> (Vec<Layout>, Vec<Source>) {
    let event = |(index, event): (usize, &AttributeDescription)| {
        let attr = &event.attr;
        let layout = Layout {
            sample_type: attr.sample_format.bits(),
            read_format: header.attrs[index].read_format,
            branch_type: header.attrs[index].branch_type,
            regs_user: attr.sample_regs_user,
            regs_intr: attr.sample_regs_intr,
            sample_id_all: header.attrs[index].sample_id_all,
            big_endian,
        };
        let source = Source {
            name: match header.event_names.get(index) {
                Some(name) => name.clone(),
                None => kind_name(&attr.type_),
            },
            period: match attr.sampling_policy {
                SamplingPolicy::Period(period) => Some(period.get()),
                _ => None,
            },
            faults: is_page_fault(&attr.type_),
        };
        (layout, source)
    };
    attributes.iter().enumerate().map(event).unzip()
}

/// The program's part of perf's own command line: what follows `--`, or starts with the first
/// program that was executed; the whole line if neither is found.
fn program_of(perf: &[String], process: Option<&str>) -> Vec<String> {
    if let Some(at) = perf.iter().position(|argument| argument == "--") {
        return perf[at + 1..].to_vec();
    }
    // The kernel stores only 15 bytes of a name.
    let named = process.and_then(|process| {
        perf.iter().skip(1).position(|argument| {
            let base = argument.rsplit('/').next().unwrap_or(argument);
            base == process || (process.len() == 15 && base.starts_with(process))
        })
    });
    match named {
        Some(at) => perf[at + 1..].to_vec(),
        None => perf.to_vec(),
    }
}

fn is_page_fault(event: &PerfEventType) -> bool {
    use SoftwareCounterType::{PageFaults, PageFaultsMaj, PageFaultsMin};
    matches!(
        event,
        PerfEventType::Software(PageFaults | PageFaultsMin | PageFaultsMaj)
    )
}

fn kind_name(event: &PerfEventType) -> String {
    match event {
        PerfEventType::DynamicPmu(pmu, config, ..) => format!("pmu {pmu} config {config:#x}"),
        other => format!("{other:?}"),
    }
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

/// The file with its header replaced.
struct Overlaid {
    header: [u8; header::SIZE],
    file: BufReader<File>,
    at: u64,
}

impl Read for Overlaid {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self
            .header
            .get(usize::try_from(self.at).unwrap_or(usize::MAX)..)
        {
            Some(rest) if !rest.is_empty() => {
                let length = rest.len().min(buffer.len());
                buffer[..length].copy_from_slice(&rest[..length]);
                self.file.seek(SeekFrom::Start(self.at + length as u64))?;
                length
            }
            _ => self.file.read(buffer)?,
        };
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Overlaid {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => self
                .at
                .checked_add_signed(by)
                .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?,
            SeekFrom::End(_) => self.file.seek(to)?,
        };
        let ahead = i64::try_from(target.wrapping_sub(self.at)).unwrap_or(i64::MAX);
        if target >= self.at && self.at >= header::SIZE as u64 {
            self.file.seek_relative(ahead)?;
        } else {
            self.file.seek(SeekFrom::Start(target))?;
        }
        self.at = target;
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use super::program_of;

    #[test]
    fn the_program_is_found_in_perfs_command_line() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let line = words("/usr/bin/perf mem record -c 1000 ./bin/app --size 10");
        assert_eq!(program_of(&line, Some("app")), words("./bin/app --size 10"));
        let line = words("perf record -d -- sh -c true");
        assert_eq!(program_of(&line, Some("sh")), words("sh -c true"));
        let line = words("perf c2c record /opt/averylongprogramname x");
        assert_eq!(
            program_of(&line, Some("averylongprogra")),
            words("/opt/averylongprogramname x")
        );
        let line = words("perf mem record -a sleep 1");
        assert_eq!(program_of(&line, None), line);
    }
}
