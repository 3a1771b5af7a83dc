//! The contents of one chunk: the [`buffer`] that a thread reads them into, which of its pages are
//! stored ([`stored_pages`]), and their [`checksum`].

pub(crate) mod buffer;
pub(crate) mod checksum;
mod huge_pages;
pub(crate) mod stored_pages;
