//! Names of threads and objects that hold in every run of a program: the rules of `docs/identity.md`, written once.
//!
//! The recorder names what it saw, the placer names what it sees in another run, and a plan works because both names are
//! equal. So both call what is here:
//!
//! * [`path`]: the path of a thread and who created it;
//! * [`object`]: which object a mapping, a stack, the heap or a loaded file is;
//! * [`order`]: the number that tells objects apart that agree in everything else;
//! * [`ranges`]: which object lies at an address, while mappings come and go.
//!
//! Pure: no address and no kernel id enters a name, only the program's own order of calls and what its files hold.

pub mod object;
pub mod order;
pub mod path;
pub mod ranges;

pub use object::{MapCall, NewObject};
pub use order::Orders;
pub use path::{Creator, Step, ThreadPath};
