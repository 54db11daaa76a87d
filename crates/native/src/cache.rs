//! The code cache: fragments of translated code, the links between them, and the table of indirect targets.
//!
//! One cache for all threads. Its lock is held to translate, link, look up and drop, never while the program runs. The
//! cache has two halves: when one is full, everything is unlinked and translation starts again in the other, whose old
//! fragments no thread executes any more ([`crate::invalidate`] waits for that).
#![allow(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use crate::layout::{self, AREA, CODE, MISS, TABLE, TABLE_BYTES, TABLE_ENTRIES};
use crate::lock::Lock;
use crate::regions::Regions;
use crate::state::exit;
use crate::{crossing, sys, translate};

/// The engine: one for the process.
pub static ENGINE: Lock<Engine> = Lock::new(Engine::new());

/// Hashes an address by one multiplication; addresses are not chosen by an attacker.
#[derive(Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
}

type Hashed = BuildHasherDefault<AddressHasher>;

/// A position in a fragment where the program's state is known: the next instruction is the program's at `pc`, or
/// implements it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Offset from the fragment's first byte.
    pub offset: u16,
    /// The program's address, relative to that of the fragment.
    pub delta: i32,
    /// A register whose value is temporarily in a slot of the thread's state: register, slot.
    pub borrowed: Option<(u8, u8)>,
}

/// Translated code of the program's block at one address.
pub struct Fragment {
    /// The program's address.
    pub pc: u64,
    /// Entry for indirect branches: compares the target first.
    pub prefix: u64,
    /// Entry for direct branches.
    pub body: u64,
    /// Address of the displacement of the prefix's jump to the next candidate.
    pub next_candidate: u64,
    /// In ascending order.
    pub points: Vec<Point>,
    /// Pages of the program that it was translated from.
    pub pages: Vec<u64>,
    /// Exits linked to this fragment.
    links: Vec<u32>,
    installed: bool,
}

/// A direct branch out of a fragment.
pub struct Exit {
    /// Target address in the program.
    pub target: u64,
    /// Address of the jump's displacement.
    pub patch: u64,
    /// The code that returns to the engine.
    pub stub: u64,
}

/// Result of [`translate`]; addresses are final.
pub struct Translation {
    /// The fragment.
    pub fragment: Fragment,
    /// Its exits.
    pub exits: Vec<Exit>,
    /// Its code, for the address it was translated for.
    pub code: Vec<u8>,
    /// The code of its exits, for their address.
    pub stubs: Vec<u8>,
}

impl Fragment {
    /// A fragment without links to it.
    pub fn new(pc: u64, prefix: u64) -> Self {
        Self {
            pc,
            prefix,
            body: prefix,
            next_candidate: 0,
            points: Vec::new(),
            pages: Vec::new(),
            links: Vec::new(),
            installed: false,
        }
    }
}

/// One half of the cache.
#[derive(Default)]
struct Half {
    /// End of the fragments' code.
    code: u64,
    /// End of the exits' code.
    stubs: u64,
    fragments: Vec<Fragment>,
    exits: Vec<Exit>,
}

/// Largest size of a translation in bytes.
const ROOM: u64 = 1 << 16;

/// Why there is no code for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The cache is full.
    Full,
}

/// Translated code and the state of the translation.
pub struct Engine {
    /// Executable regions of the program.
    pub regions: Regions,
    /// Pages that the program may write to, but that are read-only at present because code was translated from them.
    pub protected: HashSet<u64, Hashed>,
    halves: [Half; 2],
    current: usize,
    /// Number of flushes of the cache.
    pub generation: u64,
    fragments: HashMap<u64, u32, Hashed>,
    by_page: HashMap<u64, Vec<u32>, Hashed>,
    chains: HashMap<u64, Vec<u32>, Hashed>,
    /// Largest used size of an area in bytes.
    pub limit: u64,
}

const HASHED: Hashed = BuildHasherDefault::new();

impl Engine {
    const fn new() -> Self {
        const EMPTY: Half = Half {
            code: 0,
            stubs: 0,
            fragments: Vec::new(),
            exits: Vec::new(),
        };
        Self {
            regions: Regions::new(),
            protected: HashSet::with_hasher(HASHED),
            halves: [EMPTY; 2],
            current: 0,
            generation: 0,
            fragments: HashMap::with_hasher(HASHED),
            by_page: HashMap::with_hasher(HASHED),
            chains: HashMap::with_hasher(HASHED),
            limit: AREA,
        }
    }

    /// Maps the cache and its tables.
    ///
    /// # Errors
    /// The kernel's error, if the addresses are in use.
    pub fn map(&mut self) -> Result<(), i32> {
        let data = libc::PROT_READ | libc::PROT_WRITE;
        sys::map(TABLE, TABLE_BYTES, data, libc::MAP_FIXED_NOREPLACE)?;
        let code = data | libc::PROT_EXEC;
        let len = CODE.end - CODE.start;
        sys::map(CODE.start, len, code, libc::MAP_FIXED_NOREPLACE)?;
        let places = crossing::places();
        write64(layout::VECTOR_EXIT, places.exit);
        write64(layout::VECTOR_MISS, places.miss);
        let mut miss = crate::emit::Buffer::new(MISS);
        miss.jump_by(layout::VECTOR_MISS);
        write(MISS, miss.bytes());
        self.begin(0);
        Ok(())
    }

    /// Starts in an empty half.
    fn begin(&mut self, half: usize) {
        let (code, stubs) = layout::half(half as u64);
        self.current = half;
        self.halves[half] = Half {
            code,
            stubs,
            ..Half::default()
        };
        for entry in 0..TABLE_ENTRIES {
            write64(TABLE + 8 * entry, MISS);
        }
    }

    /// Code for `pc`, translated now if necessary. `indirect`: also enter it in the table for indirect branches.
    ///
    /// # Errors
    /// [`Missing::Full`] until [`Self::flush`].
    pub fn code_for(&mut self, pc: u64, indirect: bool) -> Result<u64, Missing> {
        let number = self.fragment_for(pc)?;
        if indirect {
            self.install(number);
        }
        Ok(self.halves[self.current].fragments[number as usize].body)
    }

    /// Whether the next translation might not fit.
    pub fn is_full(&self) -> bool {
        let (code, stubs) = layout::half(self.current as u64);
        let half = &self.halves[self.current];
        half.code + ROOM > code + self.limit || half.stubs + ROOM > stubs + self.limit
    }

    fn fragment_for(&mut self, pc: u64) -> Result<u32, Missing> {
        if let Some(&number) = self.fragments.get(&pc) {
            return Ok(number);
        }
        if self.is_full() {
            return Err(Missing::Full);
        }
        let half = &self.halves[self.current];
        let first_exit = half.exits.len() as u64;
        let (at, stubs_at) = (half.code, half.stubs);
        let current = self.current as u64;
        let exit_code = |n: usize| exit::LINK + (first_exit + n as u64) * 2 + current;
        let made = translate::translate(self, pc, at, stubs_at, &exit_code);
        write(at, &made.code);
        write(stubs_at, &made.stubs);
        let half = &mut self.halves[self.current];
        half.code += made.code.len() as u64;
        half.stubs += made.stubs.len() as u64;
        half.exits.extend(made.exits);
        let number = half.fragments.len() as u32;
        for &page in &made.fragment.pages {
            self.by_page.entry(page).or_default().push(number);
        }
        half.fragments.push(made.fragment);
        self.fragments.insert(pc, number);
        Ok(number)
    }

    /// Makes a fragment the first candidate of its table entry for indirect branches.
    fn install(&mut self, number: u32) {
        let fragment = &mut self.halves[self.current].fragments[number as usize];
        if fragment.installed {
            return;
        }
        fragment.installed = true;
        let entry = fragment.pc % TABLE_ENTRIES;
        let chain = self.chains.entry(entry).or_default();
        chain.push(number);
        let slot = TABLE + 8 * entry;
        // SAFETY: an entry of the table.
        let before = unsafe { (slot as *const u64).read() };
        patch(fragment.next_candidate, before);
        write64(slot, fragment.prefix);
    }

    /// Target of an exit's direct branch; links it if the target is translated.
    pub fn resolve(&mut self, code: u64) -> u64 {
        let (half, number) = (((code - exit::LINK) & 1) as usize, (code - exit::LINK) / 2);
        let exit = &self.halves[half].exits[number as usize];
        let (target, displacement) = (exit.target, exit.patch);
        if half == self.current
            && let Ok(fragment) = self.fragment_for(target)
        {
            let fragment = &mut self.halves[half].fragments[fragment as usize];
            fragment.links.push(number as u32);
            patch(displacement, fragment.body);
        }
        target
    }

    /// The program's address, and a borrowed register, at the point of a fragment at an address in the cache.
    pub fn point(&self, at: u64) -> Option<(u64, Option<(u8, u8)>)> {
        self.halves.iter().enumerate().find_map(|(number, half)| {
            let (begin, _) = layout::half(number as u64);
            if !(begin..half.code).contains(&at) {
                return None;
            }
            let next = half
                .fragments
                .partition_point(|fragment| fragment.prefix <= at);
            let fragment = &half.fragments[next.checked_sub(1)?];
            let offset = u16::try_from(at - fragment.prefix).ok()?;
            let found = fragment
                .points
                .binary_search_by_key(&offset, |point| point.offset);
            let point = fragment.points[found.ok()?];
            let pc = fragment.pc.wrapping_add_signed(i64::from(point.delta));
            Some((pc, point.borrowed))
        })
    }

    /// Drops the fragments made from a page. Threads inside one leave it at its next exit.
    pub fn drop_page(&mut self, page: u64) {
        let Some(numbers) = self.by_page.remove(&page) else {
            return;
        };
        for number in numbers {
            self.drop_fragment(number);
        }
    }

    fn drop_fragment(&mut self, number: u32) {
        let half = &mut self.halves[self.current];
        let fragment = &mut half.fragments[number as usize];
        let pc = fragment.pc;
        for link in std::mem::take(&mut fragment.links) {
            let exit = &half.exits[link as usize];
            patch(exit.patch, exit.stub);
        }
        if self.fragments.get(&pc) == Some(&number) {
            self.fragments.remove(&pc);
        }
        if !fragment.installed {
            return;
        }
        // The whole chain is removed; the other fragments are installed again on their next miss.
        let entry = pc % TABLE_ENTRIES;
        write64(TABLE + 8 * entry, MISS);
        for member in self.chains.remove(&entry).unwrap_or_default() {
            let member = &mut half.fragments[member as usize];
            member.installed = false;
            patch(member.next_candidate, MISS);
        }
    }

    /// Pages with code in `start..end`, unordered.
    pub fn pages_with_code(&self, start: u64, end: u64) -> Vec<u64> {
        if (end - start) / sys::PAGE < self.by_page.len() as u64 {
            let pages = (sys::page_down(start)..end).step_by(sys::PAGE as usize);
            return pages
                .filter(|page| self.by_page.contains_key(page))
                .collect();
        }
        let within = |page: &&u64| start < **page + sys::PAGE && **page < end;
        self.by_page.keys().filter(within).copied().collect()
    }

    /// Unlinks everything and starts in the other half, which no thread executes.
    pub fn flush(&mut self) {
        let half = &mut self.halves[self.current];
        for exit in &half.exits {
            patch(exit.patch, exit.stub);
        }
        for fragment in &half.fragments {
            if fragment.installed {
                patch(fragment.next_candidate, MISS);
            }
        }
        self.fragments.clear();
        self.by_page.clear();
        self.chains.clear();
        self.generation += 1;
        self.begin(1 - self.current);
    }
}

fn write64(at: u64, value: u64) {
    // SAFETY: callers name words of the tables.
    unsafe { (at as *mut u64).write_volatile(value) };
}

fn write(at: u64, code: &[u8]) {
    // SAFETY: callers name room of the cache that no thread executes.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len()) };
}

/// Changes the target of a jump while others may execute it: its displacement lies within a cache line.
fn patch(displacement: u64, to: u64) {
    let distance = to.wrapping_sub(displacement + 4) as i32;
    // SAFETY: the displacement of a jump in the cache; one store, wherever it lies in its line.
    unsafe {
        std::arch::asm!("mov dword ptr [{}], {:e}", in(reg) displacement, in(reg) distance,
            options(nostack, preserves_flags));
    }
}
