//! The driver's own copying of GPU memory, answered by code of ours for the time of one call.
//!
//! In a checkpoint libcuda makes one mapping for all GPU contents of its process and copies them
//! there, 2 MiB at a time, with one thread. It calls mmap(2) and `memcpy` of the C library through
//! slots of its procedure linkage table, which lie in writable memory, so 8 bytes of each decide
//! who answers.
//!
//! * [`slots`]: where these slots are, or why they cannot be used. Nothing is changed for that.
//! * [`code`]: what then answers, as it is built from `stasis-injected-copy`.

pub mod code;
pub mod slots;

#[cfg(test)]
mod tests;
