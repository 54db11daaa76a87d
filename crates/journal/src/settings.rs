//! The settings of a recording: one table, which is a structure for programs and text for carriers.
//!
//! The recorder encodes them; the code inside the traced process decodes them. A program under QEMU receives them as
//! arguments of the plugin ([`Config::plugin_option`]), an instrumented program in the environment variable
//! [`VARIABLE`], and a program that replaces another through `execve` as its predecessor encodes them. The text is
//! `name=value`, joined by commas, for each setting that differs from its default. In values the bytes `%`, `,`, `=`
//! and those outside printable ASCII are written as `%XX`.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use numaloc_access_trace::message::CacheSize;
use numaloc_access_trace::windows::Windows;
use numaloc_model::Layer;

use crate::bursts::{Bursts, MILLION};

mod filter;

pub use filter::Filter;

/// Environment variable with the settings of an instrumented program's recording.
pub const VARIABLE: &str = "NUMALOC_SETTINGS";

/// Where the processes of a recording find the table of the memory that they share: a file that process `pid` has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The process.
    pub pid: u32,
    /// Its descriptor.
    pub descriptor: u32,
    /// A number in the table, by which a process notices a reused descriptor.
    pub nonce: u64,
}

/// A descriptor that processes inherit, and the inode of its file, by which a process notices a reused descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// The descriptor.
    pub descriptor: u32,
    /// The inode.
    pub inode: u64,
}

/// Where processes get their journals ([`crate::station`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// The folder of the journals.
    pub folder: Inherited,
    /// A socket to the recorder.
    pub registrar: Inherited,
}

/// Which accesses the QEMU plugin records together.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// None.
    Off,
    /// Those of a block, after validation.
    #[default]
    On,
    /// None, with validation of all blocks.
    Check,
}

impl Grouping {
    const NAMES: [(Self, &str); 3] = [(Self::Off, "off"), (Self::On, "on"), (Self::Check, "check")];
}

/// Where the kernel makes transparent huge pages, on which first touch depends.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// As this machine does.
    #[default]
    Machine,
    /// Everywhere.
    Always,
    /// Where the program advises it.
    Madvise,
    /// Nowhere.
    Never,
}

impl HugePages {
    const NAMES: [(Self, &str); 4] = [
        (Self::Machine, "machine"),
        (Self::Always, "always"),
        (Self::Madvise, "madvise"),
        (Self::Never, "never"),
    ];

    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let known = Self::NAMES.iter().find(|known| known.1 == name);
        known.map(|known| known.0)
    }
}

/// Why settings cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// There is no such setting.
    #[error(
        "unknown setting {name} of the recording: numaloc and its frontend may be of different versions"
    )]
    Unknown {
        /// The name given.
        name: String,
    },
    /// The value is none of the setting's.
    #[error("setting {name} of the recording is {value:?}, expected {expected}")]
    Value {
        /// Name of the setting.
        name: &'static str,
        /// The value given.
        value: String,
        /// Type and range of the setting.
        expected: String,
    },
}

/// A row of the table of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name: that of the field of [`Config`].
    pub name: &'static str,
    /// Type of the values, with their range.
    pub kind: String,
    /// Unit of the values, empty for none.
    pub unit: &'static str,
    /// Default as it would be encoded.
    pub default: String,
    /// What it sets.
    pub about: &'static str,
}

/// Declares [`Config`]. Each row is a field, its default, its unit, and for numbers with a range that range.
macro_rules! settings {
    ($(
        $(#[doc = $about:literal])+
        $name:ident: $type:ty = $default:expr, $unit:literal $(, $range:expr)?;
    )*) => {
        /// Settings of a recording.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Config {
            $($(#[doc = $about])+ pub $name: $type,)*
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl Config {
            /// The table of settings.
            #[must_use]
            pub fn table() -> Vec<Setting> {
                let standard = Self::default();
                vec![$(Setting {
                    name: stringify!($name),
                    kind: expected::<$type>(None $(.or(Some(range_of(&$range))))?),
                    unit: $unit,
                    default: escape(&standard.$name.encode()),
                    about: concat!($($about),+),
                },)*]
            }

            /// Names and encoded values of the settings that differ from their defaults.
            fn changed(&self) -> Vec<(&'static str, Vec<u8>)> {
                let standard = Self::default();
                let mut changed = Vec::new();
                $(if self.$name != standard.$name {
                    changed.push((stringify!($name), self.$name.encode()));
                })*
                changed
            }

            fn set(&mut self, name: &str, value: &[u8]) -> Result<(), SettingError> {
                match name {
                    $(stringify!($name) => {
                        let decoded = <$type as Value>::decode(value)
                            $(.filter(|value| $range.contains(value)))?;
                        self.$name = decoded.ok_or_else(|| SettingError::Value {
                            name: stringify!($name),
                            value: String::from_utf8_lossy(value).into_owned(),
                            expected: expected::<$type>(None $(.or(Some(range_of(&$range))))?),
                        })?;
                    })*
                    _ => return Err(SettingError::Unknown { name: name.to_owned() }),
                }
                Ok(())
            }
        }
    };
}

settings! {
    /// Folder of the journals.
    folder: PathBuf = PathBuf::from("."), "";
    /// The folder, and a socket to the recorder, as descriptors.
    station: Option<Station> = None, "descriptors, inodes";
    /// Name of the frontend, for the profile.
    frontend: String = String::new(), "";
    /// The program's file, links resolved.
    program: PathBuf = PathBuf::new(), "";
    /// File of the QEMU plugin, to load it again after `execve`.
    plugin: PathBuf = PathBuf::new(), "";
    /// log2 of the line size in bytes.
    line_shift: u32 = 6, "log2 of bytes", 3..=12;
    /// Count time in accesses, joined at synchronisation; otherwise in nanoseconds.
    virtual_clock: bool = true, "";
    /// Shortest slice, in accesses or nanoseconds.
    slice: u64 = 1 << 14, "accesses or ns", 1..=u64::MAX;
    /// Maximum number of slices; their length doubles when it is reached.
    slices: u64 = 1000, "", 1..=u64::MAX;
    /// Bytes of page counts per span at which the spans double.
    page_bytes: u64 = 32 << 20, "bytes";
    /// The communication layers to count.
    layers: Vec<Layer> = vec![Layer::WriteRead], "";
    /// Sampled share of the time ([`Bursts`]); a million records all of it.
    time_share_ppm: u32 = MILLION as u32, "millionths", 1..=MILLION as u32;
    /// Sampled share of the lines; a million records all of them.
    line_share_ppm: u32 = MILLION as u32, "millionths", 1..=MILLION as u32;
    /// `write_read` counts a read only if it is the next access to the line after the write (DeLoc's definition, read
    /// literally).
    consecutive: bool = false, "";
    /// Memory that the tables may take on top of what the program's size and number of threads allow.
    memory: u64 = 256 << 20, "bytes";
    /// Caches that filter the access trace; none for no trace. Needs the virtual clock and no sampling.
    trace: Option<Filter> = None, "bytes, ways; millionths, lines";
    /// Path of the process's first thread.
    path: String = "0".to_owned(), "";
    /// Number of the process image: 0, and one more after each `execve`.
    image: u32 = 0, "";
    /// Threads that the first thread created in earlier images.
    created_threads: u32 = 0, "";
    /// Processes that the first thread created in earlier images.
    created_processes: u32 = 0, "";
    /// The first thread's virtual clock at the start of the image.
    clock: u64 = 0, "accesses";
    /// Monotonic time from which wall times count; 0 for the start of the process.
    origin_ns: u64 = 0, "ns";
    /// The same as time since 1970, for processes on several hosts; 0 for none.
    since_ns: u64 = 0, "ns";
    /// The recorder's host, if processes may run on others too; empty if not.
    host: String = String::new(), "";
    /// The table of memory shared by the processes of the recording, on the recorder's host.
    cross_process: Option<Place> = None, "process id, descriptor, nonce";
    /// Where transparent huge pages are made: decides which thread places the pages of a huge one.
    huge_pages: HugePages = HugePages::Machine, "";
    /// QEMU plugin: which accesses are recorded together.
    group: Grouping = Grouping::On, "";
    /// QEMU plugin: register all callbacks but count nothing, to measure the cost of QEMU's callbacks alone (`make
    /// bench-trace`).
    floor: bool = false, "";
}

impl Config {
    /// Encodes the settings that differ from their defaults.
    #[must_use]
    pub fn encode(&self) -> OsString {
        let pair = |(name, value): (&str, Vec<u8>)| format!("{name}={}", escape(&value));
        let pairs: Vec<String> = self.changed().into_iter().map(pair).collect();
        pairs.join(",").into()
    }

    /// The value of QEMU's option `-plugin`: the plugin's file, with commas doubled, and the settings.
    #[must_use]
    pub fn plugin_option(&self) -> OsString {
        let mut option = Vec::new();
        for &byte in self.plugin.as_os_str().as_bytes() {
            option.push(byte);
            if byte == b',' {
                option.push(byte);
            }
        }
        option.push(b',');
        option.extend(self.encode().into_vec());
        OsString::from_vec(option)
    }

    /// Sets what `text` contains, in the form of [`Config::encode`].
    ///
    /// # Errors
    /// The first setting that is unknown or has an impossible value; the settings before it are set.
    pub fn decode(&mut self, text: &OsStr) -> Result<(), SettingError> {
        let pairs = text.as_bytes().split(|&byte| byte == b',');
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let end = pair.iter().position(|&byte| byte == b'=');
            let (name, value) = match end {
                Some(end) => (&pair[..end], &pair[end + 1..]),
                None => (pair, &[][..]),
            };
            self.set(&String::from_utf8_lossy(name), &unescape(value))?;
        }
        Ok(())
    }

    /// Schedule of sampling in time; `None` when all of it is recorded.
    #[must_use]
    pub fn bursts(&self) -> Option<Bursts> {
        Bursts::of_clock(self.time_share_ppm, self.virtual_clock)
    }
}

/// A type of settings.
trait Value: Sized {
    /// Name of the type.
    const KIND: &'static str;
    fn encode(&self) -> Vec<u8>;
    /// The value; `None` for bytes that [`Value::encode`] does not produce.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

impl Value for PathBuf {
    const KIND: &'static str = "a path";

    fn encode(&self) -> Vec<u8> {
        self.as_os_str().as_bytes().to_owned()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(OsStr::from_bytes(bytes).into())
    }
}

impl Value for String {
    const KIND: &'static str = "a string";

    fn encode(&self) -> Vec<u8> {
        self.as_bytes().to_owned()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }
}

impl Value for bool {
    const KIND: &'static str = "0 or 1";

    fn encode(&self) -> Vec<u8> {
        vec![b'0' + u8::from(*self)]
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            b"0" => Some(false),
            b"1" => Some(true),
            _ => None,
        }
    }
}

impl Value for u64 {
    const KIND: &'static str = "a number";

    fn encode(&self) -> Vec<u8> {
        self.to_string().into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok()?.parse().ok()
    }
}

impl Value for u32 {
    const KIND: &'static str = "a number of at most 32 bits";

    fn encode(&self) -> Vec<u8> {
        u64::from(*self).encode()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        u64::decode(bytes)?.try_into().ok()
    }
}

impl Value for Vec<Layer> {
    const KIND: &'static str = "layers joined by +";

    fn encode(&self) -> Vec<u8> {
        let names: Vec<&str> = self.iter().map(|layer| layer.name()).collect();
        names.join("+").into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let names = std::str::from_utf8(bytes).ok()?;
        let names = names.split('+').filter(|name| !name.is_empty());
        names.map(Layer::from_name).collect()
    }
}

fn windows(share: u64, lines: u64) -> Option<Windows> {
    let found = Windows {
        share_ppm: share.try_into().ok()?,
        warm_lines: lines.try_into().ok()?,
    };
    found.is_valid().then_some(found)
}

impl Value for Option<Filter> {
    const KIND: &'static str = "nothing, or size and ways of two caches and share and lines of windows: six numbers, at least 1 way, joined by +";

    fn encode(&self) -> Vec<u8> {
        let numbers = |Filter {
                           l1, l2, windows, ..
                       }| {
            let [share, lines] = windows.map_or([0, 0], |windows: Windows| {
                [windows.share_ppm, windows.warm_lines].map(u64::from)
            });
            [l1.bytes, l1.ways, l2.bytes, l2.ways, share, lines]
        };
        encode_numbers(self.map(numbers))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let Some([l1_bytes, l1_ways, l2_bytes, l2_ways, share, lines]) = decode_numbers(bytes)?
        else {
            return Some(None);
        };
        let cache = |bytes, ways| (ways > 0).then_some(CacheSize { bytes, ways });
        Some(Some(Filter {
            l1: cache(l1_bytes, l1_ways)?,
            l2: cache(l2_bytes, l2_ways)?,
            windows: match share {
                0 => None,
                _ => Some(windows(share, lines)?),
            },
            marks_loads: false,
        }))
    }
}

impl Value for Option<Place> {
    const KIND: &'static str =
        "nothing, or process id, descriptor and nonce: three numbers joined by +";

    fn encode(&self) -> Vec<u8> {
        let numbers = |place: Place| [place.pid.into(), place.descriptor.into(), place.nonce];
        encode_numbers(self.map(numbers))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let Some([pid, descriptor, nonce]) = decode_numbers(bytes)? else {
            return Some(None);
        };
        Some(Some(Place {
            pid: pid.try_into().ok()?,
            descriptor: descriptor.try_into().ok()?,
            nonce,
        }))
    }
}

impl Value for Option<Station> {
    const KIND: &'static str = "nothing, or descriptor and inode of the folder and of the socket: four numbers joined by +";

    fn encode(&self) -> Vec<u8> {
        let numbers = |Station { folder, registrar }| {
            let words = |Inherited { descriptor, inode }| [u64::from(descriptor), inode];
            let ([a, b], [c, d]) = (words(folder), words(registrar));
            [a, b, c, d]
        };
        encode_numbers(self.map(numbers))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let Some([a, b, c, d]) = decode_numbers(bytes)? else {
            return Some(None);
        };
        let inherited = |descriptor: u64, inode| {
            Some(Inherited {
                descriptor: descriptor.try_into().ok()?,
                inode,
            })
        };
        Some(Some(Station {
            folder: inherited(a, b)?,
            registrar: inherited(c, d)?,
        }))
    }
}

impl Value for Grouping {
    const KIND: &'static str = "off, on or check";

    fn encode(&self) -> Vec<u8> {
        Self::NAMES[*self as usize].1.into()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut names = Self::NAMES.iter();
        Some(names.find(|known| known.1.as_bytes() == bytes)?.0)
    }
}

impl Value for HugePages {
    const KIND: &'static str = "machine, always, madvise or never";

    fn encode(&self) -> Vec<u8> {
        Self::NAMES[*self as usize].1.into()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut names = Self::NAMES.iter();
        Some(names.find(|known| known.1.as_bytes() == bytes)?.0)
    }
}

/// Numbers joined by `+`; empty for none.
fn encode_numbers<const N: usize>(numbers: Option<[u64; N]>) -> Vec<u8> {
    let numbers = numbers.map(|numbers| numbers.map(|number| number.to_string()).join("+"));
    numbers.unwrap_or_default().into_bytes()
}

/// The inverse of [`encode_numbers`]; the outer `None` for anything else.
fn decode_numbers<const N: usize>(bytes: &[u8]) -> Option<Option<[u64; N]>> {
    if bytes.is_empty() {
        return Some(None);
    }
    let numbers: Option<Vec<u64>> = bytes.split(|&byte| byte == b'+').map(u64::decode).collect();
    Some(Some(numbers?.try_into().ok()?))
}

fn range_of<T: ToString>(range: &RangeInclusive<T>) -> (String, String) {
    (range.start().to_string(), range.end().to_string())
}

/// What values of a type look like, within a range if there is one.
fn expected<T: Value>(range: Option<(String, String)>) -> String {
    match range {
        None => T::KIND.to_owned(),
        Some((least, most)) if most == u64::MAX.to_string() => {
            format!("a number, at least {least}")
        }
        Some((least, most)) => format!("a number from {least} to {most}"),
    }
}

fn escape(value: &[u8]) -> String {
    let mut text = String::new();
    for &byte in value {
        match byte {
            b'%' | b',' | b'=' => text += &format!("%{byte:02X}"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

fn unescape(mut text: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    while let Some((&byte, rest)) = text.split_first() {
        let code = rest
            .get(..2)
            .and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match code.filter(|_| byte == b'%') {
            Some(coded) => {
                value.push(coded);
                text = &rest[2..];
            }
            None => {
                value.push(byte);
                text = rest;
            }
        }
    }
    value
}

#[cfg(test)]
mod tests;
