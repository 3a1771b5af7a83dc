//! Containers to which everything happens, and the judge of what becomes of them: a job that was
//! healthy before is healthy, or its image is whole; and nothing is left behind.
//! With stops and creates: whoever is created next goes on with the newest image, or it is loud.

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
