//! Finds the segments of a path: pure. Accesses of several segments that follow one another are counted with the first
//! of them; where the thread leaves the path, those that it has not made are taken back.
//!
//! Values get names ([`Registers::naming`]): accesses whose addresses differ by a constant form a group although the
//! register that contains the common part changes, as the stack pointer does at a call. A group is counted in the
//! segment of its first access, and everywhere from there to the segment of its last access its address must follow
//! from the registers at the segments' beginnings, so that it can be taken back.

use iced_x86::{FlowControl, InstructionInfo, InstructionInfoFactory};
use numaloc_follow::affine::Registers;
use numaloc_follow::owners::Owner;
use numaloc_follow::usage;
use numaloc_trace::block::Form;

use super::borrowed::Borrowed;
use super::decode::Decoded;
use super::groups::{self, GROUPS, Group, Owed, Segment, Totals};
use super::liveness::{self, Live, Uses};
use crate::record::access::Plan;
use crate::state::{RAX, RCX};

/// Most accesses to be taken back, of all places where a path may be left: code takes them back at each place.
const OWED: usize = 256;

/// The code of a path, and what is known of it.
pub struct Code<'a> {
    /// Its instructions.
    pub instructions: &'a [Decoded],
    /// How their accesses are recorded.
    pub plans: &'a [(Plan, Owner)],
    /// How they use registers.
    pub uses: &'a [Uses],
    /// What the program needs before each.
    pub live: &'a [Live],
    /// Branches' targets, and whether a flag is needed there.
    pub targets: &'a [(u64, bool)],
    /// Of loads only the pages matter.
    pub alone: bool,
}

/// A segment that is being found.
struct Part {
    begin: usize,
    end: usize,
    registers: Registers,
    /// Bits of the registers whose values are elsewhere when the thread leaves the path before this.
    except: u16,
    totals: Totals,
    merged: Vec<u8>,
}

/// An access that may be part of a group.
#[derive(Clone)]
struct Member {
    part: usize,
    /// Number of the instruction, and of its access.
    at: (usize, usize),
    one: Group,
}

/// Accesses that are counted together.
struct Joined {
    /// The segment of the first.
    part: usize,
    all: Group,
    members: Vec<Member>,
}

impl Joined {
    /// The group that they form at its place: which bytes are stored is certain if the path is not left before.
    fn certain(&self, mut group: Group) -> Group {
        let later = self.members.iter().filter(|one| one.part != self.part);
        if later.map(|one| one.one.writes).any(|writes| writes > 0) {
            group.written = 0;
        }
        group
    }
}

/// The segments of a path.
pub fn find(code: &Code, factory: &mut InstructionInfoFactory) -> Vec<Segment> {
    let mut found = Vec::new();
    let begins = begins(code, factory);
    let mut registers = Registers::naming();
    let (mut parts, mut members) = (Vec::new(), Vec::new());
    let mut except = None;
    for (at, decoded) in code.instructions.iter().enumerate() {
        let instruction = &decoded.instruction;
        let info = factory.info(instruction);
        let plan = &code.plans[at].0;
        if groups::is_apart(instruction, plan) {
            complete(code, &mut parts, &mut members, &mut found);
            except = None;
        } else {
            if parts.is_empty() || except.is_some() || begins[at] {
                parts.push(Part {
                    begin: at,
                    end: at,
                    registers: registers.clone(),
                    except: except.take().unwrap_or(0) | !code.live[at].registers,
                    totals: Totals::default(),
                    merged: Vec::new(),
                });
            }
            if let Some(part) = parts.last_mut() {
                part.merged.push(0);
                part.end = at + 1;
            }
            add(code, at, info, &registers, &mut parts, &mut members);
            except = leaves(code, decoded);
        }
        registers.step_changing(instruction, code.uses[at].changes);
    }
    complete(code, &mut parts, &mut members, &mut found);
    found
}

/// A value that is loaded or computed on the path.
#[derive(Clone, Copy)]
struct Value {
    /// Number of the next instruction.
    after: usize,
    /// Displacement of its first use in an address.
    first: Option<u64>,
}

/// Instructions at which segments begin although no branch is before them: those after which a value is the base of
/// several accesses, of which the first is made before the next branch.
fn begins(code: &Code, factory: &mut InstructionInfoFactory) -> Vec<bool> {
    let mut begins = vec![false; code.instructions.len()];
    let mut registers = Registers::naming();
    let mut values: [Option<Value>; 256] = [None; 256];
    for (at, Decoded { instruction, .. }) in code.instructions.iter().enumerate() {
        if groups::is_apart(instruction, &code.plans[at].0) {
            values = [None; 256];
        }
        let info = factory.info(instruction);
        for memory in usage::accesses(info) {
            let Some((form, displacement)) = registers.address(memory) else {
                continue;
            };
            let base = form.base.filter(|_| form.index.is_none());
            let Some(value) = base.and_then(|base| values[usize::from(base)].as_mut()) else {
                continue;
            };
            match value.first {
                None => value.first = Some(displacement),
                Some(first) if first.abs_diff(displacement) < groups::SPAN => {
                    begins[value.after] |= !code.live[value.after].flags();
                }
                Some(_) => {}
            }
        }
        if instruction.flow_control() != FlowControl::Next {
            // What has not been used yet is counted in the next segment.
            for value in &mut values {
                *value = value.filter(|value| value.first.is_some());
            }
        }
        let before = registers.next_name();
        registers.step_changing(instruction, code.uses[at].changes);
        let after = registers.next_name().unwrap_or(u8::MAX);
        if let Some(before) = before
            && at + 1 < begins.len()
        {
            let value = Value {
                after: at + 1,
                first: None,
            };
            values[usize::from(before)..usize::from(after)].fill(Some(value));
        }
    }
    begins
}

/// If the thread may leave the path after an instruction: bits of the registers that are not the program's there.
fn leaves(code: &Code, decoded: &Decoded) -> Option<u16> {
    let instruction = &decoded.instruction;
    match instruction.flow_control() {
        FlowControl::Next => None,
        FlowControl::Call => Some(0),
        FlowControl::ConditionalBranch => {
            let target = instruction.near_branch_target();
            let flags = liveness::flags_at(code.targets, target);
            Some(if flags { 1 << RAX } else { 0 })
        }
        _ => Some(1 << RAX | 1 << RCX),
    }
}

/// Adds the accesses of instruction number `at` to the last part.
fn add(
    code: &Code,
    at: usize,
    info: &InstructionInfo,
    registers: &Registers,
    parts: &mut [Part],
    members: &mut Vec<Member>,
) {
    let (Plan::Before(accesses), owner) = &code.plans[at] else {
        return;
    };
    let Some((part, last)) = parts.len().checked_sub(1).zip(parts.last_mut()) else {
        return;
    };
    let places = usage::accesses(info).map(|memory| registers.address(memory));
    for (n, (access, place)) in accesses.iter().zip(places).enumerate() {
        if !access.is_plain(*owner) {
            continue;
        }
        last.totals.add(&Group::of(Form::default(), 0, access));
        if let Some((form, displacement)) = place {
            let one = Group::of(form, displacement, access);
            if last.place(&one).is_some() {
                members.push(Member {
                    part,
                    at: (at, n),
                    one,
                });
            }
        }
    }
}

impl Part {
    /// A group, whose form names values, as it follows from the registers at the beginning of this part.
    fn place(&self, group: &Group) -> Option<Group> {
        let mut first = group.first;
        let mut form = Form::default();
        if let Some(value) = group.form.base {
            let (register, constant) = self.registers.holder(value, self.except)?;
            form.base = Some(register);
            first = first.wrapping_sub(constant);
        }
        if let Some((value, shift)) = group.form.index {
            // The stack pointer cannot be an index.
            let (register, constant) = self.registers.holder(value, self.except | 1 << 4)?;
            form.index = Some((register, shift));
            first = first.wrapping_sub(constant << shift);
        }
        let placed = group.at(form, first);
        placed.is_addressable().then_some(placed)
    }
}

/// Ends segments that follow one another, and adds them to those found.
fn complete(
    code: &Code,
    parts: &mut Vec<Part>,
    members: &mut Vec<Member>,
    found: &mut Vec<Segment>,
) {
    let mut parts = std::mem::take(parts);
    let accesses: i32 = parts.iter().map(|part| part.totals.accesses).sum();
    if accesses < 2 {
        return members.clear();
    }
    let joined = join(code.alone, &parts, members.iter().cloned());
    let joined = keep(code, &parts, joined);
    let owed: Vec<Owed> = (0..parts.len())
        .map(|at| owed(&parts, &joined, at))
        .collect();
    if owed.iter().map(|owed| owed.groups.len()).sum::<usize>() > OWED {
        return halve(code, parts, std::mem::take(members), found);
    }
    members.clear();
    for member in joined.iter().flat_map(|one| &one.members) {
        let part = &mut parts[member.part];
        part.merged[member.at.0 - part.begin] |= 1 << member.at.1;
    }
    for (at, part) in parts.iter_mut().enumerate() {
        let here = joined.iter().filter(|one| one.part == at);
        let groups = here.filter_map(|one| Some(one.certain(part.place(&one.all)?)));
        let groups = groups.collect();
        let all = &owed[at];
        found.push(Segment {
            begin: part.begin,
            end: part.end,
            groups,
            taken: (at == 0).then_some(all.totals),
            merged: std::mem::take(&mut part.merged),
            before: if at == 0 {
                Owed::default()
            } else {
                all.clone()
            },
            after: owed.get(at + 1).cloned().unwrap_or_default(),
        });
    }
}

/// [`complete`] for two halves, each by itself.
fn halve(code: &Code, mut parts: Vec<Part>, members: Vec<Member>, found: &mut Vec<Segment>) {
    let middle = parts.len() / 2;
    let mut later = parts.split_off(middle);
    let (mut first, mut second): (Vec<Member>, Vec<Member>) =
        members.into_iter().partition(|one| one.part < middle);
    second.iter_mut().for_each(|one| one.part -= middle);
    complete(code, &mut parts, &mut first, found);
    complete(code, &mut later, &mut second, found);
}

/// Joins accesses, in the order in which they are made, to groups.
fn join(alone: bool, parts: &[Part], members: impl Iterator<Item = Member>) -> Vec<Joined> {
    let mut all: Vec<Joined> = Vec::new();
    for member in members {
        let mut best: Option<(u64, usize, Group)> = None;
        for (n, one) in all.iter().enumerate() {
            if one.all.form != member.one.form {
                continue;
            }
            let loads = alone && one.all.writes + member.one.writes == 0;
            let most = if loads { groups::LOADS } else { groups::SPAN };
            let [mut low, mut high] = [&one.all, &member.one];
            if (high.first.wrapping_sub(low.first) as i64) < 0 {
                (low, high) = (high, low);
            }
            let mut both = low.clone();
            let held = || (one.part..=member.part).all(|at| parts[at].place(&both).is_some());
            if held()
                && both.join(high, most)
                && best.as_ref().is_none_or(|best| both.span < best.0)
            {
                best = Some((both.span, n, both));
            }
        }
        match best {
            Some((_, n, both)) => {
                all[n].all = both;
                all[n].members.push(member);
            }
            None => all.push(Joined {
                part: member.part,
                all: member.one.clone(),
                members: vec![member],
            }),
        }
    }
    all
}

/// Removes groups that the code at the beginning of their segment cannot count; their accesses are checked by
/// themselves.
fn keep(code: &Code, parts: &[Part], joined: Vec<Joined>) -> Vec<Joined> {
    let mut kept: Vec<Joined> = Vec::new();
    let mut joined = joined.into_iter().peekable();
    for (at, part) in parts.iter().enumerate() {
        let mut here: Vec<Joined> = Vec::new();
        while let Some(one) = joined.next_if(|one| one.part == at) {
            here.push(one);
        }
        here.truncate(GROUPS);
        let used = here.iter().filter_map(|one| part.place(&one.all));
        let before = owed(parts, &kept, at).registers();
        let used = used.fold(before, |bits, group| bits | group.registers());
        if Borrowed::suits(code.live[part.begin], used, 2) {
            kept.append(&mut here);
        }
    }
    kept
}

/// What has been counted before segment number `at` of accesses in it and later.
fn owed(parts: &[Part], joined: &[Joined], at: usize) -> Owed {
    let mut owed = Owed::default();
    for part in &parts[at..] {
        owed.totals.sum(part.totals);
    }
    for one in joined.iter().filter(|one| one.part < at) {
        let later = one.members.iter().filter(|member| member.part >= at);
        let mut made = later.map(|member| member.one.made());
        if let Some(first) = made.next()
            && let Some(group) = parts[at].place(&one.all)
        {
            let made = made.fold(first, |all, one| all.and(one));
            owed.groups.push((group.operand(), made));
        }
    }
    owed
}

#[cfg(test)]
mod tests {
    use iced_x86::Register;

    use super::super::liveness::Walk;
    use super::*;
    use crate::record::access::{self, Operand};

    const RDI: u16 = 1 << 7;

    /// The segments of some code, where the program needs all registers or all but some.
    fn segments(code: &[u8], dead: u16) -> Vec<Segment> {
        let mut factory = InstructionInfoFactory::new();
        let mut live = Walk::new().needed;
        live.registers = !dead;
        let instructions = Decoded::all(code);
        let (mut plans, mut uses) = (Vec::new(), Vec::new());
        for Decoded { instruction, .. } in &instructions {
            let info = factory.info(instruction);
            plans.push((
                access::plan(instruction, info, Owner::Program, false),
                Owner::Program,
            ));
            uses.push(Uses::of(info));
        }
        let live = vec![live; instructions.len()];
        let code = Code {
            instructions: &instructions,
            plans: &plans,
            uses: &uses,
            live: &live,
            targets: &[(0x2000, false)],
            alone: true,
        };
        find(&code, &mut factory)
    }

    fn operand(base: Register, displacement: i64) -> Operand {
        Operand {
            base,
            index: Register::None,
            scale: 1,
            displacement: displacement as u64,
            fs: false,
        }
    }

    // mov rax, [rdi]; push rax; jne 0x2000; add rdi, 8; push rbx; mov rcx, [rdi]
    const PUSHES: &[u8] = &[
        0x48, 0x8b, 0x07, 0x50, 0x0f, 0x85, 0xf6, 0x0f, 0, 0, 0x48, 0x83, 0xc7, 8, 0x53, 0x48,
        0x8b, 0x0f,
    ];

    #[test]
    fn accesses_of_later_segments_are_counted_with_the_first_and_owed_to_the_others() {
        let [first, second] = &segments(PUSHES, 0)[..] else {
            panic!("two segments");
        };
        let all = Totals {
            accesses: 4,
            loaded: 16,
            stored: 16,
        };
        assert_eq!((first.taken, second.taken), (Some(all), None));
        let groups: Vec<_> = first.groups.iter().collect();
        let of = |group: &&Group| (group.operand(), group.span, group.reads, group.writes);
        assert_eq!(
            groups.iter().map(of).collect::<Vec<_>>(),
            [
                (operand(Register::RDI, 0), 16, 2, 0),
                (operand(Register::RSP, -16), 16, 0, 2)
            ]
        );
        assert!(second.groups.is_empty() && !second.checks());
        // The second push may not be made.
        assert_eq!(first.groups[1].shape().written, 0);
        let later = Totals {
            accesses: 2,
            loaded: 8,
            stored: 8,
        };
        let one = |reads, writes| groups::Made { reads, writes };
        // The stack pointer has changed since.
        let owed = Owed {
            totals: later,
            groups: vec![
                (operand(Register::RDI, 0), one(1, 0)),
                (operand(Register::RSP, -8), one(0, 1)),
            ],
        };
        assert_eq!((&first.after, &second.before), (&owed, &owed));
        assert!(first.before.is_empty() && second.after.is_empty());
    }

    #[test]
    fn a_register_that_the_program_does_not_need_leads_to_no_address() {
        let [first, second] = &segments(PUSHES, RDI)[..] else {
            panic!("two segments");
        };
        assert_eq!(first.groups.len(), 1, "that of the stack");
        assert_eq!(second.before.groups.len(), 1);
        assert_eq!(second.before.totals.accesses, 2);
        assert_eq!(
            (first.merged.as_slice(), second.merged.as_slice()),
            (&[0, 1, 0][..], &[0, 1, 0][..])
        );
    }

    #[test]
    fn many_accesses_to_be_taken_back_are_counted_in_parts() {
        // mov rax, [rdi + n * 256]; jne 0x2000
        let mut code = Vec::new();
        for n in 0..60_u32 {
            let at = n % 15 * 256;
            code.extend([0x48, 0x8b, 0x87]);
            code.extend(at.to_le_bytes());
            code.extend([0x0f, 0x85]);
            code.extend((0x2000 - 0x1000 - (n as i32 + 1) * 13).to_le_bytes());
        }
        let found = segments(&code, 0);
        let owed: usize = found.iter().map(|one| one.before.groups.len()).sum();
        assert!(owed <= 2 * OWED && found.len() == 60);
        let taken: Vec<i32> = found
            .iter()
            .filter_map(|one| one.taken)
            .map(|one| one.accesses)
            .collect();
        assert!(taken.len() > 1);
        assert_eq!(taken.iter().sum::<i32>(), 60);
    }
}
