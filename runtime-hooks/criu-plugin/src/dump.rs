//! The plugin's part of a dump whose GPU contents the engine has stored before: CRIU's images have
//! holes, and the index in the image directory is all that says what belongs there.
//!
//! Before CRIU stops the tree, [`freezer_wakeup`] shortens the time that CRIU sleeps meanwhile.
//! Whether the tree is the one that the engine has recorded is not looked at here: the action
//! script of the engine does so at `post-dump`, while CRIU can still let the tasks go on.

mod freezer_wakeup;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use stasis_memory_store::{DumpRequest, ImageId, Index};

use self::freezer_wakeup::FreezerWakeup;
use crate::criu;
use crate::error::Error;
use crate::fault_injection::{self, Point};
use crate::request;

/// CRIU calls from one thread, one call after the other.
static STATE: Mutex<Option<Requested>> = Mutex::new(None);

/// A dump whose tree is not stopped yet.
struct Requested {
    request: DumpRequest,
    _wakeup: Option<FreezerWakeup>,
}

fn state() -> MutexGuard<'static, Option<Requested>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Before anything is stopped. Without a request the image has no holes.
pub(crate) fn begin() -> Result<(), Error> {
    *state() = request::read()?.map(|request| Requested {
        request,
        // Without them the dump is only slower.
        _wakeup: FreezerWakeup::start().ok(),
    });
    Ok(())
}

/// CHECKPOINT_DEVICES, of which the first call does everything: by then the whole tree is stopped,
/// and CRIU has not looked at any memory.
pub(crate) fn verify() -> Result<(), Error> {
    let Some(Requested { request, .. }) = state().take() else {
        return Ok(());
    };
    fault_injection::point(Point::Dump)?;
    let image_dir = criu::image_dir().ok_or(Error::Criu("tell its image directory"))?;
    verify_index(&image_dir, request.image_id)?;
    criu::note_in_image()
}

/// The end of a dump, which may have failed before the tree was stopped: this library is unloaded
/// now, and no timer of it may be left.
pub(crate) fn end() {
    drop(state().take());
}

/// Verifies that the engine's index is in the image directory.
fn verify_index(image_dir: &Path, expected: ImageId) -> Result<(), Error> {
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

    use stasis_memory_store::{INDEX_FILE, PacksIn};

    use super::*;

    #[test]
    fn an_image_with_holes_has_the_index_of_its_request() {
        let image = tempfile::tempdir().unwrap();
        let (own, other) = (ImageId::new(1), ImageId::new(2));
        let refused = verify_index(image.path(), own).unwrap_err();
        assert!(matches!(refused, Error::NoIndex { .. }), "{refused}");
        let index = Index {
            image_id: own,
            packs_in: PacksIn::Directory,
            packs: Vec::new(),
            processes: Vec::new(),
        };
        fs::write(image.path().join(INDEX_FILE), index.encode()).unwrap();
        verify_index(image.path(), own).unwrap();
        let refused = verify_index(image.path(), other).unwrap_err();
        assert!(matches!(refused, Error::OtherImage { .. }), "{refused}");
        fs::write(image.path().join(INDEX_FILE), b"torn").unwrap();
        let refused = verify_index(image.path(), own).unwrap_err();
        assert!(matches!(refused, Error::Store(_)), "{refused}");
    }
}
