//! What the program needs at the targets of branches, remembered: many blocks branch to the same ones.

use iced_x86::InstructionInfoFactory;

use super::decode::{Bytes, Source};
use super::liveness::{Live, Then, Walk};
use crate::sys;
use numaloc_follow::address_map::{self, AddressMap};

/// Most conditional branches one after the other that are followed.
const BRANCHES: u8 = 1;
/// Instead of a number of branches: following more of them would show nothing new.
const ALL: u8 = u8::MAX;

/// What is needed at an address.
struct Known {
    live: Live,
    /// Number of conditional branches that were followed one after the other, or [`ALL`].
    branches: u8,
    /// Number of the pages of the code that was examined.
    count: u8,
    /// These pages, relative to the one of the address.
    pages: [i16; Self::MOST],
}

impl Known {
    /// Most pages: more are rarely examined, and nothing is remembered then.
    const MOST: usize = 4;

    /// What is needed at an address, if that is remembered.
    fn at(address: u64, live: Live, branches: u8, pages: &[u64]) -> Option<Self> {
        let mut known = Self {
            live,
            branches,
            count: u8::try_from(pages.len()).ok()?,
            pages: [0; Self::MOST],
        };
        for (at, &page) in pages.iter().enumerate() {
            let distance = (page / sys::PAGE).wrapping_sub(address / sys::PAGE) as i64;
            *known.pages.get_mut(at)? = i16::try_from(distance).ok()?;
        }
        Some(known)
    }

    /// The pages of what is known of an address.
    fn pages(&self, address: u64) -> impl Iterator<Item = u64> {
        let pages = self.pages.iter().take(self.count.into());
        let number = address / sys::PAGE;
        pages.map(move |&page| number.wrapping_add_signed(page.into()) * sys::PAGE)
    }
}

/// What is known of branches' targets and of translated blocks. It must be forgotten when code changes that it was
/// found in.
pub struct Ahead {
    known: AddressMap<Known>,
    /// Describes instructions: kept because making one takes memory.
    pub factory: Option<Box<InstructionInfoFactory>>,
}

impl Ahead {
    /// Nothing.
    pub const fn new() -> Self {
        Self {
            known: address_map::map(),
            factory: None,
        }
    }

    /// Forgets everything.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// Notes what is needed at the beginning of a block, which was found out from code of these pages.
    pub fn note(&mut self, at: u64, live: Live, pages: &[u64]) {
        if let Some(known) = Known::at(at, live, ALL, pages) {
            self.known.insert(at, known);
        }
    }

    /// What is needed at `target`. Adds the pages examined to `pages`.
    pub fn needed_at(
        &mut self,
        target: u64,
        source: &Source,
        factory: &mut InstructionInfoFactory,
        pages: &mut Vec<u64>,
    ) -> Live {
        let mut code = |at: u64, to: &mut Bytes| source.peek(at, to);
        self.look(target, BRANCHES, factory, &mut code, pages).0
    }

    /// [`Ahead::needed_at`] along this many branches; `code` reads code. Returns also [`Known::branches`].
    fn look(
        &mut self,
        target: u64,
        branches: u8,
        factory: &mut InstructionInfoFactory,
        code: &mut impl FnMut(u64, &mut Bytes) -> usize,
        pages: &mut Vec<u64>,
    ) -> (Live, u8) {
        if let Some(known) = self.known_at(target, branches, pages) {
            return known;
        }
        let (mut own, mut bytes) = (Vec::new(), [0; size_of::<Bytes>()]);
        let (mut walk, mut at, mut followed) = (Walk::new(), target, ALL);
        let live = loop {
            let len = code(at, &mut bytes);
            add(&mut own, [sys::page_down(at)]);
            match walk.on(&bytes[..len], at, factory) {
                Then::Decided => break walk.needed,
                Then::Unknown => break walk.needed.or(walk.asked),
                Then::At(next) => match self.known_at(next, branches, &mut own) {
                    Some((live, further)) => {
                        followed = further;
                        break walk.needed.or(live.and(walk.asked));
                    }
                    None => at = next,
                },
                Then::Either(..) if branches == 0 => {
                    followed = 0;
                    break walk.needed.or(walk.asked);
                }
                Then::Either(one, other) => {
                    let one = self.look(one, branches - 1, factory, code, &mut own);
                    let other = self.look(other, branches - 1, factory, code, &mut own);
                    if one.1.min(other.1) != ALL {
                        followed = branches;
                    }
                    break walk.needed.or(one.0.or(other.0).and(walk.asked));
                }
            }
        };
        if let Some(known) = Known::at(target, live, followed, &own) {
            self.known.insert(target, known);
        }
        add(pages, own);
        (live, followed)
    }

    /// What is known of an address if this many branches were followed.
    fn known_at(&self, at: u64, branches: u8, pages: &mut Vec<u64>) -> Option<(Live, u8)> {
        let known = self.known.get(&at)?;
        if known.branches < branches {
            return None;
        }
        add(pages, known.pages(at));
        Some((known.live, known.branches))
    }
}

/// Adds pages to a list.
fn add(list: &mut Vec<u64>, pages: impl IntoIterator<Item = u64>) {
    for page in pages {
        if !list.contains(&page) {
            list.push(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether flags are needed at the beginning of some code, which is at address 0.
    fn flags_at(code: &[u8]) -> bool {
        let mut read = |at: u64, to: &mut Bytes| {
            let rest = code.get(at as usize..).unwrap_or_default();
            to[..rest.len()].copy_from_slice(rest);
            rest.len()
        };
        let mut factory = InstructionInfoFactory::new();
        let mut ahead = Ahead::new();
        let found = ahead.look(0, BRANCHES, &mut factory, &mut read, &mut Vec::new());
        let again = ahead.look(0, 0, &mut factory, &mut read, &mut Vec::new());
        assert_eq!(found, again);
        found.0.flags()
    }

    #[test]
    fn what_is_needed_is_found_along_branches() {
        // mov ecx, eax; add eax, ecx
        assert!(!flags_at(&[0x89, 0xc1, 0x01, 0xc8]));
        // jmp over int3 to it
        assert!(!flags_at(&[0xeb, 0x01, 0xcc, 0x01, 0xc8]));
        // jrcxz: one side adds, the other returns
        assert!(flags_at(&[0xe3, 0x01, 0xc3, 0x01, 0xc8]));
        assert!(!flags_at(&[0xe3, 0x03, 0x01, 0xc8, 0xc3, 0x01, 0xc8]));
        // A return, and a jump to itself.
        assert!(flags_at(&[0xc3]) && flags_at(&[0xeb, 0xfe]));
    }

    #[test]
    fn pages_that_are_near_are_remembered() {
        let live = Walk::new().needed;
        let pages = |of: &[u64]| {
            let known = Known::at(0x8123_4567, live, ALL, of)?;
            Some(known.pages(0x8123_4567).collect::<Vec<u64>>())
        };
        let near = [0x8123_4000, 0x8123_5000, 0x8000_0000];
        assert_eq!(pages(&near), Some(near.to_vec()));
        assert_eq!(pages(&[0x40_0000]), None);
        assert_eq!(pages(&[0x8123_4000; 5]), None);
    }
}
