//! The kernel's page size.

use stasis_memory_store::PAGE;

use crate::error::Error;

/// Whether the kernel has pages of that size. ARM servers may have others: userfaultfd takes whole
/// pages only, so what is taken there could not be given back. Dumps leave all to CRIU; restores of
/// what was taken elsewhere are refused.
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
    fn other_pages_are_refused() {
        assert!(check().is_ok());
        let error = accept(64 << 10).unwrap_err().to_string();
        assert!(
            error.contains("65536 bytes") && error.contains("4096"),
            "{error}"
        );
    }
}
