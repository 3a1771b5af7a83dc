//! `stasis checkpoint` and `stasis restore`: of a container of any engine, by name, through its
//! engine's own command, so that the engine knows of it and its own commands work afterwards.
//!
//! The engine's command is a process of ours; the operation itself is a process that the engine
//! starts. The outcome is in `operations.log`, and the progress in the operation's record.

mod attempt;
mod call;
pub mod checkpoint;
mod checkpoint_way;
mod command;
mod criu_options;
mod dry_run;
pub(crate) mod group;
mod no_way;
mod outcome;
pub(crate) mod progress;
pub mod restore;
mod restore_dry_run;
mod restore_way;
