//! What translation needs to know of a block's instructions: how their accesses are recorded, which registers they use,
//! and what the program needs before each.

use iced_x86::InstructionInfoFactory;
use numaloc_follow::owners::Owner;

use super::ahead::Ahead;
use super::borrowed::Borrowed;
use super::decode::{Block, End, Source};
use super::groups::{Finder, Segment};
use super::liveness::{self, Effect, Live, Uses};
use crate::fragment::Version;
use crate::record;
use crate::record::access::{self, Plan};

/// What is known of a block; empty if nothing is recorded.
#[derive(Default)]
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
}

impl Analysis {
    /// Of a block, for code of a version.
    pub fn of(block: &mut Block, version: Version, source: &Source, ahead: &mut Ahead) -> Self {
        let mut analysis = Self::default();
        if !record::is_on() {
            return analysis;
        }
        let mut factory = ahead
            .factory
            .take()
            .unwrap_or_else(|| Box::new(InstructionInfoFactory::new()));
        let effects = analysis.plan(block, version, &mut factory);
        let mut pages = std::mem::take(&mut block.pages);
        let targets = &mut analysis.targets;
        analysis.live = liveness::needed(block, &effects, |target| {
            let needed = ahead.needed_at(target, source, &mut factory, &mut pages);
            targets.push((target, needed.flags()));
            needed
        });
        if let Some(&live) = analysis.live.first() {
            ahead.note(block.pc, live, &pages);
        }
        let live = &analysis.live;
        let alone = record::is_alone();
        let suits = |segment: &Segment| {
            let count = segment.takes(alone);
            Borrowed::suits(live[segment.begin], segment.registers(), count)
        };
        analysis.segments.retain(suits);
        block.pages = pages;
        ahead.factory = Some(factory);
        analysis
    }

    /// Decides how each instruction is recorded; returns their effects.
    fn plan(
        &mut self,
        block: &Block,
        version: Version,
        factory: &mut InstructionInfoFactory,
    ) -> Vec<Effect> {
        let count = block.instructions.len();
        let mut effects = Vec::with_capacity(count);
        self.plans.reserve(count);
        self.uses.reserve(count);
        let mut finder = (version == Version::Usual).then(|| Finder::new(record::is_alone()));
        let (mut owner, mut next) = (Owner::Program, None);
        for (at, decoded) in block.instructions.iter().enumerate() {
            let instruction = &decoded.instruction;
            if next != Some(instruction.ip()) {
                owner = record::owner(instruction.ip());
            }
            next = Some(instruction.next_ip());
            let ends = at + 1 == count && !matches!(block.end, End::Jump(_));
            let info = factory.info(instruction);
            self.uses.push(Uses::of(info));
            effects.push(Effect::of(instruction, info));
            let plan = match access::plan(instruction, info, owner, ends) {
                // Storing a mask register of 64 bits takes more than using one does.
                Plan::Masked { .. } if !is_x86_feature_detected!("avx512bw") => Plan::Complex,
                plan => plan,
            };
            if let Some(finder) = &mut finder {
                finder.step(instruction, info, &plan, owner);
            }
            self.plans.push((plan, owner));
        }
        self.segments = finder.map(Finder::segments).unwrap_or_default();
        effects
    }
}
