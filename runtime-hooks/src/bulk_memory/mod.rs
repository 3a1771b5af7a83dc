//! Bulk memory: large areas that our CRIU plugin moves in place of CRIU.
//!
//! The engine decides before a dump or a restore whether the plugin can be used (`plugin.rs`) and
//! where the memory goes (`stores.rs`, `ram_tier.rs`), writes a request for it (`request.rs`),
//! reads its report afterwards (`dump.rs`, `restore.rs`), and records whose memory it is
//! (`origin.rs`). What is in memory alone is copied to disk afterwards (`write_behind.rs`). What
//! is there (`kept.rs`) stays until nobody needs it (`retention.rs`) or uses it (`in_use.rs`), and
//! can be compared with its checksums (`scrub.rs`).

pub(crate) mod dump;
pub(crate) mod in_use;
pub mod kept;
pub(crate) mod lost;
pub(crate) mod origin;
pub(crate) mod pending;
pub mod plugin;
pub(crate) mod ram_tier;
pub(crate) mod request;
pub mod restore;
pub(crate) mod retention;
pub(crate) mod scrub;
pub mod stores;
pub mod write_behind;
