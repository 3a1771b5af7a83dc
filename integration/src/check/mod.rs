//! Waiting and asserting, and how programs end, without anything of stasis.

pub mod assert_text;
pub mod ended;
pub(crate) mod left_out;
pub mod metrics;
pub mod process_tree;
pub mod requirement;
pub mod seed;
pub mod wait;
