//! The parts that the plan has: what the tasks of one class create, by template and rank.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU8;

use numaloc_task_plan::TaskPlan;

/// Template (its number) and slots: what tasks of a family share.
pub type Kind = (u32, u32);

/// What is known of the number of parts of a class.
pub mod known {
    pub const NOTHING: u8 = 0;
    /// As many as in the plan, or as the data wants it: tasks are looked up by position.
    pub const BY_POSITION: u8 = 1;
    /// Another number.
    pub const SCALED: u8 = 2;
}

/// The families of a class.
pub struct Parts {
    pub known: AtomicU8,
    /// By template.
    pub families: BTreeMap<u32, Family>,
    /// Template of the largest family.
    pub widest: Option<u32>,
    /// Whether the largest family is on several nodes.
    pub spread: bool,
    /// Whether one task only is of this class, so that the plan has exactly what it created, and not what several did.
    pub single: bool,
    /// Blocks that a task of the class creates, if the plan spreads them over nodes; else 0.
    pub blocks: u32,
}

/// The tasks that a task of one class creates from one template.
#[derive(Default)]
pub struct Family {
    /// By rank.
    pub members: Vec<Member>,
    /// Its nodes, if ranks of one node do not follow each other: nodes then say where the data of these very parts is.
    /// Parts of another number go to their own data, or in blocks to these nodes. Else empty.
    nodes: Vec<u16>,
}

/// A part in the plan.
#[derive(Clone, Copy)]
pub struct Member {
    slots: u32,
    class: u32,
    node: Option<u16>,
}

/// What the plan has for a part, if there are others than in the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its class.
    pub class: u32,
    /// Whether the plan's nodes follow the ranks, and so say where the blocks that it creates belong.
    pub in_order: bool,
}

impl Family {
    /// Part `rank` of `count`; `None`: the family has none.
    fn part(&self, slots: u32, rank: u32, count: u32) -> Option<Part> {
        let scaled = |most: usize| {
            let at = u64::from(rank) * most as u64 / u64::from(count.max(1));
            at as usize
        };
        let at = scaled(self.members.len());
        let node = match self.nodes.get(scaled(self.nodes.len())) {
            Some(&node) => Some(node),
            None => self.members.get(at)?.node,
        };
        let members = self.members.iter().enumerate();
        members
            .filter(|(_, member)| member.node == node)
            .min_by_key(|&(rank, member)| (member.slots != slots, rank.abs_diff(at)))
            .map(|(_, member)| Part {
                class: member.class,
                in_order: self.nodes.is_empty(),
            })
    }

    /// Sets `nodes`.
    fn find_nodes(&mut self) {
        let mut by_rank: Vec<u16> = self
            .members
            .iter()
            .filter_map(|member| member.node)
            .collect();
        by_rank.dedup();
        let mut nodes = by_rank.clone();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.len() < by_rank.len() {
            self.nodes = nodes;
        }
    }
}

impl Parts {
    /// The families of a class of the plan; `None`: its tasks have no parts.
    pub fn of(
        plan: &TaskPlan,
        class: usize,
        single: bool,
        number: &impl Fn(&str) -> u32,
    ) -> Option<Self> {
        let class = &plan.classes[class];
        let mut children: Vec<_> = class.children.iter().collect();
        children.sort_by_key(|child| child.position);
        let mut families: BTreeMap<u32, Family> = BTreeMap::new();
        for child in children {
            let template = number(&child.template);
            families.entry(template).or_default().members.push(Member {
                slots: child.slots,
                class: child.class,
                node: plan.classes[child.class as usize].node,
            });
        }
        let blocks = if several(class.blocks.iter().map(|block| block.node)) {
            class.blocks.len() as u32
        } else {
            0
        };
        for family in families.values_mut() {
            family.find_nodes();
        }
        // Of equal ones the first, so that the choice is always the same.
        let widest = families
            .iter()
            .rev()
            .max_by_key(|(_, family)| family.members.len());
        let spread = widest
            .is_some_and(|(_, family)| several(family.members.iter().map(|member| member.node)));
        let widest = widest.map(|(&template, _)| template);
        let any = blocks > 0 || families.values().any(|family| family.members.len() > 1);
        any.then(|| Self {
            known: AtomicU8::new(known::NOTHING),
            widest,
            spread,
            single,
            families,
            blocks,
        })
    }

    /// Part `rank` of `count`; `None`: the plan has no such part.
    pub fn part(&self, (template, slots): Kind, rank: u32, count: u32) -> Option<Part> {
        self.families.get(&template)?.part(slots, rank, count)
    }

    /// Whether a part of a template has this many slots.
    pub fn has(&self, template: u32, slots: u32) -> bool {
        let family = self.families.get(&template);
        family.is_some_and(|family| family.members.iter().any(|member| member.slots == slots))
    }

    /// Whether a task of the class may create this many blocks.
    pub fn blocks_fit(&self, blocks: u32) -> bool {
        self.blocks == 0 || self.blocks == blocks
    }
}

/// Whether one task only is of a class, by class: what one task created once, and the tasks that it created once.
pub fn single(plan: &TaskPlan) -> Vec<bool> {
    let mut ways = vec![0_u32; plan.classes.len()];
    for child in plan.classes.iter().flat_map(|class| &class.children) {
        ways[child.class as usize] += 1;
    }
    let mut single = vec![false; plan.classes.len()];
    let mut next: Vec<usize> = (0..plan.classes.len().min(1))
        .filter(|&root| ways[root] == 0)
        .collect();
    while let Some(class) = next.pop() {
        single[class] = true;
        let children = plan.classes[class].children.iter();
        next.extend(
            children
                .map(|child| child.class as usize)
                .filter(|&to| ways[to] == 1),
        );
    }
    single
}

/// Whether there are several nodes among these.
fn several(nodes: impl Iterator<Item = Option<u16>>) -> bool {
    let mut nodes = nodes.flatten();
    nodes
        .next()
        .is_some_and(|first| nodes.any(|other| other != first))
}
