//! Bulk memory: its places, its faults, and the limits that it counts against.

mod anothers_store;
mod by_criu;
mod contents;
mod cycles;
mod debugger;
mod from_files;
mod gpu_contents;
mod half_copied;
mod images;
mod limits;
mod moved;
mod no_room;
mod patience;
mod suspend_cut_off;
mod suspended;
