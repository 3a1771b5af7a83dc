use std::io::Write;
use std::thread;

use super::*;

fn fetched() -> Fetched {
    Fetched {
        reference: "registry.example/one:1".to_owned(),
        digest: "sha256:0".to_owned(),
    }
}

fn found(image: &Path) -> Arriving {
    Arriving::find(image).unwrap().unwrap()
}

#[test]
fn who_reads_hears_how_it_ends() {
    let image = tempfile::tempdir().unwrap();
    let image = image.path();
    refuse_arriving(image).unwrap();
    for (end, arrived) in [
        (Some("why"), Arrived::CutOff("why".to_owned())),
        (None, Arrived::Whole),
    ] {
        let fetching = Fetching::begin(image, &fetched()).unwrap();
        let arriving = found(image);
        assert_eq!(arriving.fetched().unwrap(), fetched());
        assert_eq!(arriving.arrived().unwrap(), Arrived::UnderWay);
        let refused = refuse_arriving(image);
        assert!(matches!(refused, Err(StoreError::Arriving { .. })));
        fetching.end(image, end).unwrap();
        assert_eq!(arriving.arrived().unwrap(), arrived);
    }
    refuse_arriving(image).unwrap();
}

#[test]
fn who_is_killed_is_nobody_and_the_next_one_is_another() {
    let image = tempfile::tempdir().unwrap();
    let image = image.path();
    let first = Fetching::begin(image, &fetched()).unwrap();
    let arriving = found(image);
    drop(first);
    assert!(matches!(arriving.arrived().unwrap(), Arrived::CutOff(_)));
    let second = Fetching::begin(image, &fetched()).unwrap();
    assert!(matches!(arriving.arrived().unwrap(), Arrived::CutOff(_)));
    assert!(matches!(
        Fetching::begin(image, &fetched()),
        Err(StoreError::Arriving { .. })
    ));
    second.end(image, None).unwrap();
    assert!(matches!(
        arriving.until_whole(|| false),
        Err(StoreError::CutOff { .. })
    ));
}

#[test]
fn who_reads_waits_for_his_part() {
    let image = tempfile::tempdir().unwrap();
    let image = image.path();
    let fetching = Fetching::begin(image, &fetched()).unwrap();
    let path = image.join("pack");
    let mut pack = File::create(&path).unwrap();
    let arriving = found(image);
    let reader = File::open(&path).unwrap();
    let waits = thread::spawn(move || {
        arriving.until(&reader, 2).unwrap();
        let length = reader.metadata().unwrap().len();
        (length, arriving.until(&reader, 3))
    });
    pack.write_all(b"1").unwrap();
    assert!(!waits.is_finished());
    pack.write_all(b"2").unwrap();
    fetching.end(image, Some("why")).unwrap();
    let (length, more) = waits.join().unwrap();
    assert_eq!(length, 2);
    assert!(matches!(more, Err(StoreError::CutOff { .. })));
}
