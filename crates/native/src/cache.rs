//! The code cache: fragments of translated code, the links between them, and the table of indirect targets.
//!
//! One cache for all threads. Its lock is held to translate, link, look up and drop, never while the program runs. The
//! cache has two halves: when one is full, everything is unlinked and translation starts again in the other, whose old
//! fragments no thread executes any more ([`crate::invalidate`] waits for that).

use crate::emit::Buffer;
use crate::fragment::{Branch, Exit, Fragment, Landing, Point, Version};
use crate::landings::Landings;
use crate::layout::{
    self, CODE, COUNTING, EXITS, FRAGMENTS, HALF, JUMPS, MISSED_JUMP, MISSED_RETURN, RETURNS,
    TABLES, TABLES_BYTES,
};
use crate::lock::Lock;
use crate::patch::{retarget, write, write64};
use crate::paths::{Heat, Path};
use crate::record::callable;
use crate::record::descriptor::Light;
use crate::state::exit;
use crate::translate::{self, Place, Source, Workshop};
use crate::{crossing, sys};
use numaloc_follow::address_map::{self, AddressMap};

/// The engine: one for the process.
pub static ENGINE: Lock<Engine> = Lock::new(Engine::new());

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
const ROOM: u64 = 1 << 17;

/// Why there is no code for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The cache is full.
    Full,
}

/// Translated code and the state of the translation.
pub struct Engine {
    /// The program's executable memory.
    pub source: Source,
    workshop: Workshop,
    halves: [Half; 2],
    current: usize,
    /// Number of flushes of the cache.
    pub generation: u64,
    /// For each [`Version`].
    fragments: [AddressMap<u32>; 4],
    by_page: AddressMap<Vec<u32>>,
    /// For both, those of jumps and of returns.
    landings: [[Landings; 2]; 2],
    /// Whether there is code that only counts.
    counts: bool,
    /// Which code is hot.
    pub heat: Heat,
    /// Largest used size of an area in bytes.
    pub limit: u64,
}

impl Engine {
    const fn new() -> Self {
        const EMPTY: Half = Half {
            code: 0,
            stubs: 0,
            fragments: Vec::new(),
            exits: Vec::new(),
        };
        Self {
            source: Source::new(),
            workshop: Workshop::new(),
            halves: [EMPTY; 2],
            current: 0,
            generation: 0,
            fragments: [const { address_map::map() }; 4],
            by_page: address_map::map(),
            landings: [
                [
                    Landings::new(JUMPS, MISSED_JUMP),
                    Landings::new(RETURNS, MISSED_RETURN),
                ],
                [
                    Landings::new(JUMPS + COUNTING, MISSED_JUMP),
                    Landings::new(RETURNS + COUNTING, MISSED_RETURN),
                ],
            ],
            counts: false,
            heat: Heat::new(),
            limit: FRAGMENTS,
        }
    }

    /// Maps the cache and its tables; `recorded`: translated code will record accesses.
    ///
    /// # Errors
    /// The kernel's error, if the addresses are in use.
    pub fn map(&mut self, recorded: bool) -> Result<(), i32> {
        let data = libc::PROT_READ | libc::PROT_WRITE;
        sys::map(TABLES, TABLES_BYTES, data, libc::MAP_FIXED_NOREPLACE)?;
        let code = data | libc::PROT_EXEC;
        let len = CODE.end - CODE.start;
        sys::map(CODE.start, len, code, libc::MAP_FIXED_NOREPLACE)?;
        for (at, len) in [(TABLES, TABLES_BYTES), (CODE.start, len)] {
            sys::keep_out_of_dumps(at, len);
        }
        sys::prefer_large_pages(TABLES, TABLES_BYTES);
        sys::prefer_large_pages(layout::half(0).0, 2 * HALF);
        let places = crossing::places();
        write64(layout::VECTOR_EXIT, places.exit);
        write64(layout::VECTOR_JUMP, places.missed_jump);
        write64(layout::VECTOR_RETURN, places.missed_return);
        write64(layout::VECTOR_RECORD, places.record);
        write64(layout::VECTOR_PLAIN, places.record_plain);
        for (kind, &entry) in Light::ALL.into_iter().zip(&places.light) {
            let entry = match !recorded || callable::is_light(kind) {
                true => entry,
                // Files are read for a call stack, by libraries that use whole vector registers.
                false if kind == Light::Call => places.record,
                false => places.record_plain,
            };
            write64(layout::VECTORS_LIGHT + 8 * kind as u64, entry);
        }
        for branch in [Branch::Jump, Branch::Return] {
            let (at, code) = translate::missed(branch);
            write(at, &code);
        }
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
        let used = if self.counts { 2 } else { 1 };
        let landings = self.landings.iter_mut().take(used).flatten();
        landings.for_each(Landings::clear);
    }

    /// Code for `pc`, translated now if necessary. `arrival`: the kind of indirect branch that goes there, which later
    /// finds it by itself.
    ///
    /// # Errors
    /// [`Missing::Full`] until [`Self::flush`].
    pub fn code_for(
        &mut self,
        pc: u64,
        arrival: Option<Branch>,
        version: Version,
    ) -> Result<u64, Missing> {
        let counting = version == Version::Counting;
        if counting && !self.counts {
            self.counts = true;
            self.landings[1].iter_mut().for_each(Landings::clear);
        }
        let arrival = arrival.filter(|_| version != Version::Noting);
        if let Some(branch) = arrival
            && let Some(landing) = self.landings(branch, counting).find(pc)
        {
            return Ok(landing.body);
        }
        let number = self.fragment_for(&[pc], arrival, version)?;
        let body = self.halves[self.current].fragments[number as usize]
            .body
            .into();
        if let Some(branch) = arrival
            && self.landings(branch, counting).find(pc).is_none()
        {
            self.add_landing(number, branch);
        }
        Ok(body)
    }

    fn landings(&mut self, branch: Branch, counting: bool) -> &mut Landings {
        let [jumps, returns] = &mut self.landings[usize::from(counting)];
        match branch {
            Branch::Jump => jumps,
            Branch::Return => returns,
        }
    }

    /// Adds a landing for a fragment that was made without it.
    fn add_landing(&mut self, number: u32, branch: Branch) {
        let half = &mut self.halves[self.current];
        let fragment = &half.fragments[number as usize];
        let mut code = Buffer::new(half.code);
        let landing = translate::landing(&mut code, branch, fragment.pc, fragment.rcx_is_dead);
        code.jump(None, fragment.body.into());
        write(half.code, code.bytes());
        half.code += code.bytes().len() as u64;
        self.own(number, landing);
    }

    /// Installs a landing that is dropped with a fragment.
    fn own(&mut self, number: u32, landing: Landing) {
        let fragment = &mut self.halves[self.current].fragments[number as usize];
        let [jumps, returns] =
            &mut self.landings[usize::from(fragment.version == Version::Counting)];
        let number = match landing.branch {
            Branch::Jump => jumps.add(landing),
            Branch::Return => returns.add(landing),
        };
        fragment.landings[landing.branch as usize] = Some(number);
    }

    /// Whether the next translation might not fit.
    pub fn is_full(&self) -> bool {
        let (code, stubs) = layout::half(self.current as u64);
        let half = &self.halves[self.current];
        half.code + ROOM > code + self.limit || half.stubs + ROOM > stubs + EXITS * self.limit
    }

    fn fragment_for(
        &mut self,
        path: &[u64],
        landing: Option<Branch>,
        version: Version,
    ) -> Result<u32, Missing> {
        let pc = path[0];
        let map = version as usize;
        if let Some(&number) = self.fragments[map].get(&pc) {
            return Ok(number);
        }
        if self.is_full() {
            return Err(Missing::Full);
        }
        let page = sys::page_down(pc);
        if self.source.is_on_stack(pc) && self.source.changes.will_be_written(page) {
            self.drop_page(page);
            if self.source.protected.contains(&page) {
                self.source.unprotect(page);
            }
        }
        let half = &self.halves[self.current];
        let first_exit = half.exits.len() as u64;
        let (at, stubs_at) = (half.code, half.stubs);
        let current = self.current as u64;
        let exit_code = |n: usize| exit::LINK + (first_exit + n as u64) * 2 + current;
        let place = Place {
            code: at,
            stubs: stubs_at,
            version,
        };
        let mut made = translate::translate(
            &mut self.source,
            &mut self.workshop,
            path,
            place,
            landing,
            &exit_code,
        );
        write(at, &made.code);
        write(stubs_at, &made.stubs);
        let half = &mut self.halves[self.current];
        half.code += made.code.len() as u64;
        half.stubs += made.stubs.len() as u64;
        let number = half.fragments.len() as u32;
        half.exits.append(&mut made.exits);
        for &page in &made.pages {
            self.by_page.entry(page).or_default().push(number);
        }
        let landing = made.landing;
        half.fragments.push(self.workshop.reuse(made));
        self.fragments[map].insert(pc, number);
        // Threads that note a path go to the engine each time.
        let linked = (first_exit..half.exits.len() as u64).filter(|_| version != Version::Noting);
        for n in linked {
            let exit = &half.exits[n as usize];
            if let Some(&target) = self.fragments[exit.version as usize].get(&exit.target) {
                let target = &mut half.fragments[target as usize];
                target.links.push(n as u32);
                retarget(exit.patch.into(), target.body.into());
            }
        }
        if let Some(landing) = landing {
            self.own(number, landing);
        }
        Ok(number)
    }

    /// Target of an exit's direct branch, and the version of the code there; links it if the target is translated.
    pub fn resolve(&mut self, code: u64) -> (u64, Version) {
        let (half, number) = (((code - exit::LINK) & 1) as usize, (code - exit::LINK) / 2);
        let exit = &self.halves[half].exits[number as usize];
        let (target, displacement, version) = (exit.target, exit.patch, exit.version);
        if half == self.current
            && version != Version::Noting
            && !(version == Version::Usual && self.is_hot(target))
            && let Ok(fragment) = self.fragment_for(&[target], None, version)
        {
            let fragment = &mut self.halves[half].fragments[fragment as usize];
            fragment.links.push(number as u32);
            retarget(displacement.into(), fragment.body.into());
        }
        (target, version)
    }

    /// The fragment whose code contains an address.
    fn fragment_at(&self, at: u64) -> Option<&Fragment> {
        let mut halves = self.halves.iter().enumerate();
        let (_, half) = halves.find(|(number, half)| {
            let (begin, _) = layout::half(*number as u64);
            (begin..half.code).contains(&at)
        })?;
        let next = half
            .fragments
            .partition_point(|fragment| u64::from(fragment.start) <= at);
        half.fragments.get(next.checked_sub(1)?)
    }

    /// The program's address, and the point of a fragment, at an address in the cache.
    pub fn point(&self, at: u64) -> Option<(u64, Point)> {
        let fragment = self.fragment_at(at)?;
        let offset = u16::try_from(at - u64::from(fragment.start)).ok()?;
        let found = fragment
            .points
            .binary_search_by_key(&offset, |point| point.offset);
        let point = fragment.points[found.ok()?];
        let pc = fragment.pc.wrapping_add_signed(i64::from(point.delta));
        Some((pc, point))
    }

    /// The program's address of the instruction whose code lies before `at` in the cache.
    pub fn source_before(&self, at: u64) -> Option<u64> {
        let fragment = self.fragment_at(at.checked_sub(1)?)?;
        let points = &fragment.points;
        let start = u64::from(fragment.start);
        let after = points.partition_point(|point| start + u64::from(point.offset) < at);
        let point = points.get(after.checked_sub(1)?)?;
        Some(fragment.pc.wrapping_add_signed(i64::from(point.delta)))
    }

    /// Whether the half used next contains code.
    pub fn reuses_code(&self) -> bool {
        !self.halves[1 - self.current].fragments.is_empty()
    }

    /// The program's address, or 0, for a place in the half used next, whose code will be dropped; `None` for others.
    pub fn source_dropped(&self, place: u64) -> Option<u64> {
        let (begin, _) = layout::half(1 - self.current as u64);
        let dropped = begin..begin + HALF;
        dropped
            .contains(&place)
            .then(|| self.source_before(place).unwrap_or(0))
    }

    /// Whether a path is to be noted from `pc` on. Code that compares itself with memory is in none.
    pub fn is_hot(&self, pc: u64) -> bool {
        self.heat.is_hot(pc) && !self.source.is_checked(pc)
    }

    /// A thread's quantum has ended at an address in the cache. The next thread that reaches the beginning of a hot
    /// block in code that records notes a path.
    pub fn sampled(&mut self, at: u64) {
        let room = self.has_room_for_paths();
        let Some(pc) = self.fragment_at(at).filter(|_| room).map(|one| one.pc) else {
            return;
        };
        let usual = self.fragments[Version::Usual as usize].get(&pc).copied();
        // Loops whose turns are recorded together gain nothing.
        let loops = usual.is_some_and(|number| {
            let fragment = &self.halves[self.current].fragments[number as usize];
            let kept = fragment.kept.as_ref();
            kept.is_some_and(|kept| !kept.turns.is_empty())
        });
        if !loops
            && !self.source.is_checked(pc)
            && self.heat.ended(pc, self.counts)
            && let Some(number) = usual
        {
            self.drop_fragment(number);
        }
    }

    /// Drops the path at an address in the cache, which a thread has left by a fault: what it has counted and not made
    /// is not taken back then. No other is made for it.
    pub fn abandon_path(&mut self, at: u64) {
        let fragment = self.fragment_at(at);
        let noted = fragment
            .map(|one| one.pc)
            .filter(|&pc| self.heat.is_noted(pc));
        let usual = &self.fragments[Version::Usual as usize];
        if let Some(&number) = noted.and_then(|pc| usual.get(&pc)) {
            self.drop_fragment(number);
        }
    }

    /// Paths repeat code: they take no more than about half of the cache, so that it is not emptied for them.
    fn has_room_for_paths(&self) -> bool {
        let (code, stubs) = layout::half(self.current as u64);
        let half = &self.halves[self.current];
        (half.code - code).max((half.stubs - stubs) / EXITS) < self.limit / 2
    }

    /// Translates a path that a thread has noted.
    pub fn make_path(&mut self, path: &Path) {
        let Some(path) = self.heat.noted(path) else {
            return;
        };
        let pc = path.blocks()[0];
        if self.source.is_checked(pc) {
            return;
        }
        let versions = [Version::Usual, Version::Counting];
        let used = if self.counts { 2 } else { 1 };
        for version in versions.into_iter().take(used) {
            if let Some(number) = self.fragments[version as usize].get(&pc) {
                self.drop_fragment(*number);
            }
            // Without room for it, the cache is emptied soon.
            let _ = self.fragment_for(path.blocks(), None, version);
        }
    }

    /// Drops the fragments made from a page. Threads inside one leave it at its next exit.
    pub fn drop_page(&mut self, page: u64) {
        let Some(numbers) = self.by_page.remove(&page) else {
            return;
        };
        self.workshop.forget();
        for number in numbers {
            self.drop_fragment(number);
        }
    }

    /// The program's code at an address is not what was translated.
    pub fn changed(&mut self, pc: u64) {
        let numbers = self.fragments.each_ref().map(|of| of.get(&pc).copied());
        for number in numbers.into_iter().flatten() {
            self.drop_fragment(number);
        }
    }

    fn drop_fragment(&mut self, number: u32) {
        let half = &mut self.halves[self.current];
        let fragment = &mut half.fragments[number as usize];
        let (pc, version) = (fragment.pc, fragment.version);
        let fragments = &mut self.fragments[version as usize];
        for link in std::mem::take(&mut fragment.links) {
            let exit = &half.exits[link as usize];
            retarget(exit.patch.into(), exit.stub.into());
        }
        if fragments.get(&pc) == Some(&number) {
            fragments.remove(&pc);
        }
        let numbers = std::mem::take(&mut fragment.landings);
        for branch in [Branch::Jump, Branch::Return] {
            if let Some(number) = numbers[branch as usize] {
                self.landings(branch, version == Version::Counting)
                    .remove(number);
            }
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
            retarget(exit.patch.into(), exit.stub.into());
        }
        self.fragments.iter_mut().for_each(AddressMap::clear);
        self.by_page.clear();
        self.heat.forget();
        self.workshop.forget();
        self.generation += 1;
        self.begin(1 - self.current);
    }
}
