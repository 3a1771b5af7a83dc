//! Images on this machine, on their way out or in.

pub(crate) mod beside;
pub(crate) mod origin;
pub(crate) mod source;
pub(crate) mod unpacked;
