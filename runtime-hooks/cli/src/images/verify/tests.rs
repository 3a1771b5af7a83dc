use std::path::PathBuf;

use stasis_engine::bulk_memory::places::of_image;
use stasis_engine::image::manifest::StoredMemory;
use stasis_memory_store::PacksIn;

use super::*;
use crate::fixtures::{FILES, START, flip_bit_of, node, store_holes};
use crate::images::table;

#[test]
fn all_that_is_to_fill_holes_is_read_wherever_it_lies() {
    for (id, packs_in) in (1..).zip([PacksIn::Image, PacksIn::Directory]) {
        let (node, image) = (node(), tempfile::tempdir().unwrap());
        let image_id = stasis_memory_store::ImageId::new(u128::from(id));
        let store = of_image(&node.apart, image_id);
        let store = (packs_in == PacksIn::Directory).then_some(store);
        let index = store_holes(image.path(), store.clone(), id);
        let mut manifest = Manifest::new("c1", String::new(), String::new());
        manifest.memory = Some(StoredMemory { image_id, packs_in });
        let found = FoundMemory::find(&node.settings, image.path(), &manifest, Ok(()));
        let memory = found.unwrap().unwrap();
        assert_eq!(
            memory.bytes(),
            FILES,
            "{packs_in:?}: the host memory of a restore"
        );
        let packs = store.unwrap_or_else(|| image.path().to_owned());
        let read = || {
            let mut report = VerifyReport::of(image.path(), 0);
            report.read_memory(&memory);
            report
        };
        let report = read();
        assert_eq!(report.restorable, Some(true), "{report:?}");
        assert_eq!(report.memory.as_ref(), Some(&packs));
        flip_bit_of(&index.processes[0].areas[0].chunks[1], &index, &packs);
        let report = read();
        assert_eq!(report.kind, Some(Kind::ImageDamaged), "{report:?}");
        let says = format!("chunk 2 of the area at {START:#x} of process 1 ");
        assert!(report.refusals[0].text.contains(&says), "{report:?}");
    }
}

#[test]
fn nothing_that_a_manifest_says_acts_on_a_terminal_or_forges_a_line() {
    let forged = "x\na restore would begin\u{1b}[2J\u{202e}".to_owned();
    let manifest = Manifest::new(&forged, forged.clone(), forged.clone());
    let mut report = VerifyReport::of(Path::new(&forged), 0);
    report.manifest = Some(manifest);
    report.memory = Some(PathBuf::from(&forged));
    report.notes.push(forged.clone());
    report.add(Kind::ImageDamaged, forged);
    let text = table::of(&[report], "WHOLE");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    assert!(
        !text
            .lines()
            .any(|line| line.starts_with("a restore would begin")),
        "{text}"
    );
    let shown = "x\\na restore would begin\\u{1b}[2J\\u{202e}";
    assert_eq!(text.matches(shown).count(), 9, "{text}");
}

#[test]
fn nothing_is_called_whole_that_nothing_vouches_for() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path();
    let looked = |reading| look(&Settings::default(), image, reading);
    let write = |name: &str, magic: u32, entry: &[u8]| {
        let bytes = u32::try_from(entry.len()).unwrap();
        let numbers = [0x5456_4319, magic, bytes].map(u32::to_ne_bytes);
        std::fs::write(image.join(name), [&numbers.concat()[..], entry].concat()).unwrap();
    };
    std::fs::write(image.join("inventory.img"), "hello").unwrap();
    assert_eq!(looked(Reading::Contents).kind, Some(Kind::ImageDamaged));
    write("pstree.img", 0x5027_3030, &[8, 1]);
    for reading in [Reading::Records, Reading::Contents, Reading::Here] {
        let report = looked(reading);
        assert_eq!(
            (report.restorable, report.kind),
            (None, None),
            "{reading:?}"
        );
        assert!(report.notes[0].starts_with("plain image: CRIU's files only; not verified"));
    }
    // A process has the driver's library mapped.
    let name = b"/usr/lib/libcuda.so.1";
    let byte = |length: usize| u8::try_from(length).unwrap();
    let regular = [&[0x32, byte(name.len())][..], name, &[0x38, 2]].concat();
    let file = [&[8, 1, 0x10, 1, 0x1a, byte(regular.len())][..], &regular].concat();
    write("mountpoints-1.img", 0x5556_3928, &[0x10, 1, 0x3a, 1, b'/']);
    write("files.img", 0x5630_3138, &file);
    let report = looked(Reading::Contents);
    assert_eq!(report.restorable, None);
    assert!(
        report.notes[0].starts_with("stasis.json is missing: "),
        "{report:?}"
    );
    std::fs::write(image.join("files.img"), "hello").unwrap();
    assert_eq!(looked(Reading::Contents).kind, Some(Kind::ImageDamaged));
}
