//! Groups: accesses of one form that lie within a line's length of each other, looked up and counted together.

use super::{Form, Kind, Piece, REGISTERS, SPAN, Step, Strides};

/// Pieces of one form that span at most [`SPAN`] bytes.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    base: u8,
    index: u8,
    shift: u8,
    /// Index of the member that comes first in the program.
    pub first: u16,
    /// Place of that member in the code; 0 if unknown.
    pub place: u64,
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
    pub(super) fn new(pieces: &[Piece], strides: Option<&Strides>) -> Self {
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
            place: 0,
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

/// How an iteration moves a form: a constant, and a register with a shift; `None` if unknown.
pub(super) fn stride(form: Form, strides: &Strides) -> Option<(u64, Option<(u8, u8)>)> {
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
