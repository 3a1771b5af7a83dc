//! Waiting and asserting, without anything of stasis.

pub mod assert_text;
pub mod process_tree;
pub mod requirement;
pub mod seed;
pub mod wait;
