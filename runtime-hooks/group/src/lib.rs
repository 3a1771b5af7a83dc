//! Containers that are checkpointed, or restored, with one outcome.
//!
//! A [`parent`] process has the containers' operations enter each step together, and decides for
//! all ([`mod@file`]). Each operation is a process of its own, as ever; as a [`member`] of the
//! group it reports its steps to the parent, and waits for its word.

pub mod file;
pub mod member;
pub mod parent;
