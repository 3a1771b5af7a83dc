use super::*;
use crate::bulk_memory::places::of_image;
use crate::bulk_memory::places::tests::{FILES, START, flip_bit_of, node, store_holes};
use crate::cuda::nvml::Gpu;
use crate::image::manifest::StoredMemory;
use stasis_memory_store::PacksIn;

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
            let mut report = Report::of(image.path());
            report.read_memory(&memory);
            report
        };
        let report = read();
        assert!(report.restorable, "{report}");
        assert_eq!(report.memory.as_ref(), Some(&packs));
        flip_bit_of(&index.processes[0].areas[0].chunks[1], &index, &packs);
        let report = read();
        assert_eq!(report.kind, Some(Kind::ImageDamaged), "{report}");
        let says = format!("chunk 2 of the area at {START:#x} of process 1 ");
        assert!(report.refusals[0].text.contains(&says), "{report}");
    }
}

#[test]
fn nothing_that_a_manifest_says_acts_on_a_terminal_or_forges_a_line() {
    let forged = "x\na restore would begin\u{1b}[2J\u{202e}".to_owned();
    let mut manifest = Manifest::new(&forged, forged.clone(), forged.clone());
    manifest.written_by = forged.clone();
    let mut about = About::of(&manifest);
    (about.processes, about.driver_version) = (1, forged.clone());
    about.gpus = vec![Gpu {
        uuid: "GPU-57415349-5300-4000-8000-000000000001".parse().unwrap(),
        name: forged.clone(),
        memory_bytes: 0,
    }];
    let mut report = Report::of(Path::new(&forged));
    report.manifest = Some(about);
    report.memory = Some(PathBuf::from(&forged));
    report.notes.push(forged.clone());
    report.add(Kind::ImageDamaged, forged);
    let text = report.to_string();
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    assert!(
        !text
            .lines()
            .any(|line| line.starts_with("a restore would begin")),
        "{text}"
    );
    assert_eq!(
        text.matches("x\\na restore would begin\\u{1b}[2J\\u{202e}")
            .count(),
        9,
        "{text}"
    );
}
