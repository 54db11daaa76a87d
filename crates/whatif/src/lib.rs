//! What a change of the program would be worth: changes as data, tried on the run that was recorded.
//!
//! A change transforms the simulated run, never the recording. The caller simulates: this crate says which changes are
//! worth a try, rewrites the events of a trace as if a change had been made, and searches for the best set.
//!
//! | part | file | what |
//! |---|---|---|
//! | changes | [`change`] | what can be changed, what each assumes, which exclude each other |
//! | facts | [`facts`] | of each page: who began with it, who used it afterwards, whether it was written then |
//! | parts | [`parts`] | objects that one place of the code initialises; a change is made to all of them |
//! | rewriting | [`rewrite`] | the events of a trace under a change of who initialises, or with a copy per node |
//! | lines | [`lines`] | the time that threads would wait for contended lines under a change |
//! | candidates | [`candidates`] | the changes that this run could gain from |
//! | search | [`search`] | the best set of changes, by a function that rates sets |
//! | places | [`places`] | the lines of the source that begin with, read and write a part |
//! | words | [`words`] | what to write in the source, in the program's language |
//!
//! Pure: no I/O, no clock of the host; the same input gives the same result. The idea of rating a change before it is
//! made is that of causal profiling (Curtsinger and Berger, SOSP 2015); here memory is what changes.

#![forbid(unsafe_code)]

pub mod candidates;
pub mod change;
pub mod facts;
pub mod lines;
pub mod parts;
pub mod places;
pub mod rewrite;
pub mod search;
pub mod words;
