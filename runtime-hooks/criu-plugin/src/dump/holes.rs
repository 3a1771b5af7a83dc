//! A dump whose memory the engine has stored before ([`Take::Nothing`]): CRIU's images have holes,
//! and the index in the image directory is all that says what belongs there.
//!
//! The plugin takes nothing, and makes no store: that would clear the engine's index. Nor does it
//! discard anything when the dump fails: the engine's store may have the only copy.
//!
//! [`Take::Nothing`]: stasis_memory_store::Take::Nothing

use std::path::Path;

use stasis_memory_store::{ImageId, Index};

use crate::error::Error;

/// Verifies that the engine's index is in the image directory.
///
/// # Errors
/// [`Error::NoIndex`], [`Error::OtherImage`], or the index cannot be read.
pub(crate) fn verify(image_dir: &Path, expected: ImageId) -> Result<(), Error> {
    let expected = expected.to_string();
    match Index::read(image_dir)?.map(|index| index.image_id.to_string()) {
        None => Err(Error::NoIndex { image: expected }),
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(Error::OtherImage { found, expected }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use stasis_memory_store::{INDEX_FILE, Tier};

    use super::*;

    #[test]
    fn an_image_with_holes_has_the_index_of_its_request() {
        let image = tempfile::tempdir().unwrap();
        let (own, other) = (ImageId::new(1), ImageId::new(2));
        let refused = verify(image.path(), own).unwrap_err();
        assert!(matches!(refused, Error::NoIndex { .. }), "{refused}");
        let index = Index {
            image_id: own,
            tier: Tier::Disk,
            packs: Vec::new(),
            processes: Vec::new(),
        };
        fs::write(image.path().join(INDEX_FILE), index.encode()).unwrap();
        verify(image.path(), own).unwrap();
        let refused = verify(image.path(), other).unwrap_err();
        assert!(matches!(refused, Error::OtherImage { .. }), "{refused}");
        fs::write(image.path().join(INDEX_FILE), b"torn").unwrap();
        let refused = verify(image.path(), own).unwrap_err();
        assert!(matches!(refused, Error::Store(_)), "{refused}");
    }
}
