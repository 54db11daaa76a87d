//! Records the accesses of a *segment* together: instructions that are executed one after the other, up to a branch or
//! an instruction that synchronises.
//!
//! Accesses whose addresses follow from the registers at the segment's beginning form groups, each within the length
//! of a line. If no access of any group changes the state of its line or page, the order of the accesses makes no
//! difference, and they are counted at once. Otherwise the thread executes code of another version
//! ([`Version::Apart`](crate::fragment::Version::Apart)), which records each access by itself. Most segments never need
//! it, so it is translated when it is first reached.

use iced_x86::{FlowControl, Instruction, InstructionInfo, Register};
use numaloc_follow::affine::Registers;
use numaloc_follow::owners::Owner;
use numaloc_follow::usage;
use numaloc_trace::block::Form;
use numaloc_trace::pages::{READ, WRITE};

use super::borrowed::{REGISTERS, used};
use super::liveness::Uses;
use crate::record::access::{Access, Operand, Plan};
use crate::record::descriptor::LARGEST;

/// Bytes that a group may span: at most two lines.
pub(super) const SPAN: u64 = LARGEST as u64;
/// Bytes that a group of loads may span whose lines need not be checked: most such groups lie in one page.
pub(super) const LOADS: u64 = 256;
/// Most groups of a segment.
pub const GROUPS: usize = 16;

/// Accesses at constant distances from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The part of their addresses that depends on registers.
    pub(super) form: Form,
    /// Constant part of the lowest address.
    pub(super) first: u64,
    /// Bytes from there to the end of the highest.
    pub span: u64,
    /// Loads.
    pub reads: i32,
    /// Stores.
    pub writes: i32,
    loaded: i32,
    stored: i32,
    /// The bytes stored, a bit for each from the lowest address on; 0 if the thread may not make all the stores.
    pub(super) written: u64,
    /// Accesses of instructions.
    members: u16,
}

/// What must be checked of the lines of accesses.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Bytes from the first to the last.
    pub span: u16,
    /// Number of accesses; one alone is usually aligned.
    pub members: u16,
    /// Whether any stores.
    pub writes: bool,
    /// The bytes that are stored, a bit for each from the first on; 0 if that is not certain.
    pub written: u64,
}

/// The bits of this many bytes, 1 to 64.
pub fn bytes(size: u16) -> u64 {
    u64::MAX >> (64 - u32::from(size))
}

impl Shape {
    /// Whether it is one access, usually at a multiple of its size.
    pub fn is_aligned(self) -> bool {
        self.members == 1 && self.span.is_power_of_two()
    }
}

impl Group {
    /// A group of one access at a form and a displacement.
    pub(super) fn of(form: Form, displacement: u64, access: &Access) -> Self {
        let (reads, writes) = access.counts();
        let (loaded, stored) = access.bytes();
        Self {
            form,
            first: displacement,
            span: access.size.into(),
            reads,
            writes,
            loaded,
            stored,
            written: match stored {
                0 => 0,
                _ => bytes(access.size),
            },
            members: 1,
        }
    }

    /// The same accesses at another form and lowest displacement.
    pub(super) fn at(&self, form: Form, first: u64) -> Self {
        Self {
            form,
            first,
            ..self.clone()
        }
    }

    /// Adds a group whose first address is not below this one's, if both span at most `most` bytes.
    pub(super) fn join(&mut self, other: &Self, most: u64) -> bool {
        let distance = other.first.wrapping_sub(self.first);
        let end = distance.saturating_add(other.span);
        let joins = self.form == other.form && end.max(self.span) <= most;
        if joins {
            self.span = end.max(self.span);
            self.reads += other.reads;
            self.writes += other.writes;
            self.loaded += other.loaded;
            self.stored += other.stored;
            if other.written != 0 {
                self.written |= other.written << distance;
            }
            self.members += other.members;
        }
        joins
    }

    /// Its lowest address.
    pub fn operand(&self) -> Operand {
        let register =
            |number: Option<u8>| number.map_or(Register::None, |n| REGISTERS[usize::from(n)]);
        Operand {
            base: register(self.form.base),
            index: register(self.form.index.map(|index| index.0)),
            scale: 1_u8 << self.form.index.map_or(0, |index| index.1),
            displacement: self.first,
            fs: false,
        }
    }

    /// What must be checked of its lines.
    pub fn shape(&self) -> Shape {
        Shape {
            span: self.span as u16,
            members: self.members,
            writes: self.writes > 0,
            written: self.written,
        }
    }

    /// What it adds to the counter of its page.
    pub fn made(&self) -> Made {
        Made {
            reads: self.reads,
            writes: self.writes,
        }
    }

    /// Whether one instruction computes its address.
    pub(super) fn is_addressable(&self) -> bool {
        let alone = self.form.base.is_none() && self.form.index.is_none();
        let stack = self.form.index.is_some_and(|(register, _)| register == 4);
        !stack
            && (alone
                || i32::try_from(self.first as i64).is_ok_and(|at| at < i32::MAX - LOADS as i32))
    }

    /// Bits of the registers that its address uses.
    pub fn registers(&self) -> u16 {
        let bit = |register: Option<u8>| register.map_or(0, |register| 1 << register);
        bit(self.form.base) | bit(self.form.index.map(|index| index.0))
    }
}

/// Loads and stores to be counted for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Loads.
    pub reads: i32,
    /// Stores.
    pub writes: i32,
}

impl Made {
    /// What they add to a counter.
    pub fn amount(self) -> u64 {
        self.reads as u64 * READ + self.writes as u64 * WRITE
    }

    /// Both.
    pub fn and(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
        }
    }
}

/// Instructions whose accesses are recorded together.
pub struct Segment {
    /// Number of the first instruction.
    pub begin: usize,
    /// Number of the instruction after the last one.
    pub end: usize,
    /// Groups of accesses.
    pub groups: Vec<Group>,
    /// What is taken from the quantum at its beginning: its accesses, and those of later segments of a path; `None` if
    /// an earlier segment has taken them. Accesses in no group are checked by themselves.
    pub taken: Option<Totals>,
    /// For each instruction, bits of those of its accesses that are in groups.
    pub merged: Vec<u8>,
    /// What earlier segments have counted of it and of later ones.
    pub before: Owed,
    /// What has been counted of later segments where the thread may leave it.
    pub after: Owed,
}

/// Accesses that have been counted and are still to be made.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Owed {
    /// What has been taken from the quantum.
    pub totals: Totals,
    /// What has been added to counters of pages, with an address in the page.
    pub groups: Vec<(Operand, Made)>,
}

impl Owed {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.totals.accesses == 0 && self.groups.is_empty()
    }

    /// Bits of the registers that the addresses use.
    pub fn registers(&self) -> u16 {
        let groups = self.groups.iter();
        groups.fold(0, |bits, (operand, _)| bits | used(operand))
    }
}

impl Segment {
    /// Bits of the registers that the addresses of its groups use.
    pub fn registers(&self) -> u16 {
        let groups = self.groups.iter();
        groups.fold(self.before.registers(), |bits, group| {
            bits | group.registers()
        })
    }

    /// Whether anything is counted at its beginning.
    pub fn checks(&self) -> bool {
        !self.groups.is_empty() || self.taken.is_some()
    }

    /// Number of registers that code needs which counts its accesses. `alone`: the process has had one thread.
    pub fn takes(&self, alone: bool) -> usize {
        let loads = self.groups.iter().all(|group| group.writes == 0)
            && self.before.groups.iter().all(|(_, made)| made.writes == 0);
        if alone && loads { 1 } else { 2 }
    }
}

/// Numbers of accesses and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Loads and stores.
    pub accesses: i32,
    /// Bytes loaded.
    pub loaded: i32,
    /// Bytes stored.
    pub stored: i32,
}

impl Totals {
    /// One access.
    pub fn of(access: &Access) -> Self {
        let (reads, writes) = access.counts();
        let (loaded, stored) = access.bytes();
        Self {
            accesses: reads + writes,
            loaded,
            stored,
        }
    }

    /// Adds a group.
    pub fn add(&mut self, group: &Group) {
        self.accesses += group.reads + group.writes;
        self.loaded += group.loaded;
        self.stored += group.stored;
    }

    /// Adds others.
    pub fn sum(&mut self, other: Self) {
        self.accesses += other.accesses;
        self.loaded += other.loaded;
        self.stored += other.stored;
    }
}

/// Joins accesses, in any order, to groups.
fn group(members: &mut Vec<Group>) {
    members.sort_by_key(|one| (one.form, one.first as i64));
    members.dedup_by(|member, last| last.join(member, SPAN));
}

/// Joins groups of loads whose lines need not be checked. The groups are in the order of [`group`].
fn join_loads(groups: &mut Vec<Group>) {
    let mut joined = 0;
    for at in 0..groups.len() {
        let (before, rest) = groups.split_at_mut(at);
        let group = &rest[0];
        let same = before[..joined].iter_mut().rev();
        let mut same = same.take_while(|one| one.form == group.form);
        let loads = same.find(|one| one.writes == 0 && group.writes == 0);
        if !loads.is_some_and(|loads| loads.join(group, LOADS)) {
            groups.swap(joined, at);
            joined += 1;
        }
    }
    groups.truncate(joined);
}

/// Whether an instruction belongs to no segment.
pub fn is_apart(instruction: &Instruction, plan: &Plan) -> bool {
    matches!(
        plan,
        Plan::After { .. } | Plan::Masked { .. } | Plan::Complex
    ) || usage::synchronises(instruction)
}

/// Finds the segments of a block.
pub struct Finder {
    /// Of loads only the pages matter.
    alone: bool,
    found: Vec<Segment>,
    /// Number of the first instruction of the segment that is being found.
    begin: usize,
    registers: Registers,
    members: Vec<Group>,
    merged: Vec<u8>,
    others: Totals,
}

impl Finder {
    /// At the beginning of a block; `alone`: of loads only the pages matter. `found` is empty memory for the result.
    pub fn new(alone: bool, found: Vec<Segment>) -> Self {
        Self {
            alone,
            found,
            begin: 0,
            registers: Registers::first(),
            members: Vec::new(),
            merged: Vec::new(),
            others: Totals::default(),
        }
    }

    /// Adds the next instruction.
    pub fn step(
        &mut self,
        instruction: &Instruction,
        info: &InstructionInfo,
        uses: Uses,
        plan: &Plan,
        owner: Owner,
    ) {
        let alone = is_apart(instruction, plan);
        if alone && !self.merged.is_empty() {
            self.end();
        }
        let mut of_instruction = 0_u8;
        if let Plan::Before(accesses) = plan {
            let places = usage::accesses(info).map(|memory| self.registers.address(memory));
            for (n, (access, place)) in accesses.iter().zip(places).enumerate() {
                let plain = access.is_plain(owner);
                let group = place
                    .filter(|_| plain)
                    .map(|(form, displacement)| Group::of(form, displacement, access))
                    .filter(Group::is_addressable);
                of_instruction |= u8::from(group.is_some()) << n;
                if plain && group.is_none() {
                    self.others.add(&Group::of(Form::default(), 0, access));
                }
                self.members.extend(group);
            }
        }
        self.merged.push(of_instruction);
        if alone || instruction.flow_control() != FlowControl::Next {
            return self.end();
        }
        self.registers.step_changing(instruction, uses.changes);
    }

    /// Ends a segment, which is found if it is worth it; otherwise its accesses are recorded by themselves.
    fn end(&mut self) {
        let (members, merged) = (&mut self.members, &mut self.merged);
        let (begin, end) = (self.begin, self.begin + merged.len());
        let others = std::mem::take(&mut self.others);
        self.begin = end;
        self.registers.start_again();
        let counted = members.len() + usize::from(others.accesses > 0);
        if counted >= 2 {
            group(members);
            if self.alone {
                join_loads(members);
            }
            if members.len() <= GROUPS {
                let mut taken = others;
                members.iter().for_each(|group| taken.add(group));
                self.found.push(Segment {
                    begin,
                    end,
                    groups: members.as_slice().into(),
                    taken: Some(taken),
                    merged: merged.as_slice().into(),
                    before: Owed::default(),
                    after: Owed::default(),
                });
            }
        }
        members.clear();
        merged.clear();
    }

    /// The segments, when the block ends.
    pub fn segments(mut self) -> Vec<Segment> {
        if !self.merged.is_empty() {
            self.end();
        }
        self.found
    }
}

/// Where accesses are.
#[derive(Clone, Copy)]
pub enum Place {
    /// At the address in a register.
    Variable,
    /// At this address, within a line.
    Known(u64),
}

/// Where the number of a line is.
#[derive(Clone, Copy)]
pub enum LineNumber {
    /// In a register.
    In(usize),
    /// Known when the code is emitted.
    Known(u64),
    /// This distance behind the address in a register.
    Behind(usize, i64),
}

/// A jump for a line that may be unusual, still to be completed.
pub struct Unusual {
    /// Offset of its displacement.
    pub jump: usize,
    /// Whether the line is stored to.
    pub writes: bool,
    /// Where the number of the line is.
    pub line: LineNumber,
    /// The bytes stored: [`Shape::written`].
    pub written: u64,
    /// The lowest address of the accesses.
    pub operand: Operand,
    /// Where the usual case continues.
    pub usual: u64,
    /// Where a line goes that another thread may have used.
    pub cold: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::descriptor::Kind;

    fn access(displacement: i64, size: u16, kind: Kind) -> Group {
        let operand = Operand {
            base: Register::RDI,
            index: Register::None,
            scale: 1,
            displacement: 0,
            fs: false,
        };
        let form = Form {
            base: Some(7),
            index: None,
        };
        let access = Access {
            flow: crate::record::flow::Flow::default(),
            operand,
            kind,
            size,
        };
        Group::of(form, displacement as u64, &access)
    }

    #[test]
    fn accesses_within_a_lines_length_form_a_group() {
        let mut groups = vec![
            access(40, 8, Kind::Read),
            access(-8, 8, Kind::Write),
            access(0, 32, Kind::Read),
            access(56, 8, Kind::Update),
        ];
        group(&mut groups);
        assert_eq!(groups.len(), 2);
        let [first, second] = [&groups[0], &groups[1]];
        assert_eq!((first.first as i64, first.span), (-8, 56));
        assert_eq!((first.reads, first.writes), (5, 1));
        assert_eq!((first.loaded, first.stored), (40, 8));
        assert_eq!((second.first, second.reads, second.writes), (56, 1, 1));
    }

    #[test]
    fn a_group_knows_which_of_its_bytes_are_stored() {
        let mut groups = vec![
            access(32, 4, Kind::Read),
            access(24, 8, Kind::Write),
            access(40, 2, Kind::Update),
            access(16, 1, Kind::Write),
            access(200, 8, Kind::Read),
        ];
        group(&mut groups);
        assert_eq!(groups[0].shape().written, 1 | 0xff << 8 | 3 << 24);
        assert_eq!(groups[1].shape().written, 0);
    }

    #[test]
    fn an_access_inside_another_does_not_extend_it() {
        let mut groups = vec![access(0, 64, Kind::Read), access(8, 4, Kind::Read)];
        group(&mut groups);
        assert_eq!((groups.len(), groups[0].span, groups[0].reads), (1, 64, 9));
    }

    #[test]
    fn loads_of_several_lines_form_a_group_where_lines_do_not_matter() {
        let mut groups = vec![
            access(0, 8, Kind::Read),
            access(100, 8, Kind::Write),
            access(200, 8, Kind::Read),
            access(300, 8, Kind::Read),
        ];
        group(&mut groups);
        join_loads(&mut groups);
        let of = |group: &Group| (group.first, group.span, group.reads, group.writes);
        let groups: Vec<_> = groups.iter().map(of).collect();
        assert_eq!(groups, [(0, 208, 2, 0), (100, 8, 0, 1), (300, 8, 1, 0)]);
    }
}
