//! Copies a block: instructions unchanged, except for rip-relative operands and branches.

use iced_x86::{Code, Encoder, FlowControl, Instruction, InstructionInfoFactory, Register};

use numaloc_follow::owners::Owner;

use super::analysis::Analysis;
use super::borrowed::Lent;
use super::checks::Checks;
use super::counts::{Counts, Leave};
use super::decode::{Block, Decoded, has_gs_operand};
use super::groups::{Owed, Segment, Unusual};
use super::landing::{self, SLOT_FAR};
use super::liveness::{self, Live, Uses};
use super::loops::{self, Begun, Found};
use crate::emit::{Buffer, NOT_EQUAL};
use crate::fragment::{Branch, Exit, Fragment, Landing, Point, Translation, Version};
use crate::layout::VECTOR_EXIT;
use crate::record;
use crate::record::access::Plan;
use crate::record::descriptor::Kind;
use crate::record::flow::Flow;
use crate::record::follow::{Steps, of_address};
use crate::state::{self, exit};

/// Where a translation will be.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Address of its code.
    pub code: u64,
    /// Address of the code of its exits.
    pub stubs: u64,
    /// What kind of code it is.
    pub version: Version,
}

/// Empty memory for translations.
pub struct Memory {
    code: Vec<u8>,
    stubs: Vec<u8>,
    exits: Vec<Exit>,
    points: Vec<Point>,
    pub(super) pages: Vec<u64>,
}

impl Memory {
    /// None yet.
    pub const fn new() -> Self {
        Self {
            code: Vec::new(),
            stubs: Vec::new(),
            exits: Vec::new(),
            points: Vec::new(),
            pages: Vec::new(),
        }
    }

    /// Takes the memory of a translation, whose exits have been taken out.
    pub fn reuse(&mut self, made: Translation) -> Fragment {
        self.code = made.code;
        self.stubs = made.stubs;
        self.exits = made.exits;
        self.pages = made.pages;
        made.fragment
    }
}

/// Emits the code of a block.
pub fn emit(
    block: &mut Block,
    analysis: &Analysis,
    place: Place,
    landing: Option<Branch>,
    memory: &mut Memory,
    exit_code: &dyn Fn(usize) -> u64,
) -> Translation {
    // Where a block has changed, others may need rcx.
    let rcx_is_dead = block.checks.is_none() && liveness::rcx_is_dead(block, &analysis.uses);
    let pages = std::mem::take(&mut block.pages);
    let block = &*block;
    let mut exits = std::mem::take(&mut memory.exits);
    exits.clear();
    let mut copier = Copier {
        code: Buffer::within(std::mem::take(&mut memory.code), place.code),
        stubs: Buffer::within(std::mem::take(&mut memory.stubs), place.stubs),
        exits,
        landing: None,
        fragment: Fragment::new(block.pc, place.code),
        points: std::mem::take(&mut memory.points),
        exit_code,
        recorded: false,
        plans: &analysis.plans,
        live: &analysis.live,
        loops: Vec::new(),
        unusual: Vec::new(),
        uses: &analysis.uses,
        steps: &analysis.steps,
        lent: Lent::default(),
        version: place.version,
        steady: place.version != Version::Counting && record::is_steady(),
        alone: record::is_alone(),
        counts: Counts::default(),
        owed: Owed::default(),
        targets: &analysis.targets,
        leaves: Vec::new(),
        loads_constants: block.checks.as_ref().is_some_and(Checks::loads_constants),
    };
    if place.version == Version::Counting {
        copier.plan_counts(block, &analysis.targets);
    }
    let found = copier.loop_of(block);
    copier.code.align(16);
    copier.fragment.body = copier.code.pc() as u32;
    if let Some(branch) = landing {
        let landing = landing::emit(&mut copier.code, branch, block.pc, rcx_is_dead);
        copier.landing = Some(landing);
        copier.fragment.body = landing.body as u32;
    }
    copier.compare_with_memory(block);
    // Code of the usual version leads to the others, and has recorded that its beginning was reached.
    if record::is_on()
        && place.version != Version::Apart
        && let Some(entry) = record::entry(block.pc)
    {
        copier.call(block.pc, entry);
    }
    copier.instructions(block, &analysis.segments, found);
    copier.end(block);
    copier.leave_after_counting();
    copier.other_loops(block);
    copier.fragment.rcx_is_dead = rcx_is_dead;
    copier.fragment.version = place.version;
    copier.fragment.points = copier.points.as_slice().into();
    copier.points.clear();
    memory.points = copier.points;
    Translation {
        fragment: copier.fragment,
        pages,
        exits: copier.exits,
        landing: copier.landing,
        code: copier.code.into_bytes(),
        stubs: copier.stubs.into_bytes(),
    }
}

/// A translation under construction.
pub struct Copier<'a> {
    pub(super) code: Buffer,
    pub(super) stubs: Buffer,
    pub(super) exits: Vec<Exit>,
    landing: Option<Landing>,
    pub(super) fragment: Fragment,
    points: Vec<Point>,
    pub(super) exit_code: &'a dyn Fn(usize) -> u64,
    /// Accesses of the current instruction have been recorded.
    pub(super) recorded: bool,
    /// How the instructions' accesses are recorded; empty if nothing is.
    pub(super) plans: &'a [(Plan, Owner)],
    live: &'a [Live],
    pub(super) loops: Vec<Begun>,
    pub(super) unusual: Vec<Unusual>,
    /// How the instructions use registers; empty if nothing is recorded.
    pub(super) uses: &'a [Uses],
    /// How the instructions pass values on; empty without an access trace.
    pub(super) steps: &'a [Steps],
    /// Registers borrowed at present.
    pub(super) lent: Lent,
    /// What kind of code it is.
    pub(super) version: Version,
    /// Accesses may be counted wherever they fit into the quantum.
    pub(super) steady: bool,
    /// Loads change the state of no line.
    pub(super) alone: bool,
    /// Where accesses are counted, if that is all.
    pub(super) counts: Counts,
    /// What has been counted of accesses that are not made if the thread leaves the block here.
    pub(super) owed: Owed,
    /// Branches' targets, and whether a flag is needed there.
    targets: &'a [(u64, bool)],
    pub(super) leaves: Vec<Leave>,
    /// Whether constants are loaded from the program's code.
    pub(super) loads_constants: bool,
}

/// The first `N` general registers, with their numbers, that an instruction does not use. The last ones, which do not
/// go with ah to bh, are for instructions that use all others.
pub(super) fn unused<const N: usize>(instruction: &Instruction) -> [(Register, usize); N] {
    const CHOICE: [(Register, usize); 10] = [
        (Register::RAX, 0),
        (Register::RCX, 1),
        (Register::RDX, 2),
        (Register::RBX, 3),
        (Register::RBP, 5),
        (Register::RSI, 6),
        (Register::RDI, 7),
        (Register::R8, 8),
        (Register::R9, 9),
        (Register::R10, 10),
    ];
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(instruction).used_registers();
    let is_used = |register| {
        let mut used = used.iter();
        used.any(|used| used.register().full_register() == register)
    };
    let mut free = CHOICE
        .into_iter()
        .filter(|&(register, _)| !is_used(register));
    [(); N].map(|()| free.next().unwrap_or(CHOICE[0]))
}

impl Copier<'_> {
    /// A loop at the beginning of the block, whose turns are recorded together.
    fn loop_of(&self, block: &Block) -> Option<Found> {
        let counts = matches!(self.version, Version::Counting | Version::Noting);
        let single = !block.is_path && block.checks.is_none();
        let recorded = !counts && !self.plans.is_empty() && single;
        recorded.then(|| loops::find(block, self.plans, self.live))?
    }

    /// Emits the instructions, and what records their accesses. `found` is the loop at the block's beginning.
    fn instructions(&mut self, block: &Block, segments: &[Segment], mut found: Option<Found>) {
        let (mut at, mut next) = (0, segments.iter().peekable());
        while let Some(decoded) = block.instructions.get(at) {
            if let Some(segment) = next.next_if(|segment| segment.begin == at) {
                self.segment(segment, block, &mut found);
                at = segment.end;
                continue;
            }
            self.recorded = false;
            match self.version {
                Version::Counting => self.before_counting(at, decoded),
                Version::Usual | Version::Apart | Version::Noting => self.before(at, decoded),
            }
            match found.take_if(|found| found.branch == at) {
                Some(found) => self.begin_loop(found, block),
                None => self.instruction(at, decoded),
            }
            // Between bursts, what is counted needs no engine afterwards either.
            if self.version != Version::Counting || self.is_timed(at) {
                self.after(at);
            }
            at += 1;
        }
    }

    /// What the program needs before instruction number `at`.
    pub(super) fn live(&self, at: usize) -> Live {
        self.live[at]
    }

    /// Whether the program needs a register after instruction number `at`.
    pub(super) fn is_needed_after(&self, at: usize, register: usize) -> bool {
        let after = self.live.get(at + 1);
        after.is_none_or(|live| live.has(register))
    }

    /// Records what is recorded before instruction number `at`.
    pub(super) fn before(&mut self, at: usize, decoded: &Decoded) {
        self.before_except(at, decoded, None);
    }

    /// [`Copier::before`] in a segment, except for the accesses that were recorded with it: `merged`.
    pub(super) fn before_except(&mut self, at: usize, decoded: &Decoded, merged: Option<u8>) {
        let Some(&(ref plan, owner)) = self.plans.get(at) else {
            return;
        };
        if !matches!(plan, Plan::Nothing) {
            self.point(decoded.instruction.ip(), None);
            self.recorded = true;
        }
        match plan {
            Plan::Nothing => {}
            Plan::Before(accesses) => {
                for (n, access) in accesses.iter().enumerate() {
                    if merged.is_none_or(|merged| merged >> n & 1 == 0) {
                        let leaves = (n == 0).then_some(decoded.instruction.ip());
                        self.access(at, access, owner, merged.is_some(), leaves);
                    }
                }
            }
            Plan::After { access, announce } => {
                self.note_address(at, &access.operand);
                // There is no other thread that could see it.
                if *announce && !self.alone {
                    self.record_here(access.size, Kind::Announce, owner, Flow::default());
                }
            }
            &Plan::Masked {
                operand,
                masked,
                mask,
            } => {
                self.note_address(at, &operand);
                self.code.store_mask(mask, state::SELECTED);
                let flow = match self.steps.is_empty() {
                    true => Flow::default(),
                    false => of_address(&operand),
                };
                self.record_here(masked.encode(), Kind::Masked, owner, flow);
            }
            Plan::Complex => self.complex(&decoded.instruction, owner),
        }
    }

    /// Records what is recorded after instruction number `at`.
    pub(super) fn after(&mut self, at: usize) {
        if let Some((Plan::After { access, .. }, owner)) = self.plans.get(at) {
            let (size, kind, owner) = (access.size, access.kind, *owner);
            self.record_here(size, kind, owner, access.flow);
        }
    }

    /// Adds a point: the program is at `pc` here.
    pub(super) fn point(&mut self, pc: u64, borrowed: Option<(usize, usize)>) {
        let Ok(offset) = u16::try_from(self.code.offset()) else {
            return;
        };
        let Ok(delta) = i32::try_from(pc.wrapping_sub(self.fragment.pc) as i64) else {
            return;
        };
        let point = Point {
            offset,
            delta,
            borrowed: borrowed.map(|(register, slot)| (register as u8, slot as u8)),
            lost: self.lent.lost,
            recorded: self.recorded,
        };
        match self.points.last_mut() {
            // The end of a block after an omitted instruction.
            Some(last) if last.offset == offset => *last = point,
            _ => self.points.push(point),
        }
    }

    pub(super) fn instruction(&mut self, at: usize, decoded: &Decoded) {
        self.pass_on(at);
        self.instruction_itself(at, decoded);
    }

    /// [`Copier::instruction`] without what follows values.
    pub(super) fn instruction_itself(&mut self, at: usize, decoded: &Decoded) {
        let instruction = &decoded.instruction;
        let uses = self.uses.get(at).copied().unwrap_or_default();
        self.give_back(uses.needs);
        match instruction.flow_control() {
            FlowControl::Next
            | FlowControl::Exception
            | FlowControl::Interrupt
            | FlowControl::XbeginXabortXend
                if instruction.code() != Code::Int3 =>
            {
                self.plain(decoded);
            }
            FlowControl::ConditionalBranch => self.conditional(at, decoded),
            // If it is the last instruction of a block, the block's end handles it.
            _ => {
                if let Some(next) = decoded.next {
                    self.go_on(at, instruction, next);
                }
            }
        }
        self.lent.change(uses.changes);
    }

    fn plain(&mut self, decoded: &Decoded) {
        if self.load_constant(decoded) {
            return;
        }
        let instruction = &decoded.instruction;
        if has_gs_operand(instruction) {
            return self.by_gs(instruction);
        }
        self.note_direction(instruction);
        self.leave_to_be_stepped(instruction);
        let bytes = &decoded.bytes[..instruction.len()];
        if decoded.before_branch {
            self.code.align_jump(bytes.len() as u64 + 2);
        }
        if !instruction.is_ip_rel_memory_operand() {
            self.point(instruction.ip(), None);
            self.code.put_all(bytes);
            return;
        }
        let target = instruction.ip_rel_memory_address();
        let distance = target.wrapping_sub(self.code.pc() + bytes.len() as u64) as i64;
        if let Ok(distance) = i32::try_from(distance) {
            self.point(instruction.ip(), None);
            let start = self.code.offset();
            self.code.put_all(bytes);
            self.code
                .patch(start + decoded.displacement, &distance.to_le_bytes());
        } else {
            self.far(instruction, target);
        }
    }

    /// Before flags are loaded from the stack: a program that sets the trap flag cannot run in the cache. The program's
    /// flags are lost here, and are loaded next.
    fn leave_to_be_stepped(&mut self, instruction: &Instruction) {
        if !matches!(instruction.code(), Code::Popfw | Code::Popfq) {
            return;
        }
        let ip = instruction.ip();
        self.point(ip, None);
        self.code.put(&[0xf6, 0x44, 0x24, 0x01, 0x01]); // test byte [rsp + 1], 1
        let leaves = self.stubs.pc();
        self.code.jump_if(NOT_EQUAL, leaves);
        std::mem::swap(&mut self.code, &mut self.stubs);
        for register in (0..16).filter(|register| self.lent.lost >> register & 1 != 0) {
            self.code.return_to_owner(register);
        }
        self.leave(ip, exit::UNSUPPORTED);
        std::mem::swap(&mut self.code, &mut self.stubs);
    }

    /// A rip-relative operand out of reach: addressed by a register that the instruction does not use.
    fn far(&mut self, instruction: &Instruction, target: u64) {
        let [(base, number)] = unused(instruction);
        self.point(instruction.ip(), None);
        self.code.save(number, SLOT_FAR);
        self.code.load(number, target);
        let mut changed = *instruction;
        changed.set_memory_base(base);
        changed.set_memory_displacement64(0);
        changed.set_memory_displ_size(0);
        self.point(instruction.ip(), Some((number, SLOT_FAR)));
        self.encode(&changed);
        self.code.restore(number, SLOT_FAR);
    }

    pub(super) fn encode(&mut self, instruction: &Instruction) {
        let mut encoder = Encoder::new(64);
        // Every instruction here was decoded, or is a plain load.
        if encoder.encode(instruction, self.code.pc()).is_ok() {
            self.code.put_all(&encoder.take_buffer());
        } else {
            self.code.put(&[0x0f, 0x0b]);
        }
    }

    /// A conditional branch out of the fragment.
    fn exit_if(&mut self, at: usize, condition: u8, target: u64) {
        let leaving = self.counts.leaving.get(at).copied().unwrap_or_default();
        let owes = !self.owed.is_empty();
        if self.lent.lost == 0 && leaving.is_empty() && !owes {
            return self.exit(Some(condition), target);
        }
        if self.lent.lost == 0 && !owes {
            return self.count_later(leaving, condition, target);
        }
        let stub = self.stubs.pc();
        self.code.jump_if(condition, stub);
        self.settle_in_stubs();
        if owes {
            let flags = liveness::flags_at(self.targets, target);
            self.take_back_owed(flags, false);
        }
        if !leaving.is_empty() {
            self.count_leaving(leaving, target);
        }
        self.exit_from_stubs(target, self.next_version());
    }

    /// The version of the code that branches of the program lead to.
    fn next_version(&self) -> Version {
        match self.version {
            Version::Apart => Version::Usual,
            version => version,
        }
    }

    /// A direct branch out of the fragment.
    pub(super) fn exit(&mut self, condition: Option<u8>, target: u64) {
        let number = self.exits.len();
        let stub = self.stubs.pc();
        self.stubs.set_field(state::EXIT, (self.exit_code)(number));
        self.stubs.jump_by(VECTOR_EXIT);
        let patch = self.code.jump(condition, stub);
        self.exits.push(Exit {
            target,
            patch: patch as u32,
            stub: stub as u32,
            version: self.next_version(),
        });
    }

    fn conditional(&mut self, at: usize, decoded: &Decoded) {
        let instruction = &decoded.instruction;
        self.point(instruction.ip(), None);
        let target = instruction.near_branch_target();
        if instruction.is_jcc_short_or_near() {
            let condition = instruction.condition_code() as u8 - 1;
            return self.exit_if(at, condition, target);
        }
        // jrcxz and loop have only short displacements.
        self.settle();
        let len = instruction.len();
        self.code.put_all(&decoded.bytes[..len - 1]);
        self.code.put(&[0]);
        let from = self.code.offset();
        self.point(instruction.next_ip(), None);
        self.exit(None, instruction.next_ip());
        let distance = (self.code.offset() - from) as u8;
        self.code.patch(from - 1, &[distance]);
        self.point(target, None);
        self.exit(None, target);
    }
}
