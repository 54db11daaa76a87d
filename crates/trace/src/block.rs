//! Accesses recorded together: those of a basic block whose addresses follow from the registers at its beginning.
//!
//! An emulator's call for each access costs as much as counting it. A frontend that recognises in a block's code that
//! an access is at `registers[base] + (registers[index] << shift) + displacement` makes one call for the whole block
//! instead ([`crate::ThreadTracer::block`]).
//!
//! Accesses of one [`Form`] lie at fixed distances. Those within a line's length form a *group*, usually within one
//! line: one look-up of the line and one addition to the page's counter serve all of them. A block *repeats* if it
//! jumps back to itself and changes its registers by constants, or by a register that it does not change: its
//! iterations are only counted at first, and added many at a time.
//!
//! The counts are the same as for single accesses. Groups that share no line are added one after the other; where
//! groups share lines, accesses that would change a line's state are recorded one by one, in the program's order.

mod group;
mod section;

pub(crate) use group::Group;
use group::stride;
pub(crate) use section::{Member, Section};

/// Number of registers that addresses may use.
pub const REGISTERS: usize = 16;
/// Most groups in a section.
pub(crate) const GROUPS: usize = 8;
/// Accesses per group, on average, from which a block call pays off if the block does not repeat.
const PAYING: usize = 4;
/// Bytes that a group may span: the usual line size.
const SPAN: u64 = 64;

/// The part of an address that depends on registers: `registers[base] + (registers[index] << shift)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Form {
    /// Base register, if any.
    pub base: Option<u8>,
    /// Index register and shift, if any.
    pub index: Option<(u8, u8)>,
}

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A load.
    Read,
    /// A store.
    Write,
    /// A load and a store by one instruction, not atomically.
    Update,
}

/// One access of a block, or a load and a store by one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The part of the address that depends on registers.
    pub form: Form,
    /// Constant part of the address.
    pub displacement: u64,
    /// Size in bytes, at most 64.
    pub size: u8,
    /// Load, store or both.
    pub kind: Kind,
}

/// What an iteration adds to a register: a constant, and the value of a register that no iteration changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Step {
    /// The constant, modulo 2^64.
    pub constant: u64,
    /// The register added, if any.
    pub register: Option<u8>,
}

/// What an iteration adds to each register, `None` if unknown.
pub type Strides = [Option<Step>; REGISTERS];

/// The accesses of a basic block whose addresses follow from the registers at its beginning.
#[derive(Debug)]
pub struct Block {
    /// The groups, if there are at most [`INLINE_GROUPS`].
    inline_groups: [Group; INLINE_GROUPS],
    /// Totals of the only section, like the next two; 0 if there are several.
    pub(crate) accesses: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
    shape: Shape,
    pub(crate) sections: Box<[Section]>,
    /// All pieces, in the program's order.
    pub pieces: Box<[Piece]>,
}

/// Most groups of a block for which the engine has specialised code.
pub const INLINE_GROUPS: usize = 4;

/// Selects the code that counts a block: parameters of [`crate::ThreadTracer::block`] or
/// [`crate::ThreadTracer::iteration`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of groups; 0 when there are more than [`INLINE_GROUPS`].
    pub groups: usize,
    /// Which groups store, one bit each.
    pub writes: usize,
    /// The block jumps back to itself, these are all its accesses, and an iteration moves each group by a known
    /// amount.
    pub repeats: bool,
}

impl Block {
    /// A block with `pieces` in the program's order.
    ///
    /// `strides` is what an iteration adds to the registers, for a block that jumps back to its beginning and has no
    /// other accesses. The frontend guarantees that when control leaves the block, the thread's next call is for
    /// something else.
    ///
    /// # Panics
    /// If a register's number is not below [`REGISTERS`], a shift is above 3, or a size is zero or above 64.
    #[must_use]
    pub fn new(pieces: &[Piece], strides: Option<&Strides>) -> Self {
        for piece in pieces {
            let index = piece.form.index.unwrap_or((0, 0));
            let base = piece.form.base.unwrap_or(0);
            assert!(usize::from(base.max(index.0)) < REGISTERS && index.1 <= 3);
            assert!((1..=64).contains(&piece.size));
        }
        let mut sections = Vec::new();
        let mut rest = pieces;
        while !rest.is_empty() {
            let (section, count) = Section::new(rest, strides);
            sections.push(section);
            rest = &rest[count..];
        }
        let constant = strides.is_some_and(|strides| {
            pieces
                .iter()
                .all(|piece| stride(piece.form, strides).is_some())
        });
        let mut block = Self {
            inline_groups: std::array::from_fn(|_| Group::default()),
            accesses: 0,
            read_bytes: 0,
            write_bytes: 0,
            shape: Shape {
                groups: 0,
                writes: 0,
                repeats: false,
            },
            sections: sections.into(),
            pieces: pieces.into(),
        };
        if let [section] = &*block.sections {
            block.accesses = section.accesses;
            block.read_bytes = section.read_bytes;
            block.write_bytes = section.write_bytes;
            if section.groups.len() <= INLINE_GROUPS {
                for (at, group) in section.groups.iter().enumerate() {
                    block.inline_groups[at] = group.clone();
                    block.shape.writes |= usize::from(group.writes) << at;
                }
                block.shape.groups = section.groups.len();
                block.shape.repeats = constant;
            }
        }
        block
    }

    /// Sets the places of the pieces in the code, in their order: what [`crate::ThreadTracer::set_place`] takes.
    pub fn set_places(&mut self, places: &[u64]) {
        let mut next = places.iter().copied();
        for section in &mut self.sections {
            for member in &mut section.members {
                member.place = next.next().unwrap_or(0);
            }
            for group in &mut section.groups {
                let first = section.members.get(usize::from(group.first));
                group.place = first.map_or(0, |member| member.place);
            }
        }
        if let [section] = &*self.sections {
            for (inline, group) in self.inline_groups.iter_mut().zip(&section.groups) {
                inline.place = group.place;
            }
        }
    }

    /// The `N` groups of a block with one section.
    ///
    /// # Panics
    /// If the number of groups is not `N`.
    #[inline(always)]
    pub(crate) fn groups<const N: usize>(&self) -> &[Group; N] {
        let groups = match N <= INLINE_GROUPS {
            true => &self.inline_groups[..N],
            false => &self.sections[0].groups,
        };
        groups.try_into().expect("N is the number of groups")
    }

    /// Selects the code that counts the block.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Whether one call for all accesses costs less than one for each. An iteration of a repeating block costs next to
    /// nothing. In other blocks the look-up of a group must serve several accesses.
    #[must_use]
    pub fn pays(&self) -> bool {
        let groups: usize = self.sections.iter().map(|one| one.groups.len()).sum();
        self.shape.repeats || self.pieces.len() >= PAYING * groups
    }

    /// Address of each piece, if the block begins with `registers`.
    pub fn addresses(&self, registers: &[u64; REGISTERS]) -> Vec<u64> {
        let of = |section: &Section| {
            let member = |member: &Member| {
                section.groups[usize::from(member.group)]
                    .address(registers)
                    .wrapping_add(u64::from(member.delta))
            };
            section.members.iter().map(member).collect::<Vec<_>>()
        };
        self.sections.iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(base: u8, displacement: i64, size: u8, kind: Kind) -> Piece {
        Piece {
            form: Form {
                base: Some(base),
                index: None,
            },
            displacement: displacement as u64,
            size,
            kind,
        }
    }

    #[test]
    fn pieces_within_a_line_of_each_other_make_a_group() {
        let pieces = [
            piece(1, 8, 8, Kind::Read),
            piece(1, -8, 8, Kind::Read),
            piece(2, 0, 4, Kind::Update),
            piece(1, 4096, 8, Kind::Write),
        ];
        let block = Block::new(&pieces, None);
        assert_eq!(block.sections.len(), 1);
        let section = &block.sections[0];
        let spans: Vec<_> = section.groups.iter().map(|group| group.span).collect();
        assert_eq!(
            block.shape(),
            Shape {
                groups: 3,
                writes: 0b110,
                repeats: false
            }
        );
        assert_eq!(spans, [24, 8, 4]);
        assert_eq!(
            (section.accesses, section.read_bytes, section.write_bytes),
            (5, 20, 12)
        );
        let mut registers = [0; REGISTERS];
        (registers[1], registers[2]) = (0x1000, 0x2000);
        assert_eq!(block.addresses(&registers), [0x1008, 0xff8, 0x2000, 0x2000]);
    }

    #[test]
    fn many_groups_make_sections_in_order() {
        let pieces: Vec<Piece> = (0..40)
            .map(|at| piece(3, at * 4096, 8, Kind::Read))
            .collect();
        let block = Block::new(&pieces, Some(&[Some(Step::default()); REGISTERS]));
        assert_eq!(block.sections.len(), 5);
        assert_eq!(block.shape().groups, 0);
        let registers = [0x10_0000; REGISTERS];
        let expected: Vec<u64> = (0..40).map(|at| 0x10_0000 + at * 4096).collect();
        assert_eq!(block.addresses(&registers), expected);
    }

    #[test]
    fn a_group_stays_in_its_line_as_long_as_its_stride_allows() {
        let step = |constant, register| Some(Step { constant, register });
        let mut strides = [step(0, None); REGISTERS];
        strides[4] = step(8, None);
        strides[5] = step(8u64.wrapping_neg(), None);
        strides[6] = None;
        strides[8] = step(0, Some(9));
        let group_of =
            |strides: &Strides, base| Block::new(&[piece(base, 0, 8, Kind::Read)], Some(strides));
        let group = |base| group_of(&strides, base);
        let stays = |block: &Block, address| block.inline_groups[0].stays(address, SPAN);
        assert_eq!(stays(&group(4), 0x1000), 8);
        assert_eq!(stays(&group(4), 0x1038), 1);
        assert!(!group(4).inline_groups[0].is_in_line(0x103c));
        assert_eq!(stays(&group(4), 0x103c), 0);
        assert_eq!(stays(&group(4), 0x1031), 1);
        assert_eq!(stays(&group(5), 0x1038), 8);
        assert_eq!(stays(&group(5), 0x1000), 1);
        assert_eq!(stays(&group(7), 0x1000), u64::MAX);
        assert_eq!(group(4).inline_groups[0].stays(0x1010, 4096), 510);
        assert_eq!(group(5).inline_groups[0].stays(0x1010, 4096), 3);
        let registers = std::array::from_fn(|at| 1000 + at as u64);
        assert_eq!(group(8).inline_groups[0].stride(&registers), 1009);
        assert!(group(8).inline_groups[0].leaps() && group(8).shape().repeats);
        assert!(group(4).shape().repeats && !group(6).shape().repeats);
        strides[4] = step(64, None);
        assert!(group_of(&strides, 4).inline_groups[0].leaps());
        assert!(group_of(&strides, 5).pays());
        // If the block does not repeat, four accesses per group pay off and three do not.
        let piece = |at: u64| Piece {
            form: Form {
                base: Some(4),
                index: None,
            },
            displacement: 8 * at,
            size: 8,
            kind: Kind::Write,
        };
        let of = |count| Block::new(&(0..count).map(piece).collect::<Vec<_>>(), None);
        assert!(of(4).pays() && !of(3).pays());
    }
}
