//! The engine of stasis: checkpoint and restore of running GPU containers.

pub mod cgroup;
pub mod cuda;
pub mod fault;
pub mod gpu;
pub mod huge_pages;
pub mod job;
pub mod process;
pub mod timeline;
