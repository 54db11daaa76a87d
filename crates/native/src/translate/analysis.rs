//! What translation needs to know of a block's instructions: how their accesses are recorded, which registers they use,
//! and what the program needs before each.

use iced_x86::InstructionInfoFactory;
use numaloc_follow::owners::Owner;

use super::ahead::Ahead;
use super::borrowed::Uses;
use super::decode::{Block, End, Source};
use super::liveness::{self, Effect, Live};
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
}

impl Analysis {
    /// Of a block.
    pub fn of(block: &mut Block, source: &Source, ahead: &mut Ahead) -> Self {
        let mut analysis = Self::default();
        if !record::is_on() {
            return analysis;
        }
        let mut factory = InstructionInfoFactory::new();
        let effects = analysis.plan(block, &mut factory);
        let mut pages = std::mem::take(&mut block.pages);
        let targets = &mut analysis.targets;
        analysis.live = liveness::needed(block, &effects, |target| {
            let needed = ahead.needed_at(target, source, &mut factory, &mut pages);
            targets.push((target, needed.flags()));
            needed
        });
        block.pages = pages;
        analysis
    }

    /// Decides how each instruction is recorded; returns their effects.
    fn plan(&mut self, block: &Block, factory: &mut InstructionInfoFactory) -> Vec<Effect> {
        let count = block.instructions.len();
        let mut effects = Vec::with_capacity(count);
        self.plans.reserve(count);
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
            self.plans.push((plan, owner));
        }
        effects
    }
}
