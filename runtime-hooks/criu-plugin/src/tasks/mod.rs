//! The tasks that CRIU has stopped, as the kernel shows them: which there are ([`tree`]), their
//! mappings ([`smaps`]) and the pages in these ([`pagemap`]). No memory is changed here.

pub(crate) mod page_size;
pub(crate) mod pagemap;
pub(crate) mod smaps;
pub(crate) mod tree;
