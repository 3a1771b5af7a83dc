//! The kernel's page size.

use stasis_memory_store::PAGE;

use crate::error::Error;

/// Refuses a kernel with pages of another size, as ARM servers have them: userfaultfd takes whole
/// pages only, so what is taken could not be given back.
pub(crate) fn check() -> Result<(), Error> {
    accept(rustix::param::page_size())
}

fn accept(bytes: usize) -> Result<(), Error> {
    match bytes {
        PAGE => Ok(()),
        bytes => Err(Error::PageSize { bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_pages_are_refused_with_the_way_out() {
        assert!(check().is_ok());
        let error = accept(64 << 10).unwrap_err().to_string();
        assert!(error.contains("65536 bytes") && error.contains("bulk_memory.enabled"));
    }
}
