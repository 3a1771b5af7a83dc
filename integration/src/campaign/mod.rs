//! Containers to which everything happens, and the judge of their outcomes: a job that was healthy
//! before is healthy, or its image is whole; and nothing is left behind. With stops and creates:
//! the next container goes on with the newest image, or reports loudly that it does not.

pub mod chance;
pub mod end;
pub mod fault;
mod found;
pub mod images;
pub mod judge;
mod life;
mod lives;
mod operation;
mod recover;
pub mod run;
mod saved;
pub mod sequence;
pub mod subject;
pub mod tally;
pub mod verb;
mod victim;
pub mod workload;
