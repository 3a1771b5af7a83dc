//! Blobs that are sent while the next one is gathered.

use std::io::{self, Read, Write};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use stasis_oci_image::{Descriptor, OciImageError};

use super::*;
use crate::places::{NewBlob, Stored};

/// The patience of a test that fails.
const LONG: Duration = Duration::from_secs(60);

/// The fate of blobs of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Neither of two is stored before both are being sent.
    Meet,
    /// The first of two is stored, the second is not.
    Break,
    /// None can be read.
    Lost,
    /// They are removed before the manifest names them, as by a garbage collection.
    Swept,
}

/// A layout; the first of its blobs has CRIU's files.
struct Watched {
    layout: Layout,
    fate: Fate,
    begun: Mutex<usize>,
    changed: Condvar,
}

struct WatchedBlob<'w> {
    watched: &'w Watched,
    blob: Box<dyn NewBlob + 'w>,
}

impl Watched {
    fn push(&self, images: &Images) -> Result<Moved, MoveError> {
        let source = Source::open(images.settings(), &images.path("image"))?;
        let reference = images.reference("job");
        push(
            images.settings(),
            source,
            self,
            (&reference, None),
            &(),
            one_each,
        )
    }

    fn of(images: &Images, fate: Fate) -> Self {
        Self {
            layout: Layout::open_or_make(&images.path("layout")).unwrap(),
            fate,
            begun: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    fn lost() -> OciImageError {
        OciImageError::Registry {
            registry: "here".to_owned(),
            action: "send a blob".to_owned(),
            what: "the connection broke".to_owned(),
        }
    }
}

impl NewBlob for WatchedBlob<'_> {
    fn written(&self) -> (Digest, u64) {
        self.blob.written()
    }

    fn finish(self: Box<Self>) -> Result<Stored, OciImageError> {
        let Watched {
            fate,
            begun,
            changed,
            ..
        } = self.watched;
        let mut begun = begun.lock().unwrap();
        *begun += 1;
        let number = *begun;
        changed.notify_all();
        match fate {
            Fate::Meet if number > 1 => {
                let alone = |begun: &mut usize| *begun < 3;
                let waited = changed.wait_timeout_while(begun, LONG, alone).unwrap();
                if waited.1.timed_out() {
                    return Err(Watched::lost());
                }
            }
            Fate::Break if number > 2 => return Err(Watched::lost()),
            _ => {}
        }
        self.blob.finish()
    }
}

impl Write for WatchedBlob<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.blob.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.blob.flush()
    }
}

impl Elsewhere for Watched {
    fn name(&self) -> String {
        self.layout.name()
    }

    fn manifest(&self, tag: &str) -> Result<(OciManifest, Digest), OciImageError> {
        self.layout.manifest(tag)
    }

    fn describe(&self, tag: &str) -> Result<Descriptor, OciImageError> {
        self.layout.describe(tag)
    }

    fn images(&self, tag: &str, most: usize) -> Result<Vec<OciManifest>, OciImageError> {
        self.layout.images(tag, most)
    }

    fn expect(&self, image: &OciManifest) -> Result<(), OciImageError> {
        self.layout.expect(image)
    }

    fn still_has(&self, digest: &Digest, bytes: u64) -> bool {
        self.layout.still_has(digest, bytes)
    }

    fn reader(&self, blob: &Descriptor, at: u64) -> Result<Box<dyn Read + '_>, OciImageError> {
        let of_memory = |image: OciManifest| image.layers(Layer::Memory).any(|one| one == blob);
        match self.fate {
            Fate::Lost if of_memory(self.layout.manifest("job")?.0) => Err(Self::lost()),
            _ => self.layout.reader(blob, at),
        }
    }

    fn new_blob(&self) -> Result<Box<dyn NewBlob + '_>, OciImageError> {
        let blob = self.layout.new_blob()?;
        Ok(Box::new(WatchedBlob {
            watched: self,
            blob,
        }))
    }

    fn put(&self, bytes: &[u8]) -> Result<Stored, OciImageError> {
        if self.fate == Fate::Swept {
            let blobs = fs::read_dir(format!("{}/blobs/sha256", self.name())).unwrap();
            blobs.for_each(|blob| fs::remove_file(blob.unwrap().path()).unwrap());
        }
        self.layout.put(bytes)
    }

    fn tag(&self, tag: &str, manifest: &OciManifest) -> Result<Digest, OciImageError> {
        self.layout.tag(tag, manifest)
    }
}

/// Makes a registry from which the blobs of memory of its image cannot be read.
pub(super) fn lost_registry(images: &Images) -> impl Elsewhere + use<> {
    Watched::of(images, Fate::Lost)
}

#[test]
fn blobs_are_sent_side_by_side() {
    let images = Images::new(PacksIn::Image);
    let watched = Watched::of(&images, Fate::Meet);
    let pushed = watched.push(&images).unwrap();
    assert_eq!((pushed.blobs, pushed.moved_blobs), (2, 2));
    images.pull("job", "pulled").unwrap();
    assert_eq!(images.contents("pulled"), images.contents("image"));
}

#[test]
fn a_blob_that_is_lost_leaves_no_tag_and_the_next_push_goes_on() {
    let images = Images::new(PacksIn::Image);
    let error = Watched::of(&images, Fate::Break).push(&images).unwrap_err();
    assert_eq!(error.kind(), Kind::Registry, "{error}");
    let error = images.layout().manifest("job").unwrap_err();
    assert!(matches!(error, OciImageError::NoTag { .. }), "{error}");
    let pushed = images.push("image", "job").unwrap();
    assert_eq!((pushed.blobs, pushed.moved_blobs), (2, 1));
}

#[test]
fn an_image_whose_blobs_another_program_has_removed_gets_no_tag() {
    let images = Images::new(PacksIn::Image);
    let error = Watched::of(&images, Fate::Swept).push(&images).unwrap_err();
    assert!(error.to_string().contains("sha256:"), "{error}");
    let error = images.layout().manifest("job").unwrap_err();
    assert!(matches!(error, OciImageError::NoTag { .. }), "{error}");
    images.push("image", "job").unwrap();
    images.pull("job", "pulled").unwrap();
}
