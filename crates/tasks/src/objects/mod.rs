//! The objects of a run. A file named by one object has its memory and what can be read of it; a file named by several
//! has what the program and the runtime do with them.
//!
//! | file | what lives there | uses, of the files of this folder |
//! |---|---|---|
//! | `header` | lock, kind and generation of every object | nothing |
//! | `arena` | memory of objects; the object behind a GUID | `header` |
//! | `block`, `task`, `label`, `event`, `collective`, `delivery`, `waits` | memory of the objects | `header`, `arena` |
//! | `describe` | objects and errors in words | memory of the objects |
//! | `labels` | ranges and maps of labels, dependences that wait for a label | memory |
//! | `blocks` | creation, holds and destruction of data blocks; hands tasks to the scheduler | `labels` |
//! | `slots` | slots of tasks, and what follows when the last one is satisfied | `blocks` |
//! | `events` | when events fire and end | `slots` |
//! | `scopes` | finish scopes | `events` |
//! | `dependences` | from blocks and events to tasks and events | `events`, `slots` |
//! | `tasks` | templates, creation, execution and end of tasks | `dependences`, `scopes` |
//! | `waiting` | waiting inside a task | `events`, `scopes`, the scheduler |
//! | `labelled` | creation under labels | `dependences`, `waiting` |

pub(crate) mod arena;
pub mod block;
pub mod blocks;
pub mod collective;
pub(crate) mod delivery;
pub mod dependences;
pub(crate) mod describe;
pub mod event;
pub mod events;
pub(crate) mod header;
pub mod label;
pub mod labelled;
pub mod labels;
pub(crate) mod scopes;
pub(crate) mod slots;
pub mod task;
pub mod tasks;
pub mod waiting;
pub(crate) mod waits;
