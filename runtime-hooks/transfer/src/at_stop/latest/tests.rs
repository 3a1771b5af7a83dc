use std::fs;
use std::path::Path;

use stasis_config::Settings;
use stasis_engine::image::manifest;
use stasis_lifecycle::stopped::push_again::PushAgain;
use stasis_oci_image::document::annotations::Annotations;
use stasis_oci_image::{Kind, Reference};

use super::*;
use crate::places::Elsewhere;
use crate::tests::server::Server;

/// A node with a key, and its registry.
struct Node {
    all: tempfile::TempDir,
    server: Server,
    how: PushAgain,
}

impl Node {
    fn new() -> Self {
        let (all, server) = (tempfile::tempdir().unwrap(), Server::start());
        let mut settings = Settings::default();
        let registry = server.reference("any").to_string();
        settings.restore.registry = registry.strip_suffix("/one:any").unwrap().to_owned();
        settings.restore.at_create = all.path().to_owned();
        let how = PushAgain::of(&settings).unwrap();
        Self { all, server, how }
    }

    /// Begins a stop, which notes and announces its image.
    fn stops(&self, name: &str) -> (Push, Latest) {
        let push = self.notes(name);
        let latest = Latest::of(&push).unwrap();
        latest.announce().unwrap();
        (push, latest)
    }

    fn notes(&self, name: &str) -> Push {
        let image = self
            .all
            .path()
            .canonicalize()
            .unwrap()
            .join("one")
            .join(name);
        fs::create_dir_all(&image).unwrap();
        let began = SystemTime::now();
        let to_push = ToPush::new(self.all.path(), &image, "job", began).unwrap();
        to_push.note().unwrap();
        let how = self.how.clone();
        Push { how, to_push }
    }

    /// Puts an image with this name into the registry, under this tag.
    fn has(&self, name: &str, tag: &str) -> Digest {
        let said = [(IMAGE, name), (CREATED, CREATED_AT)];
        let said = said.map(|(key, text)| (key.to_owned(), text.to_owned()));
        let config = (Digest::of(name.as_bytes()), 1);
        let layer = (Kind::Criu, Digest::of(b"criu"), 1);
        let image = Manifest::new(config, [layer], Annotations::from(said));
        self.registry().tag(tag, &image).unwrap()
    }

    fn registry(&self) -> Registry {
        let named: Reference = self.server.reference("any");
        let name = named.to_string();
        let name = name.strip_suffix(":any").unwrap();
        Registry::open(repository(name.to_owned()).unwrap(), None).unwrap()
    }

    /// Returns the name of the image that has the tag, or of the awaited one with the digest of the
    /// one before.
    fn latest(&self) -> (String, Option<Digest>) {
        match self.registry().tagged(LATEST).unwrap() {
            Tagged::Image(image, digest) => (name_of(&image), Some(digest)),
            Tagged::Awaited(made) if holds(&made) => (made.image + " awaited", made.before),
            other => panic!("{other:?}"),
        }
    }
}

const CREATED_AT: &str = "2026-11-26T01:00:00Z";

fn complete(image: &Path) {
    let mut manifest = manifest::Manifest::new("job", CREATED_AT.into(), "580".into());
    manifest.files = Some(Vec::new());
    manifest.write(image).unwrap();
}

#[test]
fn a_stop_without_an_image_gives_the_tag_to_the_one_that_is_being_pushed() {
    let node = Node::new();
    let first = node.has("0-stop", LATEST);
    let (earlier, pushed) = node.stops("1-stop");
    complete(&earlier.image());
    let (later, none) = node.stops("2-stop");
    assert_eq!(node.latest(), ("2-stop awaited".to_owned(), Some(first)));
    none.take_back(&later).unwrap();
    assert_eq!(node.latest(), ("1-stop awaited".to_owned(), Some(first)));
    pushed.renew();
    assert_eq!(node.latest(), ("1-stop awaited".to_owned(), Some(first)));
    // It can never be pushed.
    earlier.to_push.hold().unwrap().unwrap().remove();
    pushed.take_back(&earlier).unwrap();
    assert_eq!(node.latest(), ("0-stop".to_owned(), Some(first)));
}

#[test]
fn the_tag_goes_back_to_no_image_before_the_one_that_had_it() {
    let node = Node::new();
    complete(&node.notes("1-stop").image());
    let other = node.has("2-stop", LATEST);
    let (push, latest) = node.stops("3-stop");
    latest.take_back(&push).unwrap();
    assert_eq!(node.latest(), ("2-stop".to_owned(), Some(other)));
}

/// Two processes that read the tag at the same time write it one after the other.
#[test]
fn a_lost_announcement_is_made_again() {
    let node = Node::new();
    let (push, latest) = node.stops("2-stop");
    complete(&push.image());
    let earlier = node.has("1-stop", LATEST);
    latest.renew();
    assert_eq!(node.latest(), ("2-stop awaited".to_owned(), Some(earlier)));
    // Not past a later one, and not once it is there.
    let later = node.has("3-stop", LATEST);
    latest.renew();
    assert_eq!(node.latest(), ("3-stop".to_owned(), Some(later)));
    let own = node.has("2-stop", LATEST);
    latest.renew();
    assert_eq!(node.latest(), ("2-stop".to_owned(), Some(own)));
    latest.is_this(&own).unwrap();
    let (_, next) = node.stops("4-stop");
    latest.renew();
    next.renew();
    assert_eq!(node.latest(), ("4-stop awaited".to_owned(), Some(own)));
}
