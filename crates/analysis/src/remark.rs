//! Remarks about memory that no page policy makes up for by itself: a node that fills up, a controller that is
//! saturated, data of which every node could have a copy. The caller finds and rates them; here they are put in words.

use numaloc_model::{LogicalNode, ObjectIdx, number};

use crate::seconds::time;

/// What is wrong with memory, and what could be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Concern {
    /// First touch puts more on a node than it holds.
    FillsUp {
        /// The node.
        node: LogicalNode,
        /// Bytes of the pages.
        bytes: u64,
        /// Bytes that fit.
        room: u64,
    },
    /// The controller of a node determines the time.
    Saturated {
        /// The node.
        node: LogicalNode,
        /// Weight of each node.
        weights: Vec<u64>,
    },
    /// Every node reads an object that none writes after it was initialised.
    Copies {
        /// Bytes of the copies in addition to the first.
        bytes: u64,
    },
}

impl Concern {
    /// Stable name in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::FillsUp { .. } => "fills_up",
            Self::Saturated { .. } => "saturated",
            Self::Copies { .. } => "copies",
        }
    }
}

/// The object that would be spread or copied.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// Its number in the profile.
    pub object: ObjectIdx,
    /// Its name for people.
    pub label: String,
}

/// What that saves, by a model of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// Seconds of the program as it is.
    pub as_it_is: f64,
    /// Seconds with the change.
    pub with: f64,
    /// Share by which the ratio of the two may be off.
    pub error: f64,
}

/// A remark, and what the change saves.
#[derive(Clone, Debug, PartialEq)]
pub struct Remark {
    /// What it is about.
    pub concern: Concern,
    /// The object to spread or to copy; `None` if it is about a node.
    pub subject: Option<About>,
    /// What that saves; `None` if the model does not say.
    pub gain: Option<Gain>,
}

impl Remark {
    /// A sentence.
    #[must_use]
    pub fn text(&self) -> String {
        let object = self.subject.as_ref().map_or("", |subject| &subject.label);
        let saves = self.gain.map_or_else(String::new, |gain| {
            format!(
                "saves {} of {} (+- {} %)",
                time(gain.as_it_is - gain.with),
                time(gain.as_it_is),
                number::fixed(100.0 * gain.error, 0)
            )
        });
        match &self.concern {
            Concern::FillsUp { node, bytes, room } => format!(
                "node {} fills up: first touch puts {} there, room for {}; the rest goes to other nodes",
                node.0,
                size(*bytes),
                size(*room)
            ),
            Concern::Saturated { node, weights } => {
                let weights: Vec<String> = weights.iter().map(u64::to_string).collect();
                format!(
                    "controller of node {} saturated: spread {object} with weights {}: {saves}",
                    node.0,
                    weights.join(":")
                )
            }
            Concern::Copies { bytes } => format!(
                "{object} is read by all nodes and written by none after load: a copy per node {saves} and costs {}",
                size(*bytes)
            ),
        }
    }
}

/// Bytes for people: `1.5 GiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        b if b >= 1 << 30 => (30, "GiB"),
        b if b >= 1 << 20 => (20, "MiB"),
        _ => (10, "KiB"),
    };
    format!(
        "{} {name}",
        number::fixed(bytes as f64 / f64::from(1 << unit), 1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(concern: Concern) -> String {
        let about_a_node = matches!(concern, Concern::FillsUp { .. });
        Remark {
            concern,
            subject: (!about_a_node).then(|| About {
                object: ObjectIdx(3),
                label: "table".to_owned(),
            }),
            gain: (!about_a_node).then_some(Gain {
                as_it_is: 2.5,
                with: 1.0,
                error: 0.15,
            }),
        }
        .text()
    }

    #[test]
    fn remarks_name_what_is_wrong_what_to_do_and_what_that_gives_and_costs() {
        let node = LogicalNode(0);
        assert_eq!(
            text(Concern::FillsUp {
                node,
                bytes: 3 << 30,
                room: 2048 << 20
            }),
            "node 0 fills up: first touch puts 3.0 GiB there, room for 2.0 GiB; the rest goes to other nodes"
        );
        assert_eq!(
            text(Concern::Saturated {
                node,
                weights: vec![3, 1]
            }),
            "controller of node 0 saturated: spread table with weights 3:1: saves 1.50 s of 2.50 s (+- 15 %)"
        );
        assert_eq!(
            text(Concern::Copies { bytes: 3 << 29 }),
            "table is read by all nodes and written by none after load: a copy per node saves 1.50 s of 2.50 s \
             (+- 15 %) and costs 1.5 GiB"
        );
    }
}
