//! Hand-made profiles.
#![allow(dead_code)] // Every test program uses a part.

use numaloc_task_plan::{Access, Block, Replay, Task, TaskProfile};

pub fn task(creator: Option<u32>, position: u32, template: &str, slots: u32) -> Task {
    Task {
        creator,
        position,
        template: template.to_owned(),
        slots,
        seconds: 1e-3,
        ..Task::default()
    }
}

/// `parts` strands: each makes a block, then `turns` tasks in a row use it and the next strand's.
pub fn strands(parts: u32, turns: u32) -> TaskProfile {
    let mut profile = TaskProfile {
        machine: "by hand".to_owned(),
        nodes: 4,
        method: "evict".to_owned(),
        tasks: vec![task(None, 0, "main", 0)],
        ..TaskProfile::default()
    };
    let mut last: Vec<u32> = Vec::new();
    for part in 0..parts {
        last.push(profile.tasks.len() as u32);
        profile.tasks.push(task(Some(0), part, "start", 0));
        profile.blocks.push(Block {
            creator: Some(part + 1),
            position: 0,
            bytes: 1000,
            hint: None,
        });
    }
    for _ in 0..turns {
        for part in 0..parts {
            let at = profile.tasks.len() as u32;
            profile
                .tasks
                .push(task(Some(last[part as usize]), 0, "work", 2));
            last[part as usize] = at;
            for (slot, block) in [(0, part), (1, (part + 1) % parts)] {
                profile.accesses.push(Access {
                    task: at,
                    slot,
                    block,
                    mode: "RO".to_owned(),
                });
            }
            // Slot 0 costs 100 us when far, slot 1 nothing; plus a small share per strand, and noise of 1 us.
            for (run, far) in [vec![], vec![0], vec![1], vec![0, 1]]
                .into_iter()
                .enumerate()
            {
                let lost = if far.contains(&0) { 100e-6 } else { 0.0 };
                let noise = if (run + at as usize).is_multiple_of(2) {
                    1e-6
                } else {
                    0.0
                };
                profile.replays.push(Replay {
                    task: at,
                    seconds: 1e-3 + f64::from(part) * 1e-4 + lost + noise,
                    far,
                });
            }
        }
    }
    profile
}
