//! The plugin's state: handles markers and counts accesses.

use std::cell::UnsafeCell;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use crate::cache::{Directory, Filter, Served};
use crate::counters::{Counters, Slices};
use crate::layout::Layout;
use crate::marker::Marker;
use crate::samples::{Port, Sample};
use crate::strings::Words;

const PAGE_BITS: u32 = 12;
const TRANSLATIONS: usize = 256;

/// The plugin's options on QEMU's command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Path of the counts file.
    pub out: PathBuf,
    /// Bytes per memory node.
    pub sizes: Vec<u64>,
    /// Private cache per vCPU in bytes.
    pub cache_bytes: u64,
    /// Its associativity (ways).
    pub cache_ways: usize,
    /// Initial length of a time slice in ms.
    pub slice_ms: u64,
    /// Socket to which samples of accesses are written, if any.
    pub samples: Option<PathBuf>,
    /// Accesses below the private caches per sample.
    pub period: u32,
}

impl Options {
    /// Parses `name=value` arguments; `sizes` is separated by `:`.
    ///
    /// # Errors
    /// A one-line message naming the argument that is wrong or missing.
    pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut options = Self {
            out: PathBuf::new(),
            sizes: Vec::new(),
            cache_bytes: 256 << 10,
            cache_ways: 8,
            slice_ms: 50,
            samples: None,
            period: 1,
        };
        for argument in arguments {
            let (name, value) = argument.split_once('=').ok_or(argument)?;
            let number = |text: &str| {
                text.parse()
                    .map_err(|_| format!("{argument}: not a number"))
            };
            match name {
                "out" => options.out = value.into(),
                "sizes" => {
                    options.sizes = value.split(':').map(number).collect::<Result<_, _>>()?;
                }
                "cache" => options.cache_bytes = number(value)?,
                "ways" => options.cache_ways = number(value)?.max(1) as usize,
                "slice_ms" => options.slice_ms = number(value)?.max(1),
                "samples" => options.samples = Some(value.into()),
                "period" => options.period = number(value)?.clamp(1, u32::MAX.into()) as u32,
                _ => return Err(format!("{argument}: unknown argument")),
            }
        }
        if options.out.as_os_str().is_empty() || options.sizes.is_empty() {
            return Err("out= and sizes= are required".into());
        }
        Ok(options)
    }
}

/// Translation of a virtual page, valid until the vCPU next enters the kernel.
#[derive(Clone, Copy, Default)]
struct Translation {
    page: u64,
    epoch: u64,
    node: usize,
    /// First dense line of the page.
    line: u64,
}

/// State that only the vCPU's own thread accesses.
pub struct Private {
    filter: Filter,
    translations: Vec<Translation>,
    epoch: u64,
    /// Reported address of the agent's last access.
    last_probed: u64,
    strings: Words,
    /// Accesses below the private cache until the next sample.
    until_sample: u32,
}

/// One vCPU.
struct Vcpu(UnsafeCell<Private>);

// SAFETY: QEMU runs each vCPU on one thread and passes that vCPU's index to its callbacks; `private` is
// called with that index only, so no two threads reach one cell.
unsafe impl Sync for Vcpu {}

/// The state of the plugin.
pub struct Machine {
    options: Options,
    vcpus: Vec<Vcpu>,
    counters: Counters,
    directory: Directory,
    layout: OnceLock<Layout>,
    /// Reported page addresses by node.
    samples: Mutex<Vec<Vec<u64>>>,
    /// Number of the node being probed + 1, or [`EXCLUDING`], or 0.
    probing: AtomicU32,
    counting: AtomicBool,
    started: Mutex<Option<Instant>>,
    slices: Mutex<Slices>,
    unknown: AtomicU64,
    /// Dense page numbers of excluded code.
    excluded: Mutex<HashSet<u64>>,
    /// Host address of the first byte of each node.
    host_base: Mutex<Vec<Option<u64>>>,
    port: Option<Port>,
    failure: Mutex<Option<String>>,
}

const EXCLUDING: u32 = u32::MAX;

impl Machine {
    /// State for a machine of `vcpus` vCPUs.
    pub fn new(options: Options, vcpus: usize) -> Self {
        let nodes = options.sizes.len();
        let private = || Private {
            filter: Filter::new(options.cache_bytes, options.cache_ways),
            translations: vec![Translation::default(); TRANSLATIONS],
            epoch: 1,
            last_probed: 0,
            strings: Words::default(),
            until_sample: options.period,
        };
        Self {
            port: options.samples.clone().map(Port::open),
            vcpus: (0..vcpus)
                .map(|_| Vcpu(UnsafeCell::new(private())))
                .collect(),
            counters: Counters::new(vcpus, nodes),
            directory: Directory::new(options.sizes.iter().sum()),
            layout: OnceLock::new(),
            samples: Mutex::new(vec![Vec::new(); nodes]),
            probing: AtomicU32::new(0),
            counting: AtomicBool::new(false),
            started: Mutex::new(None),
            slices: Mutex::default(),
            unknown: AtomicU64::new(0),
            excluded: Mutex::default(),
            host_base: Mutex::new(vec![None; nodes]),
            failure: Mutex::default(),
            options,
        }
    }

    /// The state of a vCPU.
    ///
    /// # Safety
    /// Only the thread that runs `vcpu` may call this, and must drop the result before it calls again.
    #[allow(clippy::mut_from_ref)]
    unsafe fn private(&self, vcpu: usize) -> &mut Private {
        // SAFETY: guaranteed by the caller: one thread, one reference at a time.
        unsafe { &mut *self.vcpus[vcpu].0.get() }
    }

    /// Counts a data access of the program under study. `reported` queries QEMU for the physical address (`None`
    /// for device memory).
    ///
    /// # Safety
    /// As for `private`: called on the thread of `vcpu`, not from within another call for it.
    pub unsafe fn access(
        &self,
        vcpu: usize,
        vaddr: u64,
        store: bool,
        reported: impl FnOnce() -> Option<u64>,
    ) {
        if self.counting.load(Relaxed) {
            // SAFETY: the caller's obligation is the same.
            let private = unsafe { self.private(vcpu) };
            private.strings.forget();
            self.count(private, vcpu, vaddr, store, reported);
        }
    }

    /// Like [`Self::access`], for an iteration of a string instruction.
    ///
    /// # Safety
    /// As for [`Self::access`].
    pub unsafe fn string_access(
        &self,
        vcpu: usize,
        vaddr: u64,
        store: bool,
        reported: impl FnOnce() -> Option<u64>,
    ) {
        if self.counting.load(Relaxed) {
            // SAFETY: the caller's obligation is the same.
            let private = unsafe { self.private(vcpu) };
            if private.strings.is_next(vaddr, store) {
                self.count(private, vcpu, vaddr, store, reported);
            }
        }
    }

    #[inline(always)]
    fn count(
        &self,
        private: &mut Private,
        vcpu: usize,
        vaddr: u64,
        store: bool,
        reported: impl FnOnce() -> Option<u64>,
    ) {
        let page = vaddr >> PAGE_BITS;
        let slot = page as usize % TRANSLATIONS;
        let mut known = private.translations[slot];
        if known.page != page || known.epoch != private.epoch {
            let place = reported()
                .and_then(|address| self.layout.get()?.find(address & !((1 << PAGE_BITS) - 1)));
            let Some((node, dense)) = place else {
                self.unknown.fetch_add(1, Relaxed);
                return;
            };
            known = Translation {
                page,
                epoch: private.epoch,
                node,
                line: dense / crate::cache::LINE_BYTES,
            };
            private.translations[slot] = known;
        }
        let in_page = vaddr & ((1 << PAGE_BITS) - 1);
        let line = known.line + in_page / crate::cache::LINE_BYTES;
        let served = private
            .filter
            .access(&self.directory, line, vcpu as u32, store);
        self.counters
            .cell(vcpu, known.node)
            .count(store, served.is_hit());
        let leaves = served != Served::Own;
        let Some(port) = self.port.as_ref().filter(|_| leaves) else {
            return;
        };
        private.until_sample -= 1;
        if private.until_sample == 0 {
            private.until_sample = self.options.period;
            port.push(Sample {
                address: vaddr,
                vcpu: vcpu as u16,
                node: known.node as u8,
                store,
                served,
            });
        }
    }

    /// Handles a data access of the agent, which is a probe if the agent announced one.
    ///
    /// # Safety
    /// As for [`Self::access`].
    pub unsafe fn agent_access(&self, vcpu: usize, reported: impl FnOnce() -> Option<u64>) {
        let probing = self.probing.load(Relaxed);
        if probing == 0 {
            return;
        }
        let Some(address) = reported() else { return };
        let page = address >> PAGE_BITS << PAGE_BITS;
        if probing == EXCLUDING {
            if let Some((_, dense)) = self.layout.get().and_then(|layout| layout.find(page)) {
                let mut excluded = self.excluded.lock().expect("no panic holds it");
                excluded.insert(dense >> PAGE_BITS);
            }
            return;
        }
        // SAFETY: the caller's obligation is the same.
        unsafe { self.private(vcpu) }.last_probed = address;
        let mut samples = self.samples.lock().expect("no panic holds it");
        let seen = &mut samples[probing as usize - 1];
        if seen.last() != Some(&page) {
            seen.push(page);
        }
    }

    /// The vCPU enters or leaves the kernel: its translations may be invalid.
    ///
    /// # Safety
    /// As for [`Self::access`].
    pub unsafe fn crosses_kernel(&self, vcpu: usize) {
        // SAFETY: the caller's obligation is the same.
        unsafe { self.private(vcpu) }.epoch += 1;
    }

    /// Whether the code at this host address is on an excluded page.
    pub fn is_excluded(&self, host: u64) -> bool {
        let excluded = self.excluded.lock().expect("no panic holds it");
        if excluded.is_empty() {
            return false;
        }
        let bases = self.host_base.lock().expect("no panic holds it");
        let mut start = 0;
        for (&size, base) in self.options.sizes.iter().zip(bases.iter()) {
            if let Some(inside) = base.and_then(|base| host.checked_sub(base))
                && inside < size
            {
                return excluded.contains(&((start + inside) >> PAGE_BITS));
            }
            start += size;
        }
        false
    }

    fn fail(&self, message: String) {
        self.failure
            .lock()
            .expect("no panic holds it")
            .get_or_insert(message);
        self.write();
    }

    /// Handles a marker of the agent; `host` is the address at which QEMU holds the instruction's bytes.
    ///
    /// # Safety
    /// As for [`Self::access`].
    pub unsafe fn on_marker(&'static self, vcpu: usize, marker: Marker, host: u64) {
        match marker {
            Marker::Probe(node) if node >= self.options.sizes.len() => {
                self.fail(format!(
                    "the guest probes node {node}, which is not configured"
                ));
            }
            Marker::Probe(node) => self.probing.store(node as u32 + 1, SeqCst),
            Marker::Exclude => self.probing.store(EXCLUDING, SeqCst),
            Marker::ProbeEnd | Marker::ExcludeEnd => self.probing.store(0, SeqCst),
            Marker::OnCpu(cpu) if cpu != vcpu => self.fail(format!(
                "the guest's cpu {cpu} is QEMU's vCPU {vcpu}: rows of the matrix would be wrong"
            )),
            Marker::OnCpu(_) => {}
            Marker::Code(node) => {
                // SAFETY: the caller's obligation is the same.
                let data = unsafe { self.private(vcpu) }.last_probed;
                self.locate_host(node, data, host);
            }
            Marker::Fit => {
                let samples = self.samples.lock().expect("no panic holds it");
                match Layout::fit(&self.options.sizes, &samples) {
                    Ok(layout) => drop(self.layout.set(layout)),
                    Err(why) => self.fail(format!("calibration: {why}")),
                }
            }
            Marker::Start => self.start(),
            Marker::Stop => {
                if self.counting.swap(false, SeqCst) {
                    self.end_slice();
                    self.write();
                }
            }
        }
    }

    /// Records where QEMU holds `node`: `data` is the reported, `host` the host address of the same byte.
    fn locate_host(&self, node: usize, data: u64, host: u64) {
        let Some((found, dense)) = self.layout.get().and_then(|layout| layout.find(data)) else {
            return self.fail(format!(
                "calibration: code probe of node {node} is at no known address"
            ));
        };
        if found != node {
            return self.fail(format!(
                "calibration: code probe of node {node} is on node {found}"
            ));
        }
        let before: u64 = self.options.sizes[..node].iter().sum();
        self.host_base.lock().expect("no panic holds it")[node] = Some(host - (dense - before));
    }

    fn start(&'static self) {
        if self.layout.get().is_none() {
            return self.fail("counting was requested before calibration".into());
        }
        self.counters.clear();
        self.unknown.store(0, SeqCst);
        *self.slices.lock().expect("no panic holds it") = Slices::default();
        *self.started.lock().expect("no panic holds it") = Some(Instant::now());
        self.counting.store(true, SeqCst);
        std::thread::spawn(|| {
            let mut pause = std::time::Duration::from_millis(self.options.slice_ms);
            loop {
                std::thread::sleep(pause);
                if !self.counting.load(SeqCst) {
                    return;
                }
                if self.end_slice() {
                    pause *= 2;
                }
            }
        });
    }

    fn seconds(&self) -> f64 {
        let started = self.started.lock().expect("no panic holds it");
        started.map_or(0.0, |at| at.elapsed().as_secs_f64())
    }

    fn end_slice(&self) -> bool {
        let end = self.seconds();
        let mut slices = self.slices.lock().expect("no panic holds it");
        slices.push(end, self.counters.fetches())
    }

    /// Writes the counts so far under their final name, atomically.
    fn write(&self) {
        let mut text = String::from("numaloc-lab-counts 1\n");
        if let Some(failure) = &*self.failure.lock().expect("no panic holds it") {
            text += &format!("error {failure}\n");
        }
        if let Some(layout) = self.layout.get() {
            text += &format!("layout {}\n", layout.hypothesis);
        }
        text += &format!("seconds {:.6}\n", self.seconds());
        text += &format!("unknown {}\n", self.unknown.load(SeqCst));
        self.counters.write(&mut text);
        self.slices
            .lock()
            .expect("no panic holds it")
            .write(&mut text);
        text += "end\n";
        let part = self.options.out.with_extension("part");
        if std::fs::write(&part, text)
            .and_then(|()| std::fs::rename(&part, &self.options.out))
            .is_err()
        {
            eprintln!(
                "numaloc-lab-plugin: cannot write {}",
                self.options.out.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn arguments_are_checked() {
        let options = Options::parse(["out=/tmp/x", "sizes=1:2", "cache=0"].into_iter()).unwrap();
        assert_eq!(
            (options.sizes.as_slice(), options.cache_bytes),
            (&[1, 2][..], 0)
        );
        for bad in [
            &["sizes=1"][..],
            &["out=x", "sizes=a"],
            &["out=x", "sizes=1", "colour=red"],
        ] {
            assert!(Options::parse(bad.iter().copied()).is_err(), "{bad:?}");
        }
    }
}
