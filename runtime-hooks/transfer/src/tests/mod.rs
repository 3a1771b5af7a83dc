use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_engine::bulk_memory::places::of_image;
use stasis_engine::error::kind::Kind;
use stasis_engine::image::{files, manifest::Manifest, manifest::StoredMemory};
use stasis_memory_store::{BlobsOf, Buffer, Checksum, ImageId, Index, Lengths, PacksIn};
use stasis_oci_image::document::annotations::Annotations;
use stasis_oci_image::{Digest, Kind as Layer, Manifest as OciManifest, Reference};

use crate::error::MoveError;
use crate::fixtures::{Node, node, store_holes};
use crate::local::source::Source;
use crate::moved::Moved;
use crate::places::{Elsewhere, Layout, open, open_or_make};
use crate::pull::Incoming;
use crate::push::push;

mod archives;
mod damaged_blobs;
mod hostile_registry;
mod in_part;
mod large_files;
pub(crate) mod server;
mod side_by_side;

/// Puts each content into a blob of its own.
fn one_each(_: BlobsOf, _: u64) -> Lengths {
    Lengths { least: 1, most: 1 }
}

/// A node with a whole image with two contents, whose packs lie in the given place.
struct Images {
    node: Node,
}

impl Images {
    fn new(packs_in: PacksIn) -> Self {
        Self::of(node(), packs_in)
    }

    fn of(node: Node, packs_in: PacksIn) -> Self {
        let images = Self { node };
        images.make("image", packs_in, 1);
        images
    }

    fn make(&self, name: &str, packs_in: PacksIn, id: u8) {
        let image = self.path(name);
        fs::create_dir(&image).unwrap();
        let image_id = ImageId::new(u128::from(id));
        let store = of_image(&self.node.apart, image_id);
        store_holes(
            &image,
            (packs_in == PacksIn::Directory).then_some(store),
            id,
        );
        for (name, contents) in [
            ("core-1.img", "core"),
            ("inventory.img", "last"),
            ("dump.log", ""),
        ] {
            fs::write(image.join(name), contents).unwrap();
        }
        let mut manifest = Manifest::new("job", "2026-11-25T10:00:00Z".into(), "580".into());
        manifest.memory = Some(StoredMemory { image_id, packs_in });
        manifest.write(&image).unwrap();
        self.list(name);
    }

    /// Lists the current files of an image in its manifest.
    fn list(&self, name: &str) {
        let image = self.path(name);
        let mut manifest = Manifest::read(&image).unwrap().unwrap();
        manifest.files = Some(files::list(&image, 2).unwrap());
        manifest.write(&image).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.node.directory.path().join(name)
    }

    fn settings(&self) -> &Settings {
        &self.node.settings
    }

    fn reference(&self, tag: &str) -> Reference {
        let layout = self.path("layout");
        format!("oci:{}:{tag}", layout.display()).parse().unwrap()
    }

    fn push(&self, image: &str, tag: &str) -> Result<Moved, MoveError> {
        let source = Source::open(self.settings(), &self.path(image))?;
        let reference = self.reference(tag);
        let place = open_or_make(&reference, None)?;
        push(
            self.settings(),
            source,
            &*place,
            (&reference, None),
            &(),
            one_each,
        )
    }

    fn pull(&self, tag: &str, into: &str) -> Result<Moved, MoveError> {
        let reference = self.reference(tag);
        Incoming::find(&reference, None)?.pull(self.settings(), &self.path(into))
    }

    fn layout(&self) -> Layout {
        Layout::open(&self.path("layout")).unwrap()
    }

    fn blob(&self, digest: &Digest) -> PathBuf {
        self.path("layout/blobs/sha256").join(digest.hex())
    }

    /// Returns the checksums of all contents of the image's memory, which are verified.
    fn contents(&self, image: &str) -> Vec<Checksum> {
        let source = Source::open(self.settings(), &self.path(image)).unwrap();
        let memory = source.memory.unwrap();
        let mut buffer = Buffer::new();
        let mut contents = Vec::new();
        for process in &memory.index.processes {
            for area in &process.areas {
                for chunk in &area.chunks {
                    let read = memory
                        .reader
                        .load(process.pid, area.start, chunk, &mut buffer);
                    contents.push(Checksum::of(read.unwrap().verified().unwrap()));
                }
            }
        }
        contents
    }
}

#[test]
fn an_image_is_pulled_as_it_was_pushed_wherever_its_packs_lie() {
    for packs_in in [PacksIn::Image, PacksIn::Directory] {
        let images = Images::new(packs_in);
        let pushed = images.push("image", "job").unwrap();
        assert_eq!((pushed.blobs, pushed.moved_blobs), (2, 2));
        let pulled = images.pull("job", "pulled").unwrap();
        assert_eq!((pulled.digest, pulled.moved_blobs), (pushed.digest, 2));
        let manifest = Manifest::read(&images.path("pulled")).unwrap().unwrap();
        assert_eq!(manifest.container, "job");
        assert_eq!(manifest.memory.unwrap().packs_in, PacksIn::Image);
        assert_eq!(images.contents("pulled"), images.contents("image"));
        let core = fs::read(images.path("pulled/core-1.img")).unwrap();
        assert_eq!(core, b"core");
        assert!(!images.path("pulled/dump.log").exists());
        assert!(!images.path(".pulled.stasis-pull").exists());
    }
}

#[test]
fn what_the_other_side_has_is_not_moved() {
    let images = Images::new(PacksIn::Image);
    images.push("image", "first").unwrap();
    let again = images.push("image", "second").unwrap();
    assert_eq!(
        (again.moved_bytes, again.moved_blobs, again.blobs),
        (0, 0, 2)
    );
    images.pull("second", "pulled").unwrap();
    assert_eq!(images.push("pulled", "third").unwrap().moved_blobs, 0);
    images.make("other", PacksIn::Image, 2);
    assert_eq!(images.push("other", "first").unwrap().moved_blobs, 2);
}

#[test]
fn a_pull_that_was_cut_off_goes_on_where_it_was() {
    let images = Images::new(PacksIn::Image);
    images.push("image", "job").unwrap();
    let (manifest, _) = images.layout().manifest("job").unwrap();
    let last = manifest.layers(Layer::Memory).last().unwrap().digest;
    let good = fs::read(images.blob(&last)).unwrap();
    for damage in [vec![0; good.len()], good[1..].to_vec()] {
        fs::write(images.blob(&last), damage).unwrap();
        let error = images.pull("job", "pulled").unwrap_err();
        assert_eq!(error.kind(), Kind::ImageDamaged, "{error}");
        assert!(!images.path("pulled").exists());
    }
    fs::write(images.blob(&last), good).unwrap();
    // A file that is no part of this image is not kept.
    fs::write(images.path(".pulled.stasis-pull/core-2.img"), "").unwrap();
    let pulled = images.pull("job", "pulled").unwrap();
    assert_eq!((pulled.blobs, pulled.moved_blobs), (2, 1));
    assert_eq!(images.contents("pulled"), images.contents("image"));
    assert!(!images.path("pulled/core-2.img").exists());
}

#[test]
fn nothing_that_is_there_is_replaced_by_a_pull() {
    let images = Images::new(PacksIn::Image);
    images.push("image", "job").unwrap();
    let error = images.pull("job", "image").unwrap_err();
    assert_eq!(error.kind(), Kind::ImageDirectory, "{error}");
    fs::write(images.path("file"), "kept").unwrap();
    images.pull("job", "file").unwrap_err();
    fs::create_dir(images.path("empty")).unwrap();
    images.pull("job", "empty").unwrap();
}

#[test]
fn an_image_that_a_restore_would_not_take_is_not_pushed() {
    let images = Images::new(PacksIn::Image);
    let kind = |image: &str| images.push(image, "job").unwrap_err().kind();
    assert_eq!(kind("nothing"), Kind::ImageDirectory);
    fs::write(images.path("image/core-1.img"), "c0re").unwrap();
    assert_eq!(kind("image"), Kind::ImageDamaged);
    images.make("unlisted", PacksIn::Image, 2);
    let mut manifest = Manifest::read(&images.path("unlisted")).unwrap().unwrap();
    manifest.files = None;
    manifest.write(&images.path("unlisted")).unwrap();
    assert_eq!(kind("unlisted"), Kind::Unsupported);
    images.make("later", PacksIn::Image, 3);
    symlink("../image", images.path("later/parent")).unwrap();
    assert_eq!(kind("later"), Kind::Unsupported);
    assert!(!images.path("layout").exists());
}

/// Pulls an image whose parts are good each and do not fit together.
fn forged(images: &Images, change: impl FnOnce(&mut Manifest, &mut Index)) -> MoveError {
    let layout = images.layout();
    let (manifest, _) = layout.manifest("job").unwrap();
    let read = |kind| {
        let layer = manifest.layer(kind).unwrap();
        layout.read(layer, layer.size).unwrap()
    };
    let config = layout.read(manifest.config(), 1 << 20).unwrap();
    let mut config = Manifest::from_text(Path::new("config"), &config).unwrap();
    let mut index = Index::decode(&read(Layer::Index)).unwrap();
    change(&mut config, &mut index);
    let index = layout.put(&index.encode()).unwrap();
    let mut layers = vec![(Layer::Index, index.digest, index.bytes)];
    for kind in [Layer::Criu, Layer::Contents, Layer::Memory] {
        layers.extend(
            manifest
                .layers(kind)
                .map(|layer| (kind, layer.digest, layer.size)),
        );
    }
    let config = layout.put(&config.to_text().unwrap()).unwrap();
    let config = (config.digest, config.bytes);
    let forged = OciManifest::new(config, layers, Annotations::new());
    layout.tag("forged", &forged).unwrap();
    let error = images.pull("forged", "pulled").unwrap_err();
    assert!(!images.path("pulled").exists(), "{error}");
    error
}

#[test]
fn parts_that_do_not_fit_together_are_no_image() {
    let images = Images::new(PacksIn::Image);
    images.push("image", "job").unwrap();
    type Change = fn(&mut Manifest, &mut Index);
    let changes: [(&str, Change); 8] = [
        ("another checkpoint", |_, index| {
            index.image_id = ImageId::new(9)
        }),
        ("packs elsewhere", |_, index| {
            index.packs_in = PacksIn::Directory
        }),
        ("no memory", |config, _| {
            config.memory = None;
            config.processes =
                vec![serde_json::from_str(r#"{"pid":1,"name":"a","gpus":[]}"#).unwrap()];
        }),
        ("packs in another order", |_, index| index.packs.swap(0, 1)),
        ("another pack", |_, index| {
            index.packs[0].creator = ImageId::new(9)
        }),
        ("a longer pack", |_, index| index.packs[0].bytes += 4096),
        ("no list", |config, _| config.files = None),
        ("another index", |_, index| drop(index.processes.pop())),
    ];
    for (what, change) in changes {
        let error = forged(&images, change);
        assert_eq!(error.kind(), Kind::ImageDamaged, "{what}: {error}");
    }
    let error = forged(&images, |config, _| {
        let files = config.files.as_mut().unwrap();
        files.retain(|file| file.name != "inventory.img");
    });
    assert_eq!(error.kind(), Kind::ImageDamaged, "{error}");
    let error = forged(&images, |config, _| {
        let files = config.files.as_mut().unwrap();
        files.iter_mut().for_each(|file| {
            if file.name == "inventory.img" {
                file.bytes = u64::MAX;
            }
        });
    });
    assert_eq!(error.kind(), Kind::NoSpace, "{error}");
}
