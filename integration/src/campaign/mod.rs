//! Containers to which everything happens, and the judge of what becomes of them: a job that was
//! healthy before is healthy, or its image is whole; and nothing is left behind.

pub mod chance;
pub mod end;
pub mod fault;
mod found;
pub mod judge;
mod operation;
mod recover;
pub mod run;
pub mod sequence;
pub mod subject;
pub mod tally;
pub mod verb;
mod victim;
pub mod workload;
