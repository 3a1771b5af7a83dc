//! Engines' archives, pushed and pulled.

use std::io::Write;

use super::*;
use crate::archive::{self, Compression};

const CONFIG: &str = r#"{"id":"0a1b","name":"web","rootfsImageName":"registry.example/train:1",
    "rootfsImage":"train","rootfsImageRef":"sha256:0a","runtime":"stasis"}"#;
const SPEC: &str = r#"{"annotations":{"io.container.manager":"libpod"}}"#;
/// Podman's files in an archive beside the image.
const OWN: [(&str, &str); 5] = [
    ("config.dump", CONFIG),
    ("spec.dump", SPEC),
    ("network.status", "{}"),
    ("rootfs-diff.tar", "a tar of what is new"),
    ("deleted.files", r#"["/etc/motd"]"#),
];

impl Images {
    /// Exports an archive of the image, as podman does.
    fn export(&self, archive: &str, compression: Compression) -> PathBuf {
        let directory = self.path("exported");
        fs::create_dir_all(directory.join("volumes")).unwrap();
        fs::write(directory.join("volumes/data.tar"), "a volume").unwrap();
        for (name, contents) in OWN {
            fs::write(directory.join(name), contents).unwrap();
        }
        fs::rename(self.path("image"), directory.join("checkpoint")).unwrap();
        let archive = self.path(archive);
        let mut file = fs::File::create(&archive).unwrap();
        archive::pack(&directory, |_| true, compression, &mut file).unwrap();
        file.flush().unwrap();
        fs::remove_dir_all(directory).unwrap();
        archive
    }

    fn unpack(&self, archive: &str, into: &str) -> PathBuf {
        let from = fs::File::open(self.path(archive)).unwrap();
        let into = self.path(into);
        fs::create_dir(&into).unwrap();
        archive::unpack(from, &into, u64::MAX).unwrap();
        into
    }

    /// Lists hidden entries beside the layout and the images.
    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.node.directory.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with('.')).collect()
    }
}

#[test]
fn an_archive_comes_back_with_all_that_its_engine_needs() {
    for (compression, into) in [
        (Compression::None, "pulled.tar"),
        (Compression::Zstd, "pulled.tar.zst"),
    ] {
        let images = Images::new(PacksIn::Image);
        let contents = images.contents("image");
        images.export("job.tar", compression);
        let pushed = images.push("job.tar", "job").unwrap();
        assert_eq!(pushed.image, images.path("job.tar"));
        let pulled = images.pull("job", into).unwrap();
        assert_eq!(
            (pulled.digest, pulled.moved_blobs),
            (pushed.digest.clone(), 2)
        );
        let directory = images.unpack(into, "unpacked");
        for (name, contents) in OWN {
            assert_eq!(fs::read_to_string(directory.join(name)).unwrap(), contents);
        }
        let volume = fs::read(directory.join("volumes/data.tar")).unwrap();
        assert_eq!(volume, b"a volume");
        assert_eq!(images.contents("unpacked/checkpoint"), contents);
        for again in [into, "unpacked"] {
            let again = images.push(again, "again").unwrap();
            assert_eq!(
                (again.digest, again.moved_bytes),
                (pushed.digest.clone(), 0)
            );
        }
        assert_eq!(images.left(), [""; 0]);
    }
}

#[test]
fn the_manifest_says_whose_container_it_was() {
    let images = Images::new(PacksIn::Image);
    images.export("job.tar", Compression::None);
    images.push("job.tar", "job").unwrap();
    let (manifest, _) = images.layout().manifest("job").unwrap();
    for (name, said) in [
        ("container.name", "web"),
        ("engine.name", "Podman"),
        ("rootfsImageName", "registry.example/train:1"),
        ("rootfsImageUserRequested", "train"),
        ("rootfsImageID", "sha256:0a"),
        ("runtime.name", "stasis"),
        ("host.arch", "amd64"),
    ] {
        let found = manifest.annotation(&format!("org.criu.checkpoint.{name}"));
        assert_eq!(found, Some(said), "{name}");
    }
    let writable = manifest.layer(Layer::Writable).unwrap();
    let layer = fs::read(images.blob(&writable.digest)).unwrap();
    let mut plain = Vec::new();
    archive::decompress(layer.as_slice(), &mut plain, 100).unwrap();
    assert_eq!(plain, b"a tar of what is new");
}

#[test]
fn a_pull_into_an_archive_goes_on_where_it_was() {
    let images = Images::new(PacksIn::Image);
    images.export("job.tar", Compression::None);
    images.push("job.tar", "job").unwrap();
    let beside = images.path(".pulled.tar.stasis-pull");
    // A pull was killed while it wrote the archive.
    fs::create_dir(&beside).unwrap();
    images
        .pull("job", ".pulled.tar.stasis-pull/checkpoint")
        .unwrap();
    fs::write(beside.join(".new"), "a part").unwrap();
    let pulled = images.pull("job", "pulled.tar").unwrap();
    assert_eq!((pulled.blobs, pulled.moved_blobs), (2, 0));
    // A pull that fails leaves the verified files.
    let (manifest, _) = images.layout().manifest("job").unwrap();
    let last = manifest.layers(Layer::Memory).last().unwrap().digest;
    let good = fs::read(images.blob(&last)).unwrap();
    fs::write(images.blob(&last), vec![0; good.len()]).unwrap();
    let error = images.pull("job", "other.tar").unwrap_err();
    assert_eq!(error.kind(), Kind::ImageDamaged, "{error}");
    assert_eq!(images.left(), [".other.tar.stasis-pull"]);
    fs::write(images.blob(&last), good).unwrap();
    let pulled = images.pull("job", "other.tar").unwrap();
    assert_eq!(pulled.moved_blobs, 1);
    assert_eq!(images.left(), [""; 0]);
}

#[test]
fn what_is_no_archive_is_refused_and_nothing_is_left() {
    let images = Images::new(PacksIn::Image);
    images.push("image", "plain").unwrap();
    let error = images.pull("plain", "pulled.tar").unwrap_err();
    assert!(matches!(error, MoveError::NoEngine(_)), "{error}");
    fs::write(images.path("text.tar"), "text").unwrap();
    let error = images.push("text.tar", "text").unwrap_err();
    assert_eq!(error.kind(), Kind::ImageDamaged, "{error}");
    let mut other = Vec::new();
    let names_no_image = |name: &str| name == "config.dump";
    fs::write(images.path("config.dump"), "{}").unwrap();
    let directory = images.node.directory.path();
    archive::pack(directory, names_no_image, Compression::None, &mut other).unwrap();
    fs::write(images.path("other.tar"), other).unwrap();
    let error = images.push("other.tar", "other").unwrap_err();
    assert!(matches!(error, MoveError::NoArchive(_)), "{error}");
    fs::create_dir_all(images.path(".other.tar.stasis-pull/checkpoint")).unwrap();
    let error = images.pull("plain", "other.tar").unwrap_err();
    assert!(matches!(error, MoveError::There(_)), "{error}");
    assert_eq!(images.left(), [""; 0]);
}

/// The engine's files would be in the place of the image, or anywhere.
#[test]
fn an_engines_files_stay_among_themselves() {
    for name in ["checkpoint/inventory.img", "rootfs-diff.tar"] {
        let images = Images::new(PacksIn::Image);
        images.push("image", "job").unwrap();
        let (manifest, _) = images.layout().manifest("job").unwrap();
        let forged = images.path("forged");
        fs::create_dir_all(forged.join("checkpoint")).unwrap();
        fs::write(forged.join(name), "forged").unwrap();
        let mut bytes = Vec::new();
        archive::pack(&forged, |_| true, Compression::Zstd, &mut bytes).unwrap();
        let stored = images.layout().put(&bytes).unwrap();
        let engine = (Layer::Engine, stored.digest, stored.bytes);
        let kinds = [Layer::Criu, Layer::Index, Layer::Memory, Layer::Contents];
        let layers = kinds.into_iter().flat_map(|kind| {
            let own = manifest.layers(kind);
            own.map(move |layer| (kind, layer.digest, layer.size))
        });
        let config = manifest.config();
        let forged = OciManifest::new(
            (config.digest, config.size),
            layers.chain([engine]),
            Annotations::new(),
        );
        images.layout().tag("forged", &forged).unwrap();
        let error = images.pull("forged", "pulled.tar").unwrap_err();
        assert!(matches!(error, MoveError::NoImage { .. }), "{error}");
        assert!(error.to_string().contains("engine's files"), "{error}");
        assert_eq!(images.left(), [""; 0]);
    }
}
