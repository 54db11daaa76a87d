//! Memory that has a name: an object, or the variable or block that fills a part of it.

use crate::ids::ObjectIdx;
use crate::pages::Page;
use crate::profile::{Object, ObjectKind, Profile, Variable};
use crate::sites::SiteRow;

/// An object, or one of its variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Named {
    /// The object.
    pub object: ObjectIdx,
    /// Which of its variables; `None` for what no single variable fills.
    pub variable: Option<usize>,
}

impl Object {
    /// The block of memory that is the content of a mapping: it fills three quarters of it or more.
    #[must_use]
    pub fn content(&self) -> Option<&Variable> {
        let is_mapping = matches!(self.kind, ObjectKind::Mapping | ObjectKind::Shared);
        // Such a block has the middle. It is asked for each page, and a mapping may have blocks by the thousand.
        let middle = self.size / 2;
        let at = (self.variables).partition_point(|block| block.end() <= middle);
        let block = self.variables.get(at).filter(|_| is_mapping)?;
        (block.offset <= middle && block.size >= self.size - self.size / 4).then_some(block)
    }
}

impl Variable {
    /// Offset after its last byte.
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.size)
    }

    /// Of an object's variables, by ascending offset, the first that holds at least `least` bytes of those from offset
    /// `start` to `end`.
    #[must_use]
    pub fn within(variables: &[Self], start: u64, end: u64, least: u64) -> Option<usize> {
        let from = variables.partition_point(|one| one.end() <= start);
        let held = |one: &Self| one.end().min(end).saturating_sub(one.offset.max(start));
        let mut reached = variables[from..].iter().take_while(|one| one.offset < end);
        reached
            .position(|one| held(one) >= least)
            .map(|at| from + at)
    }
}

impl Profile {
    /// The variable that holds at least half of a page.
    #[must_use]
    pub fn variable_of(&self, page: &Page) -> Option<usize> {
        let object = self.objects.get(page.object?.index())?;
        let size = self.pages.page_size();
        // Page 0 of an object holds its first byte, which need not be at the page's start.
        let before = object.base % size;
        let offset = |page: u64| page.saturating_mul(size).saturating_sub(before);
        let (start, end) = (page.object_page, page.object_page.saturating_add(1));
        Variable::within(&object.variables, offset(start), offset(end), size / 2)
    }

    /// The named memory of a page, if it has an object. A mapping that one block fills is one memory.
    #[must_use]
    pub fn named(&self, page: &Page) -> Option<Named> {
        let object = page.object?;
        let is_filled = self.object(object).content().is_some();
        Some(Named {
            object,
            variable: self.variable_of(page).filter(|_| !is_filled),
        })
    }

    /// Numbers of the pages with named memory, ascending.
    pub fn named_pages(&self) -> impl Iterator<Item = (u64, Named)> {
        let pages = self.pages.pages().iter();
        pages.filter_map(|page| Some((page.number.0, self.named(page)?)))
    }

    /// The named memory of a code site, if it has an object, by the same rules.
    #[must_use]
    pub fn named_at(&self, site: &SiteRow) -> Option<Named> {
        let object = site.object?;
        let of = self.object(object);
        let at = |offset: u64| {
            of.variables
                .binary_search_by_key(&offset, |v| v.offset)
                .ok()
        };
        Some(Named {
            object,
            variable: (site.variable.and_then(at)).filter(|_| of.content().is_none()),
        })
    }

    /// The variable of named memory.
    #[must_use]
    pub fn variable(&self, named: Named) -> Option<&Variable> {
        self.object(named.object).variables.get(named.variable?)
    }
}
