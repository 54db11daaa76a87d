//! Plans by role: seats members, and gives their memory and that of segments its policy.

use std::collections::HashMap;

use numaloc_identity::NewObject;
use numaloc_model::roles::{RoleMemory, RolesPlan};

use super::{Actuator, Controller};
use crate::roster::{Called, Pages, Place, Roster};

impl Controller {
    /// The same with the roles of the plan; `memory`: whether memory gets a policy.
    #[must_use]
    pub fn with_roles(mut self, plan: &RolesPlan, memory: bool) -> Self {
        if !plan.is_empty() {
            let mut plan = plan.clone();
            if !memory {
                plan.segments.clear();
                plan.roles
                    .iter_mut()
                    .for_each(|role| role.memory = RoleMemory::Left);
            }
            self.roster = Some(Roster::new(&plan));
        }
        self
    }

    /// Who has which role, in plans by role.
    pub fn roster(&self) -> Option<&Roster> {
        self.roster.as_ref()
    }

    /// What is known of a thread that is about to be reported as started or created.
    pub fn describe(&mut self, tid: i32, called: Called, routine: Option<String>) {
        if self.roster.is_some() {
            self.described.insert(tid, (called, routine));
        }
    }

    /// A thread or process is now called that.
    pub fn called(&mut self, tid: i32, called: Called, act: &mut dyn Actuator) {
        let Some(roster) = &mut self.roster else {
            return;
        };
        for (moved, place) in roster.called(tid, called) {
            // System calls can be made on behalf of the stopped thread alone.
            self.seat(moved, &place, moved == tid, act);
        }
    }

    /// Seats a new thread by its role. Returns whether the plan is one by role.
    pub(super) fn seat_new(
        &mut self,
        tid: i32,
        tgid: i32,
        creator: Option<i32>,
        act: &mut dyn Actuator,
    ) -> bool {
        let (called, routine) = self.described.remove(&tid).unwrap_or_default();
        let Some(roster) = &mut self.roster else {
            return false;
        };
        let place = roster.born(tid, tgid, creator, called, routine);
        self.policies.born(tid, creator);
        self.seat(tid, &place, true, act);
        true
    }

    fn seat(&mut self, tid: i32, place: &Place, is_stopped: bool, act: &mut dyn Actuator) {
        let Some(roster) = &mut self.roster else {
            return;
        };
        let own = self
            .threads
            .get(&tid)
            .is_some_and(|thread| thread.own_affinity);
        if !own || self.options.enforce {
            // What the program may not use has been given to somebody else.
            let allowed = place.pus.iter().all(|pu| self.allowed.contains(pu));
            let answer = match allowed {
                _ if place.pus.is_empty() => act.pin(tid, &self.allowed),
                true => act.pin(tid, &place.pus),
                false => Err(std::io::Error::from_raw_os_error(libc::EINVAL)),
            };
            if let Err(error) = answer {
                roster.refused(tid, error.raw_os_error().unwrap_or(0));
                let _ = act.pin(tid, &self.allowed);
            }
        }
        self.policies.want(tid, place.memory);
        if is_stopped {
            self.settle_policy(tid, act);
        }
    }

    /// Sets the memory policy that a stopped thread should have, if it has another.
    pub fn settle_policy(&mut self, tid: i32, act: &mut dyn Actuator) {
        let Some(roster) = &self.roster else {
            return;
        };
        let errno = match self.policies.pending(tid) {
            None => return,
            Some(RoleMemory::Interleave) => act.own_policy(&roster.all_nodes()),
            Some(RoleMemory::Left | RoleMemory::Local) => act.own_policy(&[]),
        };
        if errno == 0 {
            self.policies.settled(tid);
        }
    }

    /// Memory appeared that thread `tid` mapped: a segment gets its policy before its first page.
    pub(super) fn appeared_by_role(
        &mut self,
        tid: i32,
        new: &NewObject<'_>,
        act: &mut dyn Actuator,
    ) {
        let Some(roster) = &mut self.roster else {
            return;
        };
        let Some((at, pages)) = roster.segment(tid, new.kind, &new.name, new.size) else {
            return;
        };
        let page = numaloc_identity::object::PAGE_BYTES;
        let start = new.base - new.base % page;
        let end = new.base.saturating_add(new.size).next_multiple_of(page);
        let errno = match pages {
            Pages::Interleave(nodes) => act.interleave((start, end), &nodes),
            Pages::Prefer(node) => act
                .bind(&[(start, end, node)])
                .first()
                .copied()
                .unwrap_or(0),
        };
        roster.mapped(at, new.size, errno);
    }
}

/// The memory policies of threads: those that they have, and those that they should have.
#[derive(Default)]
pub(super) struct Policies {
    of_thread: HashMap<i32, (RoleMemory, RoleMemory)>,
    late: u64,
}

impl Policies {
    /// A new thread has its creator's policy.
    fn born(&mut self, tid: i32, creator: Option<i32>) {
        let creators = creator.and_then(|tid| self.of_thread.get(&tid));
        let (has, _) = creators.copied().unwrap_or_default();
        self.of_thread.insert(tid, (has, has));
    }

    fn want(&mut self, tid: i32, memory: RoleMemory) {
        if let Some((_, wanted)) = self.of_thread.get_mut(&tid)
            && memory != RoleMemory::Left
        {
            *wanted = memory;
        }
    }

    fn pending(&self, tid: i32) -> Option<RoleMemory> {
        let (has, wanted) = self.of_thread.get(&tid)?;
        (has != wanted).then_some(*wanted)
    }

    fn settled(&mut self, tid: i32) {
        if let Some((has, wanted)) = self.of_thread.get_mut(&tid) {
            *has = *wanted;
        }
    }

    /// A thread ended.
    pub fn ended(&mut self, tid: i32) {
        self.late += u64::from(self.pending(tid).is_some());
        self.of_thread.remove(&tid);
    }

    /// Number of threads that ended without the policy that they should have had.
    pub fn late(&self) -> u64 {
        self.late
    }
}
