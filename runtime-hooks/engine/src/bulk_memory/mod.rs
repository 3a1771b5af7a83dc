//! Bulk memory: large areas that our CRIU plugin moves in place of CRIU.
//!
//! The engine decides before a dump or a restore whether the plugin can be used (`plugin.rs`) and
//! where the memory goes (`places.rs`, `staging.rs`), writes a request for it (`request.rs`),
//! reads its report afterwards (`dump.rs`, `restore.rs`), and records whose memory it is
//! (`origin.rs`). Stores apart from images (`apart.rs`) are not removed while a process uses them
//! (`in_use.rs`).

pub mod apart;
pub(crate) mod dump;
pub mod in_use;
pub(crate) mod origin;
pub mod places;
pub mod plugin;
pub(crate) mod request;
pub mod restore;
pub(crate) mod staging;
