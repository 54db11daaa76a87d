//! Sections: the groups of consecutive pieces of a program.

use super::group::Group;
use super::{GROUPS, Kind, Piece, SPAN, Strides};

/// A piece within its section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// Index of its group in the section.
    pub group: u8,
    /// Offset in bytes from the group's first byte.
    pub delta: u8,
    pub size: u8,
    pub kind: Kind,
    /// Its place in the code; 0 if unknown.
    pub place: u64,
}

/// Consecutive pieces of a program in at most [`GROUPS`] groups.
#[derive(Debug)]
pub(crate) struct Section {
    pub groups: Box<[Group]>,
    /// In the program's order.
    pub members: Box<[Member]>,
    pub accesses: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
}

impl Section {
    /// A section of as many `pieces` as fit, and their number.
    pub(super) fn new(pieces: &[Piece], strides: Option<&Strides>) -> (Self, usize) {
        let mut count = pieces.len();
        let mut clusters = clusters(pieces);
        while clusters.len() > GROUPS {
            count -= 1;
            clusters = self::clusters(&pieces[..count]);
        }
        let mut members = vec![None; count];
        let mut groups = Vec::new();
        for (number, cluster) in clusters.iter().enumerate() {
            let sorted: Vec<Piece> = cluster.iter().map(|&index| pieces[index]).collect();
            let mut group = Group::new(&sorted, strides);
            let first = cluster.iter().copied().min().unwrap_or(0);
            group.first = first as u16;
            group.first_size = pieces[first].size;
            groups.push(group);
            for &index in cluster {
                let Piece {
                    displacement,
                    size,
                    kind,
                    ..
                } = pieces[index];
                members[index] = Some(Member {
                    group: number as u8,
                    delta: displacement.wrapping_sub(sorted[0].displacement) as u8,
                    size,
                    kind,
                    place: 0,
                });
            }
        }
        let sum = |part: fn(&Group) -> u64| groups.iter().map(part).sum();
        let section = Self {
            accesses: sum(|group| group.accesses),
            read_bytes: sum(|group| group.read_bytes),
            write_bytes: sum(|group| group.write_bytes),
            groups: groups.into(),
            members: members.into_iter().flatten().collect(),
        };
        (section, count)
    }
}

/// Indices of `pieces` by group, ascending by displacement.
fn clusters(pieces: &[Piece]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    // As signed numbers, so that negative displacements come first.
    order.sort_by_key(|&index| (pieces[index].form, pieces[index].displacement as i64));
    let mut clusters: Vec<Vec<usize>> = Vec::new();
    for index in order {
        let piece = pieces[index];
        match clusters.last_mut() {
            Some(cluster)
                if pieces[cluster[0]].form == piece.form
                    && piece
                        .displacement
                        .wrapping_sub(pieces[cluster[0]].displacement)
                        .saturating_add(u64::from(piece.size))
                        <= SPAN =>
            {
                cluster.push(index);
            }
            _ => clusters.push(vec![index]),
        }
    }
    clusters
}
