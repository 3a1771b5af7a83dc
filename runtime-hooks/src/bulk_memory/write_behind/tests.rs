use super::*;
use crate::bulk_memory::stores::tests::{origin, store};

fn of(directory: &Path) -> WriteBehind {
    WriteBehind {
        image_id: ImageId::new(2),
        container: "c1".into(),
        from: directory.join("ram").join(ImageId::new(2).to_string()),
        disk: directory.join("disk"),
        log_dir: directory.join("log"),
        threads: 3,
    }
}

#[test]
fn all_is_copied_and_what_is_there_is_linked() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let ram = directory.path().join("ram");
    fs::create_dir(&ram).unwrap();
    let from = store(&ram, 2, &origin("c1", 2));
    let large: Vec<u8> = (0..251).cycle().take((9 << 20) + 77).collect();
    let names = [2, 1].map(|id| format!("stasis-memory-{}-9.pack", ImageId::new(id)));
    fs::write(from.join(&names[0]), &large).unwrap();
    fs::write(from.join(&names[1]), "earlier").unwrap();
    let copy = of(directory.path());
    fs::create_dir(&copy.disk).unwrap();
    let earlier = store(&copy.disk, 1, &origin("c1", 1));
    fs::write(earlier.join(&names[1]), "earlier").unwrap();

    copy.carry_out().unwrap();
    let to = copy.disk.join(ImageId::new(2).to_string());
    assert_eq!(fs::read(to.join(&names[0])).unwrap(), large);
    assert_eq!(to.join(&names[1]).metadata().unwrap().nlink(), 2);
    let count = |path: &Path| fs::read_dir(path).unwrap().count();
    assert_eq!(count(&from), count(&to));
    let log = fs::read_to_string(copy.log_dir.join(operations_log::FILE_NAME)).unwrap();
    let line: serde_json::Value = serde_json::from_str(&log).unwrap();
    assert_eq!(line["operation"], "durable");
    assert!(line["phases"][0]["seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_copy_that_fails_leaves_nothing_and_is_logged() {
    let directory = tempfile::tempdir().unwrap();
    let copy = of(directory.path());
    fs::create_dir_all(copy.from.join("a-directory")).unwrap();
    assert!(copy.carry_out().is_err());
    assert_eq!(fs::read_dir(&copy.disk).unwrap().count(), 0);
    let log = fs::read_to_string(copy.log_dir.join(operations_log::FILE_NAME)).unwrap();
    assert!(log.contains("is not on disk"), "{log}");
    let line: serde_json::Value = serde_json::from_str(&log).unwrap();
    assert_eq!(line["kind"], "image-directory");
    assert_eq!(line["state"], "unharmed");
}
