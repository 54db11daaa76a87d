//! What holds for the repository itself: crates, modules, sizes, documentation, who changes the machine's state.

mod circles;
mod dependencies;
mod docs;
mod machine_state;
mod sizes;
