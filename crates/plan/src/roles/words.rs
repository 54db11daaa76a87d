//! What a user asks for, in words: `ROLE=WHERE` and `SEGMENT=PAGES`.

use numaloc_model::LogicalNode;
use numaloc_model::roles::{RoleMemory, Seats, SegmentPages};
use numaloc_model::segments::Pattern;
use numaloc_topology::Topology;

use super::found::Found;

/// Where something goes, before the machine's nodes are known.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Nodes {
    All,
    These(Vec<LogicalNode>),
}

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    roles: Vec<(String, AskedSeats, RoleMemory)>,
    segments: Vec<(String, AskedPages)>,
    words: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AskedSeats {
    Left,
    Any(Nodes),
    Each(Nodes),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AskedPages {
    Left,
    Interleave(Nodes),
    Prefer(LogicalNode),
}

/// What a role may have, for messages.
pub const WHERE: &str =
    "ROLE=left, ROLE=each, ROLE=each:0-1 or ROLE=0-1, and +local or +interleave for its memory";
/// What a segment may have, for messages.
pub const PAGES: &str = "SEGMENT=left, SEGMENT=interleave, SEGMENT=interleave:0-1 or SEGMENT=1";

impl Asked {
    /// Adds what `text` asks for a role.
    ///
    /// # Errors
    /// None of [`WHERE`].
    pub fn role(&mut self, text: &str) -> Result<(), &'static str> {
        let (name, place) = text.rsplit_once('=').ok_or(WHERE)?;
        let (seats, memory) = match place.split_once('+') {
            Some((seats, "local")) => (seats, Some(RoleMemory::Local)),
            Some((seats, "interleave")) => (seats, Some(RoleMemory::Interleave)),
            Some(_) => return Err(WHERE),
            None => (place, None),
        };
        let seats = match seats {
            "left" => AskedSeats::Left,
            "each" => AskedSeats::Each(Nodes::All),
            other => match other.strip_prefix("each:") {
                Some(nodes) => AskedSeats::Each(list(nodes).ok_or(WHERE)?),
                None => AskedSeats::Any(list(other).ok_or(WHERE)?),
            },
        };
        let memory = memory.unwrap_or(match seats {
            AskedSeats::Left => RoleMemory::Left,
            _ => RoleMemory::Local,
        });
        self.roles.push((name.to_owned(), seats, memory));
        self.words.push(("role", text.to_owned()));
        Ok(())
    }

    /// Adds what `text` asks for a segment.
    ///
    /// # Errors
    /// None of [`PAGES`].
    pub fn segment(&mut self, text: &str) -> Result<(), &'static str> {
        let (name, place) = text.rsplit_once('=').ok_or(PAGES)?;
        let pages = match place {
            "left" => AskedPages::Left,
            "interleave" => AskedPages::Interleave(Nodes::All),
            other => match other.strip_prefix("interleave:") {
                Some(nodes) => AskedPages::Interleave(list(nodes).ok_or(PAGES)?),
                None => match list(other) {
                    Some(Nodes::These(nodes)) if nodes.len() == 1 => AskedPages::Prefer(nodes[0]),
                    _ => return Err(PAGES),
                },
            },
        };
        self.segments.push((name.to_owned(), pages));
        self.words.push(("segment", text.to_owned()));
        Ok(())
    }

    /// Parameters of the plan.
    pub(super) fn parameters(&self, seed: u64) -> Vec<(String, String)> {
        let seed = ("seed".to_owned(), seed.to_string());
        let words = self.words.iter();
        let words = words.map(|(name, text)| ((*name).to_owned(), text.clone()));
        std::iter::once(seed).chain(words).collect()
    }
}

/// Nodes as the kernel lists them: `0-2,5`. Ascending, each once.
fn list(text: &str) -> Option<Nodes> {
    let mut nodes = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > 4096 {
            return None;
        }
        nodes.extend((first..=last).map(LogicalNode));
    }
    nodes.sort_unstable();
    nodes.dedup();
    Some(Nodes::These(nodes))
}

/// What was asked for is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// No role or segment has that name.
    #[error("the profile has no {what} {name:?}")]
    Name {
        /// Role or segment.
        what: &'static str,
        /// As asked for.
        name: String,
        /// All names.
        known: Vec<String>,
    },
    /// The machine has no such node, or none with PUs.
    #[error("the machine has no node {node} with PUs")]
    Node {
        /// Logical index.
        node: u32,
    },
    /// Another run would not recognise the memory.
    #[error(
        "segment {name:?} cannot be placed: other memory of its kind, name, role and size would be taken for it"
    )]
    NotRecognised {
        /// As asked for.
        name: String,
    },
}

/// What was asked for, by role and by segment.
#[derive(Default)]
pub(super) struct Fixed {
    pub roles: Vec<(usize, (Seats, RoleMemory))>,
    pub segments: Vec<(usize, Option<SegmentPages>)>,
}

/// Finds the roles and segments that were asked for.
pub(super) fn fixed(asked: &Asked, found: &Found, machine: &Topology) -> Result<Fixed, NotFound> {
    let with_pus = machine.nodes_with_pus();
    let nodes = |asked: &Nodes| match asked {
        Nodes::All => Ok(with_pus.clone()),
        Nodes::These(nodes) => match nodes.iter().find(|node| !with_pus.contains(node)) {
            Some(node) => Err(NotFound::Node { node: node.0 }),
            None => Ok(nodes.clone()),
        },
    };
    let mut fixed = Fixed::default();
    let roles: Vec<&str> = found.roles.iter().map(|role| &*role.name).collect();
    for (name, seats, memory) in &asked.roles {
        let seats = match seats {
            AskedSeats::Left => Seats::Left,
            AskedSeats::Any(asked) => Seats::Any(nodes(asked)?),
            AskedSeats::Each(asked) => Seats::Each(nodes(asked)?),
        };
        for at in of_name("role", name, &roles)? {
            fixed.roles.push((at, (seats.clone(), *memory)));
        }
    }
    let segments: Vec<&str> = found.segments.iter().map(|found| &*found.name).collect();
    for (name, pages) in &asked.segments {
        let pages = match pages {
            AskedPages::Left => None,
            AskedPages::Interleave(asked) => Some(SegmentPages::Interleave(nodes(asked)?)),
            AskedPages::Prefer(node) => {
                let one = nodes(&Nodes::These(vec![*node]))?;
                Some(SegmentPages::Prefer(one[0]))
            }
        };
        let named = of_name("segment", name, &segments)?;
        let is_recognised = |&at: &usize| pages.is_none() || found.segments[at].bytes.is_some();
        let recognised: Vec<usize> = named.iter().copied().filter(is_recognised).collect();
        // A pattern is for what can be placed; the output says of the rest why it is left.
        if recognised.is_empty() {
            let name = segments[named[0]].to_owned();
            return Err(NotFound::NotRecognised { name });
        }
        let pages = |at| (at, pages.clone());
        fixed.segments.extend(recognised.into_iter().map(pages));
    }
    Ok(fixed)
}

/// Positions of the names that `pattern` is one of, else of those that it holds for: names have brackets, as in
/// `[anon]`, which in a pattern are a choice of characters.
fn of_name(what: &'static str, pattern: &str, names: &[&str]) -> Result<Vec<usize>, NotFound> {
    let asked = Pattern::new(pattern);
    let all = 0..names.len();
    let mut found: Vec<usize> = all.clone().filter(|&at| names[at] == pattern).collect();
    if found.is_empty() {
        found = all.filter(|&at| asked.holds(names[at])).collect();
    }
    match found.is_empty() {
        true => Err(NotFound::Name {
            what,
            name: pattern.to_owned(),
            known: names.iter().map(|&name| name.to_owned()).collect(),
        }),
        false => Ok(found),
    }
}
