//! Large files of CRIU, in pieces.

use stasis_memory_store::PAGE;

use super::*;

const FILES: [&str; 2] = ["pages-1.img", "pages-2.img"];

/// Puts everything into one blob.
fn all_in_one(_: BlobsOf, _: u64) -> Lengths {
    Lengths {
        least: 1 << 30,
        most: 1 << 30,
    }
}

fn pages(seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * PAGE];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

impl Images {
    /// Makes an image with these pages as well.
    fn make_large(&self, name: &str, id: u8, files: [&[u8]; 2]) {
        if name != "image" {
            self.make(name, PacksIn::Image, id);
        }
        for (file, bytes) in FILES.iter().zip(files) {
            fs::write(self.path(name).join(file), bytes).unwrap();
        }
        self.list(name);
    }

    fn push_large(&self, image: &str, tag: &str) -> Moved {
        let source = Source::open(self.settings(), &self.path(image)).unwrap();
        let reference = self.reference(tag);
        let place = open_or_make(&reference, None).unwrap();
        push(
            self.settings(),
            source,
            &*place,
            (&reference, None),
            &(),
            all_in_one,
        )
        .unwrap()
    }

    fn are_there(&self, image: &str, files: [&[u8]; 2]) {
        for (file, bytes) in FILES.iter().zip(files) {
            let found = fs::read(self.path(image).join(file)).unwrap();
            assert!(found == bytes, "{file} of {image}");
        }
    }
}

#[test]
fn a_second_replica_moves_the_pages_that_are_its_own() {
    let images = Images::new(PacksIn::Image);
    let (one, small) = (pages(1, 2000), pages(2, 3));
    images.make_large("image", 1, [&one, &small]);
    let first = images.push_large("image", "first");
    // One blob of memory and one of files.
    assert_eq!((first.blobs, first.moved_blobs), (2, 2));
    assert!(first.moved_bytes > one.len() as u64);
    let other = [
        &pages(3, 5),
        &one[..1200 * PAGE],
        &pages(4, 9),
        &one[1200 * PAGE..],
    ]
    .concat();
    images.make_large("other", 1, [&small, &other]);
    let second = images.push_large("other", "second");
    assert_eq!((second.blobs, second.moved_blobs), (3, 1));
    assert!(second.moved_bytes < 300 * PAGE as u64, "{second:?}");
    for (tag, files) in [
        ("first", [&one[..], &small]),
        ("second", [&small[..], &other]),
    ] {
        let into = format!("pulled-{tag}");
        images.pull(tag, &into).unwrap();
        images.are_there(&into, files);
        assert_eq!(images.contents(&into), images.contents("image"));
        // A pulled image is pushed again without a byte.
        let again = images.push_large(&into, "again");
        assert_eq!(again.moved_bytes, 0, "{again:?}");
        let packs = fs::read_dir(images.path(&into)).unwrap();
        let packs = packs.filter(|one| {
            let name = one.as_ref().unwrap().file_name();
            stasis_memory_store::is_pack_name(name.to_str().unwrap())
        });
        assert_eq!(packs.count(), 1, "packs of files are left in {into}");
    }
}

#[test]
fn a_pull_that_was_cut_off_goes_on_with_the_pieces_that_it_has() {
    let images = Images::new(PacksIn::Image);
    let (one, two) = (pages(1, 1100), pages(2, 1200));
    images.make_large("image", 1, [&one, &two]);
    images.push_large("image", "job");
    let (manifest, _) = images.layout().manifest("job").unwrap();
    // While one blob of two is found damaged, the other may arrive in time, or not.
    for (kind, moved_blobs) in [
        (Layer::FilesIndex, 2..=2),
        (Layer::Files, 1..=2),
        (Layer::Memory, 1..=2),
        (Layer::Criu, 0..=0),
    ] {
        let damaged = manifest.layer(kind).unwrap().digest;
        let good = fs::read(images.blob(&damaged)).unwrap();
        let mut other = good.clone();
        other[good.len() / 2] ^= 1;
        fs::write(images.blob(&damaged), other).unwrap();
        let into = damaged.hex();
        let error = images.pull("job", &into).unwrap_err();
        assert_eq!(error.kind(), Kind::ImageDamaged, "{error}");
        assert!(!images.path(&into).exists());
        fs::write(images.blob(&damaged), good).unwrap();
        let pulled = images.pull("job", &into).unwrap();
        assert!(
            moved_blobs.contains(&pulled.moved_blobs),
            "{kind:?}: {pulled:?}"
        );
        images.are_there(&into, [&one, &two]);
    }
}

/// Any client may have written the index of files.
#[test]
fn pieces_that_do_not_fit_the_files_are_no_image() {
    let images = Images::new(PacksIn::Image);
    let (one, two) = (pages(1, 1100), pages(2, 1200));
    images.make_large("image", 1, [&one, &two]);
    images.push_large("image", "job");
    let layout = images.layout();
    let (manifest, _) = layout.manifest("job").unwrap();
    type Change = fn(&mut Index);
    let changes: [(&str, Change); 7] = [
        ("a file less", |index| drop(index.processes.pop())),
        ("a file that there is not", |index| {
            index.processes[1].pid = 99
        }),
        ("of another checkpoint", |index| {
            index.packs_in = PacksIn::Directory
        }),
        ("a piece less", |index| drop(index.processes[0].areas.pop())),
        ("another pack", |index| {
            index.packs[0].creator = ImageId::new(9)
        }),
        ("no end of zeros", |index| {
            let area = index.processes[0].areas.last_mut().unwrap();
            area.chunks.clear();
            area.bytes = 1 << 50;
        }),
        ("zeros in the place of pages", |index| {
            index.processes[0].areas[1].chunks.clear();
        }),
    ];
    for (what, change) in changes {
        let index = manifest.layer(Layer::FilesIndex).unwrap();
        let index = layout.read(index, index.size).unwrap();
        let mut index = Index::decode(&index).unwrap();
        change(&mut index);
        let index = layout.put(&index.encode()).unwrap();
        let mut layers = vec![(Layer::FilesIndex, index.digest, index.bytes)];
        for kind in [
            Layer::Criu,
            Layer::Files,
            Layer::Index,
            Layer::Contents,
            Layer::Memory,
        ] {
            let others = manifest.layers(kind);
            layers.extend(others.map(|layer| (kind, layer.digest, layer.size)));
        }
        let config = manifest.config();
        let config = (config.digest, config.size);
        let forged = OciManifest::new(config, layers, Annotations::new());
        layout.tag("forged", &forged).unwrap();
        let error = images.pull("forged", "pulled").unwrap_err();
        assert_eq!(error.kind(), Kind::ImageDamaged, "{what}: {error}");
        assert!(!images.path("pulled").exists(), "{what}");
    }
}
