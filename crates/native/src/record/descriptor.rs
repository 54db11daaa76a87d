//! An access as translated code passes it to the engine, and which accesses it records at little cost: pure.

use iced_x86::{Code, Instruction, OpKind};
use numaloc_follow::owners::Owner;

/// Bytes that count as one access.
pub const WORD: u16 = numaloc_trace::thread::WORD as u16;
/// Most bytes of an access that translated code counts: the usual line size.
pub const LARGEST: u16 = 64;

/// Kind of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A load.
    Read,
    /// A store.
    Write,
    /// A load and a store by one instruction, not atomically.
    Update,
    /// An atomic load and store, recorded after the instruction.
    Atomic,
    /// A store that other threads may see before it is recorded: announced before the instruction.
    Announce,
    /// Accesses that the engine finds out from the instruction and the registers.
    Complex,
    /// Those of a repeated string instruction that stores: see [`Repeated`].
    Repeated,
    /// Those of a vector of which a mask register selects elements: see [`Masked`].
    Masked,
    /// None: the program is at the state's address, where what the size encodes begins: see [`super::entry()`].
    Call,
    /// Those of turns of a loop that were made: see [`super::turns`].
    Turns,
    /// None: the thread has left the cache for another reason.
    Nothing,
}

const KINDS: [Kind; 11] = [
    Kind::Read,
    Kind::Write,
    Kind::Update,
    Kind::Atomic,
    Kind::Announce,
    Kind::Complex,
    Kind::Repeated,
    Kind::Masked,
    Kind::Call,
    Kind::Turns,
    Kind::Nothing,
];
const OWNERS: [Owner; 3] = [Owner::Program, Owner::Runtime, Owner::Allocator];

/// An access as translated code passes it to the engine: size, kind and owner in one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// Bytes.
    pub size: u16,
    /// Kind.
    pub kind: Kind,
    /// Whose code makes it.
    pub owner: Owner,
}

impl Descriptor {
    /// As a number.
    pub fn encode(self) -> u64 {
        u64::from(self.size) | (self.kind as u64) << 16 | (self.owner as u64) << 24
    }

    /// The inverse of [`Descriptor::encode`].
    pub fn decode(number: u64) -> Self {
        let kind = (number >> 16 & 0xff) as usize;
        let owner = (number >> 24 & 0xff) as usize;
        Self {
            size: number as u16,
            kind: KINDS.get(kind).copied().unwrap_or(Kind::Read),
            owner: OWNERS.get(owner).copied().unwrap_or(Owner::Program),
        }
    }
}

/// A vector in memory of which a mask register selects elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Masked {
    /// Its bytes, at most 64.
    pub bytes: u8,
    /// Bytes of an element.
    pub element: u8,
    /// Whether it is stored, otherwise loaded.
    pub stores: bool,
}

impl Masked {
    /// As the size of a [`Descriptor`].
    pub fn encode(self) -> u16 {
        u16::from(self.bytes) | u16::from(self.element) << 8 | u16::from(self.stores) << 15
    }

    /// The inverse of [`Masked::encode`].
    #[inline(always)]
    pub fn decode(number: u16) -> Self {
        Self {
            bytes: number as u8,
            element: (number >> 8) as u8 & 0x7f,
            stores: number >> 15 != 0,
        }
    }

    /// Its elements, and how many of them make a word.
    pub fn elements(self) -> (u8, u8) {
        let element = self.element.max(1);
        (self.bytes / element, (WORD as u8).div_ceil(element))
    }

    /// Offset and size of the words with a selected element: from the first to the last selected byte of each.
    pub fn words(self, mask: u64) -> impl Iterator<Item = (u64, u64)> {
        let (count, within) = self.elements();
        let element = u64::from(self.element.max(1));
        let mut rest = mask & u64::MAX.checked_shr(64 - u32::from(count)).unwrap_or(0);
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let first = u64::from(rest.trailing_zeros());
            let here = rest & (u64::MAX >> (64 - within)) << first;
            let last = u64::from(u64::BITS - 1 - here.leading_zeros());
            rest &= !here;
            Some((first * element, (last + 1 - first) * element))
        })
    }
}

/// `rep stos` or `rep movs`, with addresses in rsi and rdi.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repeated {
    /// Bytes of an element.
    pub element: u8,
    /// Whether it loads as well.
    pub loads: bool,
}

impl Repeated {
    /// Of an instruction.
    pub fn of(instruction: &Instruction) -> Option<Self> {
        let (element, loads) = match instruction.code() {
            Code::Stosb_m8_AL => (1, false),
            Code::Stosd_m32_EAX => (4, false),
            Code::Stosq_m64_RAX => (8, false),
            Code::Movsb_m8_m8 => (1, true),
            Code::Movsd_m32_m32 => (4, true),
            Code::Movsq_m64_m64 => (8, true),
            _ => return None,
        };
        let wide = (0..instruction.op_count()).all(|n| {
            !matches!(
                instruction.op_kind(n),
                OpKind::MemorySegESI | OpKind::MemoryESEDI
            )
        });
        // Prefixes for other segments are rare.
        let usual = wide && !instruction.has_segment_prefix();
        (usual && instruction.has_rep_prefix()).then_some(Self { element, loads })
    }

    /// As the size of a [`Descriptor`].
    pub fn encode(self) -> u16 {
        u16::from(self.element) | u16::from(self.loads) << 8
    }

    /// The inverse of [`Repeated::encode`].
    #[inline(always)]
    pub fn decode(number: u16) -> Self {
        Self {
            element: number as u8,
            loads: number >> 8 != 0,
        }
    }
}

/// [`Descriptor::encode`] of nothing.
pub const NOTHING: u64 = (Kind::Nothing as u64) << 16;

/// Kinds of accesses that the engine may record with most of the program's state in place: see [`super::light`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Light {
    /// A load of the program.
    Load,
    /// A store of the program.
    Store,
    /// A load and a store by one instruction of the program.
    Update,
    /// See [`Kind::Announce`].
    Announce,
    /// An atomic instruction of the program.
    Atomic,
    /// One of the allocator.
    Allocator,
    /// A load of a run-time library.
    RuntimeLoad,
    /// A store of a run-time library.
    RuntimeStore,
    /// A load and a store by one instruction of a run-time library.
    RuntimeUpdate,
    /// An atomic instruction of a run-time library.
    RuntimeAtomic,
    /// See [`Kind::Repeated`].
    Repeated,
    /// See [`Kind::Masked`]: bytes.
    Masked,
    /// See [`Kind::Call`].
    Call,
}

impl Light {
    /// Number of kinds.
    pub const COUNT: usize = Self::ALL.len();
    /// All kinds, in ascending order.
    pub const ALL: [Self; 13] = [
        Self::Load,
        Self::Store,
        Self::Update,
        Self::Announce,
        Self::Atomic,
        Self::Allocator,
        Self::RuntimeLoad,
        Self::RuntimeStore,
        Self::RuntimeUpdate,
        Self::RuntimeAtomic,
        Self::Repeated,
        Self::Masked,
        Self::Call,
    ];

    /// The kind of an access; `None` if recording it takes the whole engine.
    pub fn of(descriptor: Descriptor) -> Option<Self> {
        let Descriptor { size, kind, owner } = descriptor;
        let runtime = owner == Owner::Runtime;
        match kind {
            Kind::Announce => Some(Self::Announce),
            Kind::Repeated => (!runtime).then_some(Self::Repeated),
            Kind::Masked => {
                let bytes = Masked::decode(size).element == 1;
                (bytes && !runtime).then_some(Self::Masked)
            }
            Kind::Call => Some(Self::Call),
            _ if size > LARGEST || runtime && size > WORD => None,
            Kind::Atomic if runtime => Some(Self::RuntimeAtomic),
            Kind::Atomic if owner == Owner::Allocator => Some(Self::Allocator),
            Kind::Atomic => (size <= WORD).then_some(Self::Atomic),
            Kind::Read if runtime => Some(Self::RuntimeLoad),
            Kind::Write if runtime => Some(Self::RuntimeStore),
            Kind::Write => Some(Self::Store),
            Kind::Read => Some(Self::Load),
            Kind::Update if runtime => Some(Self::RuntimeUpdate),
            Kind::Update if size <= WORD => Some(Self::Update),
            Kind::Update => None,
            Kind::Complex | Kind::Turns | Kind::Nothing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_survive_their_encoding() {
        for kind in KINDS {
            for owner in OWNERS {
                let one = Descriptor {
                    size: 576,
                    kind,
                    owner,
                };
                assert_eq!(Descriptor::decode(one.encode()), one);
            }
        }
    }

    #[test]
    fn elements_selected_by_a_mask_register_count_by_word() {
        let masked = |bytes, element| Masked {
            bytes,
            element,
            stores: true,
        };
        let words = |bytes, element, mask| -> Vec<(u64, u64)> {
            masked(bytes, element).words(mask).collect()
        };
        assert_eq!(words(64, 1, 0), []);
        assert_eq!(words(32, 1, u64::MAX), [(0, 8), (8, 8), (16, 8), (24, 8)]);
        assert_eq!(words(64, 1, 1 << 63 | 6), [(1, 2), (63, 1)]);
        assert_eq!(words(16, 4, 0b1101), [(0, 4), (8, 8)]);
        assert_eq!(words(64, 8, 0b10000010), [(8, 8), (56, 8)]);
        for one in [masked(64, 8), masked(16, 1)] {
            assert_eq!(Masked::decode(one.encode()), one);
        }
    }

    #[test]
    fn repeated_instructions_survive_their_encoding() {
        for (element, loads) in [(1, false), (8, true)] {
            let one = Repeated { element, loads };
            assert_eq!(Repeated::decode(one.encode()), one);
        }
    }
}
