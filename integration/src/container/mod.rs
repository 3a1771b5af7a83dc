//! Containers that tests checkpoint, restore, crash and measure.

pub mod bundle;
pub mod contents;
pub mod crash_container;
pub mod failure;
pub mod gpu_task;
pub mod image_files;
pub mod leaks;
pub mod memory_container;
pub mod saved_at_stop;
