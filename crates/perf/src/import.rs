//! Imports `perf.data` files, which are untrusted input.
//!
//! [`header`] checks the file's own structure before anything is allocated for it; the crate
//! `linux-perf-data` then reads the checked part: order of records across CPUs, compression. It gets a header
//! written by us without feature sections, because it trusts the sizes in those.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use linux_perf_data::linux_perf_event_reader::{
    PerfEventType, SamplingPolicy, SoftwareCounterType,
};
use linux_perf_data::{
    AttributeDescription, Endianness, PerfFile, PerfFileReader, PerfFileRecord, PerfRecordIter,
};
use numaloc_model::Profile;

use crate::collect::{Collector, Options, Origin, Source};
use crate::error::PerfError;
use crate::record::{Event, Layout};

mod header;

use header::Header;

/// Makes a profile of a `perf.data` file, or of the folder that `perf record --threads` writes.
///
/// A truncated file (perf killed, disk full) gives a profile of what it holds, with `complete` unset.
///
/// # Errors
/// [`PerfError`] names what is wrong with the file, where, and what to do.
pub fn import(path: &Path, options: &Options) -> Result<Profile, PerfError> {
    let (header, mut streams) = open(path)?;
    let mut collector = None;
    let (mut damaged, mut process) = (0_u64, None);
    // Each stream is in the order of time; of equal times, the first stream's comes first.
    let mut next: Vec<Option<(usize, Event)>> = Vec::new();
    for stream in &mut streams {
        if collector.is_none() {
            let sources = stream.sources(&header);
            collector = Some(Collector::new(options.clone(), sources));
        }
        next.push(stream.next(&mut damaged)?);
    }
    let mut collector = collector.unwrap_or_else(|| Collector::new(options.clone(), Vec::new()));
    let first = |next: &[Option<(usize, Event)>]| {
        let times = next.iter().enumerate();
        let times = times.filter_map(|(at, event)| Some((event.as_ref()?.1.time(), at)));
        times.min().map(|(_, at)| at)
    };
    while let Some(at) = first(&next) {
        let following = streams[at].next(&mut damaged)?;
        let Some((source, event)) = std::mem::replace(&mut next[at], following) else {
            break;
        };
        if let Event::Name {
            name, exec: true, ..
        } = &event
        {
            process.get_or_insert_with(|| name.clone());
        }
        collector.feed(source, event);
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
        window: None,
    })
}

/// Name of the file with the header in a folder of `perf record --threads`. Each thread's records are in `data.N`.
const DATA: &str = "data";

/// The file with the header in a folder of `perf record --threads`; `None` if it is no such folder.
#[must_use]
pub fn header_in(folder: &Path) -> Option<PathBuf> {
    let file = folder.join(DATA);
    (folder.is_dir() && file.is_file()).then_some(file)
}

/// Reads and checks the header, and opens the records: those of the file itself, then those of each thread.
fn open(path: &Path) -> Result<(Header, Vec<Stream>), PerfError> {
    let in_folder = header_in(path);
    let main = in_folder.clone().unwrap_or_else(|| path.to_owned());
    let mut header = Header::read(&main)?;
    let mut parts = Vec::new();
    if in_folder.is_some() {
        let attributes = header.attr_section;
        if attributes.offset + attributes.size > header.data.offset {
            return Err(PerfError::Corrupt {
                path: main,
                offset: 24,
                found: "events after the records".to_owned(),
                expected: "events before them",
            });
        }
        for part in threads_files(path)? {
            let size = header.of_thread(&part)?;
            parts.push((part, size));
        }
    }
    let mut streams = vec![Stream::open(&main, None, &header)?];
    for (part, size) in parts.iter().filter(|(_, size)| *size > 0) {
        streams.push(Stream::open(&main, Some((part, *size)), &header)?);
    }
    Ok((header, streams))
}

/// The files `data.N` in a folder, by number.
fn threads_files(folder: &Path) -> Result<Vec<PathBuf>, PerfError> {
    let io = |error| PerfError::io("read", folder, error);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("data."));
        if let Some(number) = number.and_then(|number| number.parse::<u32>().ok()) {
            found.push((number, folder.join(&name)));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Records in the order of time.
struct Stream {
    /// The file, for messages.
    path: PathBuf,
    /// Its first record.
    offset: u64,
    file: PerfFile,
    records: PerfRecordIter<Overlaid>,
    layouts: Vec<Layout>,
    big_endian: bool,
}

impl Stream {
    /// Opens the records of the file with the header, or those in a file of their own with a size.
    fn open(main: &Path, part: Option<(&Path, u64)>, header: &Header) -> Result<Self, PerfError> {
        let open = |path: &Path| match File::open(path) {
            Ok(file) => Ok(BufReader::new(file)),
            Err(error) => Err(PerfError::io("read", path, error)),
        };
        let reader = Overlaid {
            header: header.rewritten(part.map_or(header.data.size, |(_, size)| size)),
            file: open(main)?,
            records: match part {
                Some((path, _)) => Some((header.data.offset, open(path)?)),
                None => None,
            },
            at: 0,
        };
        let path = part.map_or(main, |(path, _)| path).to_owned();
        let offset = part.map_or(header.data.offset, |_| 0);
        let PerfFileReader {
            perf_file,
            record_iter,
        } = PerfFileReader::parse_file(reader).map_err(|error| refused(&path, offset, &error))?;
        let big_endian = perf_file.endian() == Endianness::BigEndian;
        let attributes = perf_file.event_attributes();
        let (layouts, _) = events(attributes, header, big_endian);
        Ok(Self {
            path,
            offset,
            layouts,
            file: perf_file,
            records: record_iter,
            big_endian,
        })
    }

    /// What the events sample.
    fn sources(&self, header: &Header) -> Vec<Source> {
        events(self.file.event_attributes(), header, self.big_endian).1
    }

    /// The next event, and the number of its source; counts records that are `damaged`.
    fn next(&mut self, damaged: &mut u64) -> Result<Option<(usize, Event)>, PerfError> {
        loop {
            let record = self.records.next_record(&mut self.file);
            let record = record.map_err(|error| refused(&self.path, self.offset, &error))?;
            let Some(record) = record else {
                return Ok(None);
            };
            let PerfFileRecord::EventRecord { attr_index, record } = record else {
                continue;
            };
            let body = record.data.as_slice();
            let layout = &self.layouts[attr_index];
            match layout.parse(record.record_type.0, record.misc, &body) {
                Some(event) => return Ok(Some((attr_index, event))),
                None => *damaged += 1,
            }
        }
    }
}

fn refused(path: &Path, offset: u64, error: &linux_perf_data::Error) -> PerfError {
    PerfError::Corrupt {
        path: path.to_owned(),
        offset,
        found: one_line(&error.to_string()),
        expected: "records that follow their events' layout",
    }
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
            meaning: None,
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

/// The file with its header replaced, and possibly its records by those of another file.
struct Overlaid {
    header: [u8; header::SIZE],
    file: BufReader<File>,
    /// Where the other file's records begin in this one, and that file.
    records: Option<(u64, BufReader<File>)>,
    at: u64,
}

impl Read for Overlaid {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let at = self.at;
        let in_header = usize::try_from(at)
            .ok()
            .and_then(|at| self.header.get(at..))
            .filter(|rest| !rest.is_empty());
        let read = match (in_header, &mut self.records) {
            (Some(rest), _) => {
                let length = rest.len().min(buffer.len());
                buffer[..length].copy_from_slice(&rest[..length]);
                length
            }
            (None, Some((begin, records))) if at >= *begin => records.read(buffer)?,
            (None, Some((begin, _))) => {
                let length = (*begin - at).min(buffer.len() as u64) as usize;
                self.file.read(&mut buffer[..length])?
            }
            (None, None) => self.file.read(buffer)?,
        };
        self.at += read as u64;
        // Both files are at the place of the next byte.
        if in_header.is_some() {
            self.file.seek(SeekFrom::Start(self.at))?;
        }
        if let Some((begin, records)) = &mut self.records
            && (at..self.at).contains(&(*begin - 1))
        {
            records.seek(SeekFrom::Start(0))?;
        }
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
            SeekFrom::End(by) => match &mut self.records {
                Some((begin, records)) => *begin + records.seek(SeekFrom::End(by))?,
                None => self.file.seek(to)?,
            },
        };
        if let Some((begin, records)) = &mut self.records
            && target >= *begin
        {
            records.seek(SeekFrom::Start(target - *begin))?;
            self.at = target;
            return Ok(target);
        }
        let ahead = i64::try_from(target.wrapping_sub(self.at)).unwrap_or(i64::MAX);
        let is_in_file = self.at >= header::SIZE as u64 && self.records.is_none();
        if target >= self.at && is_in_file {
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
