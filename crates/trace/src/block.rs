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

/// A piece within its section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// Index of its group in the section.
    pub group: u8,
    /// Offset in bytes from the group's first byte.
    pub delta: u8,
    pub size: u8,
    pub kind: Kind,
}

/// Pieces of one form that span at most [`SPAN`] bytes.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    base: u8,
    index: u8,
    shift: u8,
    /// Index of the member that comes first in the program.
    pub first: u16,
    /// Whether some piece only loads.
    pub reads: bool,
    /// Whether some piece stores.
    pub writes: bool,
    /// Bytes from the first to the last one used.
    pub span: u8,
    /// Size in bytes of the first access in the program.
    pub first_size: u8,
    /// Size in bytes of each access, 0 where sizes differ.
    pub each_size: u8,
    /// Whether iterations move it to lower addresses.
    pub backward: bool,
    /// Whether iterations do not move it.
    stands: bool,
    /// Whether iterations together use all bytes from the first to the last.
    pub dense: bool,
    /// Mask: at an address with these bits 0, no access of any iteration crosses lines. `u64::MAX` if unknown.
    grain: u64,
    /// `ceil(2^32 / bytes that an iteration moves it)`; 0 if each iteration leaves the line or it does not move.
    inverse: u64,
    base_mask: u64,
    index_mask: u64,
    displacement: u64,
    /// Amount that one iteration adds to a page's counter ([`crate::pages`]).
    pub amount: u64,
    /// Accesses of one iteration; bytes read and written follow.
    pub accesses: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    /// The bytes stored, one bit for each from the first on.
    pub written: u64,
    /// Constant part of the bytes that an iteration moves it, modulo 2^64.
    pub stride: u64,
    stride_register: u8,
    stride_shift: u8,
    stride_mask: u64,
}

impl Default for Group {
    fn default() -> Self {
        Self::new(
            &[Piece {
                form: Form::default(),
                displacement: 0,
                size: 1,
                kind: Kind::Read,
            }],
            None,
        )
    }
}

impl Group {
    fn new(pieces: &[Piece], strides: Option<&Strides>) -> Self {
        let form = pieces[0].form;
        // Ascending: `Section::new` has sorted them.
        let first = pieces[0].displacement;
        let (stride, register) = strides
            .and_then(|strides| stride(form, strides))
            .unwrap_or((0, None));
        let backward = stride > i64::MAX as u64;
        let step = if backward {
            stride.wrapping_neg()
        } else {
            stride
        };
        let mut group = Self {
            base: form.base.unwrap_or(0),
            index: form.index.map_or(0, |index| index.0),
            shift: form.index.map_or(0, |index| index.1),
            first: 0,
            reads: false,
            writes: false,
            first_size: 0,
            each_size: pieces[0].size,
            span: 0,
            backward,
            stands: step == 0 && register.is_none(),
            dense: false,
            grain: u64::MAX,
            inverse: if (1..SPAN).contains(&step) && register.is_none() {
                (1u64 << 32).div_ceil(step)
            } else {
                0
            },
            base_mask: if form.base.is_some() { u64::MAX } else { 0 },
            index_mask: if form.index.is_some() { u64::MAX } else { 0 },
            displacement: first,
            amount: 0,
            accesses: 0,
            read_bytes: 0,
            write_bytes: 0,
            written: 0,
            stride,
            stride_register: register.map_or(0, |register| register.0),
            stride_shift: register.map_or(0, |register| register.1),
            stride_mask: if register.is_some() { u64::MAX } else { 0 },
        };
        let (mut used, mut even) = (0, 0);
        let mut largest = 1;
        for piece in pieces {
            let delta = piece.displacement.wrapping_sub(first);
            used |= (u64::MAX >> (64 - u32::from(piece.size))) << delta;
            largest = largest.max(u64::from(piece.size));
            if piece.size != group.each_size {
                group.each_size = 0;
            }
            even |= delta % u64::from(piece.size).next_power_of_two();
            group.span = group.span.max(delta as u8 + piece.size);
            if piece.kind != Kind::Write {
                group.accesses += 1;
                group.read_bytes += u64::from(piece.size);
                group.amount += crate::pages::READ;
            }
            if piece.kind != Kind::Read {
                group.accesses += 1;
                group.write_bytes += u64::from(piece.size);
                group.amount += crate::pages::WRITE;
                group.writes = true;
                group.written |= (u64::MAX >> (64 - u32::from(piece.size))) << delta;
            }
            group.reads |= piece.kind == Kind::Read;
        }
        let span = u32::from(group.span);
        group.dense = used == u64::MAX >> (64 - span) && u64::from(span) >= step;
        let grain = largest.next_power_of_two();
        if even == 0 && step % grain == 0 {
            group.grain = grain - 1;
        }
        group
    }

    /// Address of the first byte.
    #[inline(always)]
    pub fn address(&self, registers: &[u64; REGISTERS]) -> u64 {
        // Masks instead of branches: which registers a block uses is unpredictable.
        let base = registers[usize::from(self.base & 15)] & self.base_mask;
        let index = registers[usize::from(self.index & 15)] & self.index_mask;
        base.wrapping_add(index << (self.shift & 3))
            .wrapping_add(self.displacement)
    }

    /// Bytes that an iteration moves it, modulo 2^64.
    #[inline(always)]
    pub fn stride(&self, registers: &[u64; REGISTERS]) -> u64 {
        let register = registers[usize::from(self.stride_register & 15)] & self.stride_mask;
        self.stride
            .wrapping_add(register << (self.stride_shift & 3))
    }

    /// Whether all accesses are in one line of [`SPAN`] bytes, if the first byte is at `address`.
    #[inline(always)]
    pub fn is_in_line(&self, address: u64) -> bool {
        (address & (SPAN - 1)) + u64::from(self.span) <= SPAN
    }

    /// Whether no access crosses lines in iterations that begin at `address`.
    #[inline(always)]
    pub fn is_even(&self, address: u64) -> bool {
        address & self.grain == 0 && self.grain != u64::MAX
    }

    /// Number of iterations, the first at `address`, that stay in the aligned block of `size` bytes (a power of two)
    /// around `address`; 0 if the first one leaves it.
    #[inline(always)]
    pub fn stays(&self, address: u64, size: u64) -> u64 {
        let before = address & (size - 1);
        self.stays_within(before, size - before)
    }

    /// Number of iterations that use only the `before` bytes below the first one's address and the `behind` bytes from
    /// there on.
    #[inline(always)]
    pub fn stays_within(&self, before: u64, behind: u64) -> u64 {
        let Some(room) = behind.checked_sub(u64::from(self.span)) else {
            return 0;
        };
        let room = if self.backward { before } else { room };
        if self.stands {
            return u64::MAX;
        }
        1 + self.steps(room)
    }

    /// How often the step of an iteration fits in `room`, at most 1 MiB; 0 for a group that leaps or stands.
    #[inline(always)]
    fn steps(&self, room: u64) -> u64 {
        // Exact: the error of the reciprocal, times the room, is below 1/64.
        (room * self.inverse) >> 32
    }

    /// Number of iterations whose byte, at `from` in the lowest of them, is below `limit`. Not for a group that leaps
    /// or stands.
    #[inline(always)]
    pub fn below(&self, from: u64, limit: u64) -> u64 {
        match limit.checked_sub(from + 1) {
            Some(room) => self.steps(room) + 1,
            None => 0,
        }
    }

    /// Lowest address used by `times` iterations that begin at `address`, and the first address after the highest. Not
    /// for a group that leaps.
    #[inline(always)]
    pub fn reach(&self, address: u64, times: u64) -> (u64, u64) {
        let moved = self.step() * (times - 1);
        let low = if self.backward {
            address - moved
        } else {
            address
        };
        (low, low + moved + u64::from(self.span))
    }

    /// Whether all accesses are loads or all are stores, of the same size.
    #[inline(always)]
    pub fn is_of_one_kind(&self) -> bool {
        self.each_size != 0 && (!self.writes || self.read_bytes == 0)
    }

    /// Whether each iteration leaves the line of the one before.
    #[inline(always)]
    pub fn leaps(&self) -> bool {
        self.inverse == 0 && !self.stands
    }

    /// Whether iterations do not move it.
    #[inline(always)]
    pub fn stands(&self) -> bool {
        self.stands
    }

    /// Bytes that an iteration moves it, up or down. Not for a group that leaps.
    #[inline(always)]
    pub fn step(&self) -> u64 {
        match self.backward {
            true => self.stride.wrapping_neg(),
            false => self.stride,
        }
    }
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

/// How an iteration moves a form: a constant, and a register with a shift; `None` if unknown.
fn stride(form: Form, strides: &Strides) -> Option<(u64, Option<(u8, u8)>)> {
    let step = |register: Option<u8>| match register {
        Some(register) => strides[usize::from(register)],
        None => Some(Step::default()),
    };
    let (index, shift) = match form.index {
        Some((index, shift)) => (Some(index), shift),
        None => (None, 0),
    };
    let (base, index) = (step(form.base)?, step(index)?);
    let register = match (base.register, index.register) {
        (Some(_), Some(_)) => return None,
        (register, None) => register.map(|register| (register, 0)),
        (None, register) => register.map(|register| (register, shift)),
    };
    let constant = base.constant.wrapping_add(index.constant << shift);
    Some((constant, register))
}

/// Consecutive pieces of a program in at most [`GROUPS`] groups.
#[derive(Debug)]
pub(crate) struct Section {
    pub groups: Box<[Group]>,
    /// In the program's order.
    pub members: Box<[Member]>,
    pub accesses: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
}

impl Section {
    /// A section of as many `pieces` as fit, and their number.
    fn new(pieces: &[Piece], strides: Option<&Strides>) -> (Self, usize) {
        let mut count = pieces.len();
        let mut clusters = clusters(pieces);
        while clusters.len() > GROUPS {
            count -= 1;
            clusters = self::clusters(&pieces[..count]);
        }
        let mut members = vec![None; count];
        let mut groups = Vec::new();
        for (number, cluster) in clusters.iter().enumerate() {
            let sorted: Vec<Piece> = cluster.iter().map(|&index| pieces[index]).collect();
            let mut group = Group::new(&sorted, strides);
            let first = cluster.iter().copied().min().unwrap_or(0);
            group.first = first as u16;
            group.first_size = pieces[first].size;
            groups.push(group);
            for &index in cluster {
                let Piece {
                    displacement,
                    size,
                    kind,
                    ..
                } = pieces[index];
                members[index] = Some(Member {
                    group: number as u8,
                    delta: displacement.wrapping_sub(sorted[0].displacement) as u8,
                    size,
                    kind,
                });
            }
        }
        let sum = |part: fn(&Group) -> u64| groups.iter().map(part).sum();
        let section = Self {
            accesses: sum(|group| group.accesses),
            read_bytes: sum(|group| group.read_bytes),
            write_bytes: sum(|group| group.write_bytes),
            groups: groups.into(),
            members: members.into_iter().flatten().collect(),
        };
        (section, count)
    }
}

/// Indices of `pieces` by group, ascending by displacement.
fn clusters(pieces: &[Piece]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    // As signed numbers, so that negative displacements come first.
    order.sort_by_key(|&index| (pieces[index].form, pieces[index].displacement as i64));
    let mut clusters: Vec<Vec<usize>> = Vec::new();
    for index in order {
        let piece = pieces[index];
        match clusters.last_mut() {
            Some(cluster)
                if pieces[cluster[0]].form == piece.form
                    && piece
                        .displacement
                        .wrapping_sub(pieces[cluster[0]].displacement)
                        .saturating_add(u64::from(piece.size))
                        <= SPAN =>
            {
                cluster.push(index);
            }
            _ => clusters.push(vec![index]),
        }
    }
    clusters
}

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
    /// For the frontend: index of its counter for the block's iterations.
    pub counter: Option<u32>,
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
            counter: None,
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
