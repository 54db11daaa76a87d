//! Index types: numbers that must not be confused have different types.
//!
//! *Logical* indexes count positions in a [topology](../../numaloc_topology/index.html), from 0,
//! depth first; policies use only these. *OS* indexes are the kernel's numbers; only `numaloc-apply`
//! and the outermost crates convert.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number as an index into a vector kept in this order.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of position `index`.
            ///
            /// # Panics
            /// If `index` does not fit the id's range.
            #[must_use]
            pub fn from_index(index: usize) -> Self {
                Self(<$inner>::try_from(index).expect(concat!(stringify!($name), " out of range")))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A thread, task or rank of a profile: dense from 0, in the order of their stable paths.
    ThreadIdx(u32), "T"
);
id!(
    /// A processing unit by position in the topology (hwloc `L#`).
    LogicalPu(u32), "L#"
);
id!(
    /// A processing unit by the kernel's number (hwloc `P#`, `sched_setaffinity`).
    OsPu(u32), "P#"
);
id!(
    /// A NUMA node by position in the topology.
    LogicalNode(u32), "node L#"
);
id!(
    /// A NUMA node by the kernel's number (`mbind`, `/sys/devices/system/node`).
    OsNode(u32), "node P#"
);
id!(
    /// A page: virtual address divided by the profile's page size.
    PageNumber(u64), "page "
);
id!(
    /// A time slice of a profile, from 0.
    SliceIdx(u32), "slice "
);
id!(
    /// A memory object of a profile: section, heap block, mapping or stack.
    ObjectIdx(u32), "object "
);
id!(
    /// A cluster of slices whose communication is concurrent (DeLoc).
    ClusterIdx(u32), "cluster "
);
