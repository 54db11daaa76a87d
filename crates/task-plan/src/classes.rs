//! Equivalence classes of tasks: the paper's generalised task paths.
//!
//! A task's path is the sequence of creations from the root: each letter is (position among the creator's creations,
//! template, number of slots), in addition to the creator's class. The star: when a path ends in w.w for a word w of at
//! most [`LONGEST_PERIOD`] letters (shortest first), the second w is dropped, and the path stands for w repeated any
//! number of times. The paper leaves open when a star may be introduced. This rule needs no second pass, so a profiling
//! run can pool its experiments by class while it runs, and its classes form an automaton by construction: the class of
//! a child depends only on the class of its creator and the letter.
//!
//! The first iteration of a loop (and for period p the first p tasks after it) keeps classes of its own, because it
//! often differs. Cost: one hash look-up per task; memory grows with classes, not with tasks.

use std::collections::{BTreeSet, HashMap};

/// The longest repetition that is detected, in tasks.
pub const LONGEST_PERIOD: usize = 4;

/// Index of a class, in order of discovery; 0 is the class of the root task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClassId(pub u32);

impl ClassId {
    /// The class of the root task.
    pub const ROOT: Self = Self(0);

    /// The class as an array index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One creation: a letter of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Letter {
    /// The template of the creator.
    pub creator: String,
    /// Position among the creations of the creator, from 0.
    pub position: u32,
    /// The template of the new task.
    pub template: String,
    /// Slots of the new task.
    pub slots: u32,
}

/// The classes found so far.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    letters: Vec<Letter>,
    letter_numbers: HashMap<Letter, u32>,
    /// Normalised path of each class, in letters.
    paths: Vec<Vec<u32>>,
    by_path: HashMap<Vec<u32>, ClassId>,
    transitions: HashMap<(ClassId, u32), ClassId>,
    root: (String, u32),
    /// Templates of recursions whose repetitions are kept apart by depth.
    unfolded: BTreeSet<String>,
}

impl Classes {
    /// Creates the set with the class of the root task only.
    #[must_use]
    pub fn new(template: &str, slots: u32) -> Self {
        Self {
            paths: vec![Vec::new()],
            by_path: HashMap::from([(Vec::new(), ClassId::ROOT)]),
            root: (template.to_owned(), slots),
            ..Self::default()
        }
    }

    /// As [`Classes::new`], with classes by depth for recursions through these templates.
    #[must_use]
    pub fn by_depth(template: &str, slots: u32, recursions: &BTreeSet<String>) -> Self {
        Self {
            unfolded: recursions.clone(),
            ..Self::new(template, slots)
        }
    }

    /// The class of a task created by a task of class `creator`; added if it is new.
    pub fn child(
        &mut self,
        creator: ClassId,
        position: u32,
        template: &str,
        slots: u32,
    ) -> ClassId {
        let letter = Letter {
            creator: self.template(creator).to_owned(),
            position,
            template: template.to_owned(),
            slots,
        };
        let number = match self.letter_numbers.get(&letter) {
            Some(&number) => number,
            None => {
                let number = self.letters.len() as u32;
                self.letters.push(letter.clone());
                self.letter_numbers.insert(letter, number);
                number
            }
        };
        if let Some(&class) = self.transitions.get(&(creator, number)) {
            return class;
        }
        let mut path = self.paths[creator.index()].clone();
        path.push(number);
        self.fold(&mut path);
        let class = match self.by_path.get(&path) {
            Some(&class) => class,
            None => {
                let class = ClassId(self.paths.len() as u32);
                self.paths.push(path.clone());
                self.by_path.insert(path, class);
                class
            }
        };
        self.transitions.insert((creator, number), class);
        class
    }

    /// The same classes, numbered in the order of their paths instead of discovery, and the new number of each. Paths
    /// compare letter by letter, by position first: the third strand comes after the second, regardless of when it was
    /// created.
    #[must_use]
    pub fn ordered(self) -> (Self, Vec<ClassId>) {
        let key = |class: &usize| -> Vec<(u32, &str, u32)> {
            let letters = self.paths[*class].iter();
            letters
                .map(|&letter| {
                    let letter = &self.letters[letter as usize];
                    (letter.position, letter.template.as_str(), letter.slots)
                })
                .collect()
        };
        let mut order: Vec<usize> = (0..self.paths.len()).collect();
        order.sort_by_cached_key(key);
        let mut number = vec![ClassId::ROOT; order.len()];
        for (at, &class) in order.iter().enumerate() {
            number[class] = ClassId(at as u32);
        }
        let ordered = Self {
            paths: order
                .iter()
                .map(|&class| self.paths[class].clone())
                .collect(),
            by_path: self
                .by_path
                .iter()
                .map(|(path, class)| (path.clone(), number[class.index()]))
                .collect(),
            transitions: self
                .transitions
                .iter()
                .map(|(&(from, letter), to)| ((number[from.index()], letter), number[to.index()]))
                .collect(),
            ..self.clone()
        };
        (ordered, number)
    }

    /// Number of classes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Always false: the root has a class.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Template of the tasks of a class.
    #[must_use]
    pub fn template(&self, class: ClassId) -> &str {
        match self.paths[class.index()].last() {
            Some(&letter) => &self.letters[letter as usize].template,
            None => &self.root.0,
        }
    }

    /// Slots of the tasks of a class.
    #[must_use]
    pub fn slots(&self, class: ClassId) -> u32 {
        match self.paths[class.index()].last() {
            Some(&letter) => self.letters[letter as usize].slots,
            None => self.root.1,
        }
    }

    /// All transitions (creator's class, creation, class of the new task), in a fixed order.
    #[must_use]
    pub fn transitions(&self) -> Vec<(ClassId, &Letter, ClassId)> {
        let mut all: Vec<_> = self
            .transitions
            .iter()
            .map(|(&(from, letter), &to)| (from, &self.letters[letter as usize], to))
            .collect();
        all.sort_by(|a, b| (a.0, a.1.position, a.1, a.2).cmp(&(b.0, b.1.position, b.1, b.2)));
        all
    }

    /// The generalised path, as the paper writes it: `(main,0,loop):(loop,0,loop)*:(loop,1,work)`.
    #[must_use]
    pub fn path(&self, class: ClassId) -> String {
        let path = &self.paths[class.index()];
        // A stretch is starred if following it once more leads back to the same class.
        let mut starred = vec![None; path.len()];
        for end in 1..=path.len() {
            for period in 1..=LONGEST_PERIOD.min(end) {
                let repeats = {
                    let mut longer = path[..end].to_vec();
                    longer.extend_from_slice(&path[end - period..end]);
                    let mut at = self.by_path.get(&path[..end]).copied();
                    for &letter in &longer[end..] {
                        at = at.and_then(|at| self.transitions.get(&(at, letter)).copied());
                    }
                    at.is_some() && at == self.by_path.get(&path[..end]).copied()
                };
                // Only the first rotation of a repetition is starred.
                let seen = starred[end - period..end - 1].iter().any(Option::is_some);
                if repeats && !seen {
                    starred[end - 1] = Some(period);
                    break;
                }
            }
        }
        let mut out: Vec<String> = Vec::new();
        for (at, &letter) in path.iter().enumerate() {
            let letter = &self.letters[letter as usize];
            out.push(format!(
                "({},{},{})",
                letter.creator, letter.position, letter.template
            ));
            if let Some(period) = starred[at] {
                let from = out.len() - period.min(out.len());
                let group: Vec<String> = out.drain(from..).collect();
                // A group that already contains a star keeps it.
                out.push(if period == 1 {
                    format!("{}*", group[0])
                } else {
                    format!("[{}]*", group.join(":"))
                });
            }
        }
        if out.is_empty() {
            "()".to_owned()
        } else {
            out.join(":")
        }
    }

    /// Drops the second w of a path that ends in w.w, shortest w first, until no such w remains.
    fn fold(&self, path: &mut Vec<u32>) {
        while let Some(period) = (1..=LONGEST_PERIOD).find(|&period| {
            let n = path.len();
            n >= 2 * period
                && path[n - period..] == path[n - 2 * period..n - period]
                && !path[n - period..].iter().any(|&letter| {
                    self.unfolded
                        .contains(&self.letters[letter as usize].template)
                })
        }) {
            path.truncate(path.len() - period);
        }
    }

    /// Whether each class is on a cycle of the automaton, so that its tasks repeat.
    #[must_use]
    pub fn repeating(&self) -> Vec<bool> {
        let (component, sizes) = self.components();
        let mut repeating: Vec<bool> = component.iter().map(|&at| sizes[at] > 1).collect();
        for (&(from, _), &to) in &self.transitions {
            if from == to {
                repeating[from.index()] = true;
            }
        }
        repeating
    }

    /// Whether a task of the class can create one of the same class.
    #[must_use]
    pub fn leads_to_itself(&self, class: ClassId) -> bool {
        self.transitions
            .iter()
            .any(|(&(from, _), &to)| from == class && to == class)
    }

    /// Number of the strongly connected component of each class, and the sizes of the components.
    #[must_use]
    pub fn components(&self) -> (Vec<usize>, Vec<usize>) {
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); self.len()];
        for (from, _, to) in self.transitions() {
            next[from.index()].push(to.index());
        }
        strongly_connected(&next)
    }
}

/// Tarjan's algorithm, iterative.
fn strongly_connected(next: &[Vec<usize>]) -> (Vec<usize>, Vec<usize>) {
    const NONE: usize = usize::MAX;
    let n = next.len();
    let (mut order, mut low) = (vec![NONE; n], vec![0; n]);
    let (mut component, mut sizes) = (vec![NONE; n], Vec::new());
    let (mut stack, mut count) = (Vec::new(), 0);
    for start in 0..n {
        if order[start] != NONE {
            continue;
        }
        let mut calls = vec![(start, 0)];
        while let Some(&mut (at, ref mut edge)) = calls.last_mut() {
            if *edge == 0 {
                order[at] = count;
                low[at] = count;
                count += 1;
                stack.push(at);
            }
            if let Some(&to) = next[at].get(*edge) {
                *edge += 1;
                if order[to] == NONE {
                    calls.push((to, 0));
                } else if component[to] == NONE {
                    low[at] = low[at].min(order[to]);
                }
                continue;
            }
            if low[at] == order[at] {
                let mut size = 0;
                while let Some(member) = stack.pop() {
                    component[member] = sizes.len();
                    size += 1;
                    if member == at {
                        break;
                    }
                }
                sizes.push(size);
            }
            calls.pop();
            if let Some(&(parent, _)) = calls.last() {
                low[parent] = low[parent].min(low[at]);
            }
        }
    }
    (component, sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's example (section II): mainEdt, creatorEdt repeatedly, and a worker in each iteration.
    #[test]
    fn the_papers_example() {
        let mut classes = Classes::new("mainEdt", 1);
        let mut creator = classes.child(ClassId::ROOT, 0, "creatorEdt", 1);
        let mut workers = Vec::new();
        for _ in 0..10 {
            let next = classes.child(creator, 0, "creatorEdt", 1);
            workers.push(classes.child(creator, 1, "workerEdt", 2));
            creator = next;
        }
        // The first iteration has a class of its own; all others share one.
        assert_ne!(workers[0], workers[1]);
        assert!(workers[1..].iter().all(|&class| class == workers[1]));
        assert_eq!(
            classes.path(workers[5]),
            "(mainEdt,0,creatorEdt):(creatorEdt,0,creatorEdt)*:(creatorEdt,1,workerEdt)"
        );
        // main; creator in the first iteration, creator later; worker in the first iteration, worker later.
        assert_eq!(classes.len(), 5);
    }

    #[test]
    fn a_strand_of_two_kinds_of_tasks_repeats_with_period_two() {
        let classes_after = |turns: usize| {
            let mut classes = Classes::new("main", 0);
            let mut at = classes.child(ClassId::ROOT, 3, "start", 0);
            for _ in 0..turns {
                at = classes.child(at, 0, "exchange", 1);
                at = classes.child(at, 0, "update", 5);
            }
            (classes.path(at), classes.len())
        };
        assert_eq!(classes_after(3), classes_after(4));
        assert_eq!(classes_after(4), classes_after(1000));
        assert_eq!(
            classes_after(4).0,
            "(main,3,start):(start,0,exchange):[(exchange,0,update):(update,0,exchange)]*:(exchange,0,update)"
        );
    }

    #[test]
    fn repeating_classes_are_those_on_cycles() {
        let mut classes = Classes::new("main", 0);
        let first = classes.child(ClassId::ROOT, 0, "loop", 0);
        let later = classes.child(first, 0, "loop", 0);
        assert_eq!(classes.child(later, 0, "loop", 0), later);
        let work = classes.child(later, 1, "work", 0);
        let repeating = classes.repeating();
        assert!(repeating[later.index()]);
        assert!(
            ![ClassId::ROOT, first, work]
                .iter()
                .any(|c| repeating[c.index()])
        );
    }
}
