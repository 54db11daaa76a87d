//! From tables under construction to a profile: sorts, merges and looks up, after the checks.

use super::builder::ProfileBuilder;
use super::check;
use super::error::{ProfileError, Table};
use super::rows::{
    AccessSliceRow, CommRow, PageSlice, PageSliceRow, SlowLoad, SlowLoadRow, SlowLoads,
};
use super::{Object, Profile};
use crate::ids::PageNumber;
use crate::marks::MarkRow;
use crate::mpi::MpiCall;
use crate::pages::{PageHead, PageUsage, ThreadAccess};
use crate::sites::SiteRow;

impl ProfileBuilder {
    /// The profile of these tables.
    ///
    /// # Errors
    /// [`ProfileError`] names the first row that contradicts the rules of a [`Profile`].
    pub fn build(mut self) -> Result<Profile, ProfileError> {
        check::all(&self)?;
        let pages = pages(&self);
        let page_slices = page_slices(std::mem::take(&mut self.page_slices), &pages)?;
        let slow_loads = match self.slow_loads.take() {
            None => None,
            Some((source, rows)) => Some(slow_loads(source, &rows, &pages)?),
        };
        let variables = self.take_variables();
        let mut objects = self.objects;
        for (object, variable) in variables {
            objects[object.index()].variables.push(variable);
        }
        for object in &mut objects {
            sort_variables(object);
        }
        let mut cell_errors = self.cell_errors;
        cell_errors.sort_by_key(|cell| (cell.layer, cell.src, cell.dst));
        let mut shared_lines = self.shared_lines;
        shared_lines.sort_by_key(|line| {
            let most = std::cmp::Reverse((line.false_events, line.events));
            (most, line.line)
        });
        let mut contended_lines = self.contended_lines;
        contended_lines.sort_by_key(|line| (std::cmp::Reverse(line.transfers), line.line));
        let mut contended_visits = self.contended_visits;
        contended_visits.sort_by_key(|row| (row.thread, row.from, row.line));
        let mut marks = self.marks;
        marks.sort_by(|a, b| {
            let key = |mark: &MarkRow| (mark.time, mark.occurrence);
            (key(a), &a.place).cmp(&(key(b), &b.place))
        });
        let sites = sites(self.sites);
        let mut mpi_calls = self.mpi_calls;
        mpi_calls.sort_by(|a, b| {
            let key = |row: &MpiCall| (row.thread, std::cmp::Reverse(row.nanoseconds));
            let rest = |row: &MpiCall| (row.ranks, row.most_bytes, row.calls);
            (key(a), &a.operation, &a.place, rest(a)).cmp(&(
                key(b),
                &b.operation,
                &b.place,
                rest(b),
            ))
        });
        let mpi_waits = added_up(
            self.mpi_waits,
            |row| (row.thread, row.other, row.kind),
            |sum, row| {
                sum.calls += row.calls;
                sum.nanoseconds += row.nanoseconds;
            },
        );
        Ok(Profile {
            meta: self.meta,
            threads: self.threads,
            slices: self.slices,
            communication: communication(self.communication),
            pages,
            page_slices,
            access_slices: access_slices(self.access_slices),
            objects,
            cell_errors,
            shared_lines,
            contended_lines,
            contended_visits,
            marks,
            sites,
            mpi_calls,
            mpi_waits,
            slow_loads,
        })
    }
}

fn sort_variables(object: &mut Object) {
    object.variables.sort_by_key(|variable| variable.offset);
}

/// Whether the keys of `rows` ascend strictly: such rows are in order and need no merging.
fn is_in_order<R, K: Ord>(rows: &[R], key: impl Fn(&R) -> K) -> bool {
    rows.is_sorted_by(|a, b| key(a) < key(b))
}

/// The rows in the order of their keys, those with the same key added to one by `add`. Sums stay within
/// [`check::MAX_COUNTED`], which the checks have established.
fn added_up<R, K: Ord>(
    mut rows: Vec<R>,
    key: impl Fn(&R) -> K,
    add: impl Fn(&mut R, &R),
) -> Vec<R> {
    if is_in_order(&rows, &key) {
        return rows;
    }
    rows.sort_by_key(&key);
    rows.dedup_by(|row, sum| {
        let is_same = key(row) == key(sum);
        if is_same {
            add(sum, row);
        }
        is_same
    });
    rows
}

fn communication(rows: Vec<CommRow>) -> Vec<CommRow> {
    added_up(
        rows,
        |row| (row.slice, row.layer, row.src, row.dst),
        |sum, row| {
            sum.events += row.events;
            sum.bytes += row.bytes;
        },
    )
}

fn access_slices(rows: Vec<AccessSliceRow>) -> Vec<AccessSliceRow> {
    added_up(
        rows,
        |row| (row.slice, row.thread),
        |sum, row| sum.accesses += row.accesses,
    )
}

fn sites(mut rows: Vec<SiteRow>) -> Vec<SiteRow> {
    rows.sort_by(|a, b| a.key().cmp(&b.key()));
    rows.dedup_by(|row, sum| {
        let is_same = row.key() == sum.key();
        if is_same {
            sum.samples += row.samples;
            sum.amount += row.amount;
        }
        is_same
    });
    rows
}

fn pages(tables: &ProfileBuilder) -> PageUsage {
    let (heads, cells) = tables.page_rows();
    let start = |at: usize| at.checked_sub(1).map_or(0, |before: usize| heads[before].1);
    let of = |at: usize| cells[start(at)..heads[at].1].iter().copied();
    let mut usage = PageUsage::new(tables.page_size);
    if is_in_order(heads, |(head, _)| head.number) {
        for (at, (head, _)) in heads.iter().enumerate() {
            usage.push(*head, of(at).collect());
        }
        return usage;
    }
    let mut order: Vec<usize> = (0..heads.len()).collect();
    order.sort_by_key(|&at| heads[at].0.number);
    for parts in order.chunk_by(|&a, &b| heads[a].0.number == heads[b].0.number) {
        let mut head: PageHead = heads[parts[0]].0;
        for &part in &parts[1..] {
            head.add_touch(&heads[part].0);
        }
        let accesses: Vec<ThreadAccess> = parts.iter().flat_map(|&part| of(part)).collect();
        usage.push(head, accesses);
    }
    usage
}

/// The index of a page that row `row` of `table` names.
fn index_of(
    pages: &PageUsage,
    table: Table,
    row: usize,
    number: PageNumber,
) -> Result<u32, ProfileError> {
    let at = pages.index_of(number);
    at.ok_or_else(|| check::unknown_page(table, row, number.0))
}

fn page_slices(rows: Vec<PageSlice>, pages: &PageUsage) -> Result<Vec<PageSliceRow>, ProfileError> {
    let indexed = rows.iter().enumerate().map(|(at, row)| {
        Ok(PageSliceRow {
            slice: row.slice,
            page: index_of(pages, Table::PageSlices, at, row.page)?,
            thread: row.thread,
            accesses: row.accesses,
        })
    });
    let indexed = indexed.collect::<Result<_, ProfileError>>()?;
    Ok(added_up(
        indexed,
        |row: &PageSliceRow| (row.slice, row.page, row.thread),
        |sum, row| sum.accesses += row.accesses,
    ))
}

fn slow_loads(
    source: String,
    rows: &[SlowLoad],
    pages: &PageUsage,
) -> Result<SlowLoads, ProfileError> {
    let indexed = rows.iter().enumerate().map(|(at, row)| {
        Ok(SlowLoadRow {
            page: index_of(pages, Table::SlowLoads, at, row.page)?,
            thread: row.thread,
            loads: row.loads,
        })
    });
    let indexed = indexed.collect::<Result<_, ProfileError>>()?;
    let rows = added_up(
        indexed,
        |row: &SlowLoadRow| (row.page, row.thread),
        |sum, row| sum.loads += row.loads,
    );
    Ok(SlowLoads { source, rows })
}
