//! The tasks that CRIU has stopped, as the kernel shows them: which there are ([`tree`]) and
//! their mappings ([`smaps`]). No memory is changed here.

pub(crate) mod page_size;
pub(crate) mod smaps;
pub(crate) mod tree;
