//! Registries that refuse, break connections, or lie: a push or a pull goes on or fails cleanly,
//! and the next one moves what is missing.

use super::server::{Fault, Lie, Server};
use super::*;
use crate::fixtures::node_in;

/// Makes an image with all kinds of layers but an engine's; in memory, since it is written often.
fn image() -> Images {
    let images = Images::of(node_in("/dev/shm".as_ref()), PacksIn::Image);
    let mut pages = vec![0; 1100 * 4096];
    fastrand::Rng::with_seed(1).fill(&mut pages);
    fs::write(images.path("image/pages-1.img"), pages).unwrap();
    images.list("image");
    images
}

/// Puts each content of memory into a blob, and all pieces of files into one.
fn few(sort: BlobsOf, _: u64) -> Lengths {
    let least = match sort {
        BlobsOf::Memory => 1,
        BlobsOf::Files => 1 << 30,
    };
    Lengths { least, most: least }
}

impl Images {
    fn push_to(&self, server: &Server) -> Result<Moved, MoveError> {
        let source = Source::open(self.settings(), &self.path("image"))?;
        let reference = server.reference("job");
        let place = open_or_make(&reference, None)?;
        push(
            self.settings(),
            source,
            &*place,
            (&reference, None),
            &(),
            few,
        )
    }

    fn pull_from(&self, server: &Server, into: &str) -> Result<Moved, MoveError> {
        let reference = server.reference("job");
        Incoming::find(&reference, None)?.pull(self.settings(), &self.path(into))
    }

    fn is_as_it_was(&self, pulled: &str) {
        assert_eq!(self.contents(pulled), self.contents("image"));
        for name in ["pages-1.img", "core-1.img", "inventory.img"] {
            let [one, other] = ["image", pulled].map(|image| self.path(image).join(name));
            assert!(fs::read(one).unwrap() == fs::read(other).unwrap(), "{name}");
        }
    }

    /// Counts verified packs, and checks that nothing else is left but parts from lost connections.
    fn left_of(&self, into: &str) -> usize {
        assert!(!self.path(into).exists());
        let Ok(left) = fs::read_dir(self.path(&format!(".{into}.stasis-pull"))) else {
            return 0;
        };
        let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names: Vec<_> = names.collect();
        let is_pack = |name: &str| stasis_memory_store::is_pack_name(name);
        let is_known = |name: &String| is_pack(name.strip_suffix(".new").unwrap_or(name));
        assert!(names.iter().all(is_known), "{names:?}");
        names.iter().filter(|name| is_pack(name)).count()
    }
}

#[test]
fn connections_that_break_in_each_request_are_made_again() {
    let images = image();
    let server = Server::start();
    server.set(Fault::Break);
    let pushed = images.push_to(&server).unwrap();
    assert_eq!(pushed.moved_bytes, pushed.bytes);
    // Each blob, and the manifest.
    assert!(server.broken() > server.blobs().len());
    server.set(Fault::Break);
    let pulled = images.pull_from(&server, "pulled").unwrap();
    assert_eq!(pulled.digest, pushed.digest);
    // All but the list of contents, and the manifest.
    assert_eq!(server.broken(), server.blobs().len());
    images.is_as_it_was("pulled");
}

#[test]
fn a_push_that_is_refused_at_any_request_goes_on_with_the_next_one() {
    let images = image();
    let server = Server::start();
    server.set(Fault::None);
    let whole = images.push_to(&server).unwrap();
    let requests = server.asked();
    assert!(requests > 3 * whole.blobs, "{requests} requests");
    for refused in 0..requests {
        let server = Server::start();
        server.set(Fault::Refuse(refused));
        let error = images.push_to(&server).unwrap_err();
        assert_eq!(error.kind(), Kind::Registry, "{error}");
        assert!(!server.has_tag("job"), "a tag after {refused} requests");
        let there: usize = server.blobs().values().map(Vec::len).sum();
        server.set(Fault::None);
        let pushed = images.push_to(&server).unwrap();
        assert_eq!(pushed.digest, whole.digest);
        assert_eq!(pushed.moved_bytes, whole.bytes - there as u64, "{refused}");
    }
}

#[test]
fn a_pull_that_is_refused_at_any_request_goes_on_with_the_next_one() {
    let images = image();
    let server = Server::start();
    let pushed = images.push_to(&server).unwrap();
    server.set(Fault::None);
    images.pull_from(&server, "whole").unwrap();
    for refused in 0..server.asked() {
        let into = format!("pulled-{refused}");
        server.set(Fault::Refuse(refused));
        let error = images.pull_from(&server, &into).unwrap_err();
        assert_eq!(error.kind(), Kind::Registry, "{error}");
        let there = images.left_of(&into);
        server.set(Fault::None);
        let pulled = images.pull_from(&server, &into).unwrap();
        assert_eq!(pulled.moved_blobs, pushed.blobs - there, "{refused}");
        images.is_as_it_was(&into);
        fs::remove_dir_all(images.path(&into)).unwrap();
    }
}

#[test]
fn what_a_registry_has_is_not_what_it_says() {
    let images = image();
    let server = Server::start();
    images.push_to(&server).unwrap();
    let from = open(&server.reference("job"), None).unwrap();
    let (manifest, _) = from.manifest("job").unwrap();
    // The list of contents is for pushes.
    let contents = manifest.layer(Layer::Contents).unwrap().digest;
    for digest in manifest.blobs().map(|blob| blob.digest) {
        if digest == contents {
            continue;
        }
        for lie in [
            Lie::Longer,
            Lie::Shorter,
            Lie::Endless,
            Lie::Ends,
            Lie::Other,
        ] {
            server.set(Fault::Lie(lie, digest));
            let error = images.pull_from(&server, "pulled").unwrap_err();
            let kind = match lie {
                Lie::Ends => Kind::Registry,
                _ => Kind::ImageDamaged,
            };
            assert_eq!(error.kind(), kind, "{lie:?} of {digest}: {error}");
            images.left_of("pulled");
            let _ = fs::remove_dir_all(images.path(".pulled.stasis-pull"));
        }
    }
    // It only helps a push or not, whatever the registry answers.
    for lie in [
        Lie::Longer,
        Lie::Shorter,
        Lie::Endless,
        Lie::Ends,
        Lie::Other,
    ] {
        server.set(Fault::Lie(lie, contents));
        images.push_to(&server).unwrap();
    }
    server.set(Fault::None);
    images.pull_from(&server, "pulled").unwrap();
    images.is_as_it_was("pulled");
}
