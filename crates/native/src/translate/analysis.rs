//! What translation needs to know of a block's instructions: how their accesses are recorded, which registers they use,
//! and what the program needs before each.

use iced_x86::InstructionInfoFactory;
use numaloc_follow::owners::Owner;

use super::ahead::Ahead;
use super::along;
use super::borrowed::Borrowed;
use super::decode::{Block, End, Source};
use super::groups::{Finder, Segment};
use super::liveness::{self, Effect, Live, Uses};
use crate::fragment::Version;
use crate::record;
use crate::record::access::{self, Plan};
use crate::record::follow::{self, Steps};

/// What is known of a block; empty if nothing is recorded.
pub struct Analysis {
    /// How the instructions' accesses are recorded.
    pub plans: Vec<(Plan, Owner)>,
    /// How they use registers.
    pub uses: Vec<Uses>,
    /// What the program needs before each.
    pub live: Vec<Live>,
    /// Branches' targets, and whether a flag is needed there.
    pub targets: Vec<(u64, bool)>,
    /// The segments whose accesses are recorded together.
    pub segments: Vec<Segment>,
    /// How the instructions pass values on, if there is an access trace.
    pub steps: Vec<Steps>,
    /// What each instruction needs and changes.
    effects: Vec<Effect>,
}

impl Analysis {
    /// Nothing is known.
    pub const fn new() -> Self {
        Self {
            plans: Vec::new(),
            uses: Vec::new(),
            live: Vec::new(),
            targets: Vec::new(),
            segments: Vec::new(),
            steps: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Forgets all; the memory is kept for the next block.
    fn clear(&mut self) {
        self.plans.clear();
        self.uses.clear();
        self.live.clear();
        self.targets.clear();
        self.segments.clear();
        self.steps.clear();
        self.effects.clear();
    }

    /// Of a block, for code of a version.
    pub fn examine(
        &mut self,
        block: &mut Block,
        version: Version,
        source: &Source,
        ahead: &mut Ahead,
    ) {
        self.clear();
        if !record::is_on() {
            return;
        }
        let mut factory = ahead
            .factory
            .take()
            .unwrap_or_else(|| Box::new(InstructionInfoFactory::new()));
        let along = block.is_path && record::is_steady();
        // An access trace has each access by itself.
        let together = !along && !record::is_traced();
        let grouped = matches!(version, Version::Usual | Version::Apart) && together;
        self.plan(block, grouped, &mut factory);
        if version == Version::Apart {
            self.end_with_segment(block);
        }
        let mut pages = std::mem::take(&mut block.pages);
        let targets = &mut self.targets;
        let after = |target| {
            let needed = ahead.needed_at(target, source, &mut factory, &mut pages);
            targets.push((target, needed.flags()));
            needed
        };
        liveness::needed(block, &self.effects, &mut self.live, after);
        if let (Some(&live), None) = (self.live.first(), &block.checks) {
            ahead.note(block.pc, live, &pages);
        }
        let alone = record::is_alone();
        if along && version == Version::Usual {
            let code = along::Code {
                instructions: &block.instructions,
                plans: &self.plans,
                uses: &self.uses,
                live: &self.live,
                targets: &self.targets,
                alone,
            };
            self.segments = along::find(&code, &mut factory);
        }
        if grouped {
            let live = &self.live;
            let suits = |segment: &Segment| {
                let count = segment.takes(alone);
                Borrowed::suits(live[segment.begin], segment.registers(), count)
            };
            self.segments.retain(suits);
        }
        block.pages = pages;
        ahead.factory = Some(factory);
    }

    /// Ends a block with the segment at its beginning, whose accesses are recorded by themselves.
    fn end_with_segment(&mut self, block: &mut Block) {
        let end = self.segments.first().map(|segment| segment.end);
        self.segments.clear();
        let next = end.and_then(|end| block.instructions.get(end));
        if let (Some(end), Some(next)) = (end, next) {
            block.end = End::Jump(next.instruction.ip());
            block.instructions.truncate(end);
            self.effects.truncate(end);
            self.plans.truncate(end);
            self.uses.truncate(end);
        }
    }

    /// Decides how each instruction is recorded, and finds their effects; also the segments, if accesses are `grouped`.
    fn plan(&mut self, block: &Block, grouped: bool, factory: &mut InstructionInfoFactory) {
        let count = block.instructions.len();
        let found = std::mem::take(&mut self.segments);
        let mut finder = Finder::new(record::is_alone(), found);
        let traced = record::is_traced();
        let (mut owner, mut next) = (Owner::Program, None);
        for (at, decoded) in block.instructions.iter().enumerate() {
            let instruction = &decoded.instruction;
            if next != Some(instruction.ip()) {
                owner = record::owner(instruction.ip());
            }
            next = Some(instruction.next_ip());
            let ends =
                decoded.next.is_some() || at + 1 == count && !matches!(block.end, End::Jump(_));
            let info = factory.info(instruction);
            let uses = Uses::of(info);
            self.uses.push(uses);
            self.effects.push(Effect::of(instruction, uses));
            let mut plan = match access::plan(instruction, info, owner, ends) {
                Plan::Masked { .. } if !has_masks() => Plan::Complex,
                plan => plan,
            };
            if traced {
                self.steps
                    .push(follow::follow(&mut plan, instruction, info));
            }
            if grouped {
                finder.step(instruction, info, uses, &plan, owner);
            }
            self.plans.push((plan, owner));
        }
        self.segments = finder.segments();
    }
}

/// Whether the processor has what counting the elements that a mask register selects takes: more than using one.
fn has_masks() -> bool {
    is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}
