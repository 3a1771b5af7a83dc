//! Bulk memory: every kind of it, where it is kept, its faults, and the limits that it counts
//! against.

mod anothers_store;
mod copies;
mod cycles;
mod debugger;
mod every_kind;
mod faults;
mod from_files;
mod gpu_contents;
mod half_copied;
mod images;
mod left_to_criu;
mod limits;
mod moved;
mod no_room;
mod patience;
mod plugin_alone;
mod suspend_cut_off;
mod suspended;
mod tiers;
