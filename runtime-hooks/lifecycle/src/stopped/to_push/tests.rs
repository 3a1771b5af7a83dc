use std::os::unix::fs::symlink;
use std::time::{Duration, UNIX_EPOCH};

use tempfile::TempDir;

use super::*;

const NAME: &str = "2026-11-26T01:00:00.000Z-stop";

fn image(all: &TempDir, key: &str, name: &str) -> ToPush {
    let image = all.path().canonicalize().unwrap().join(key).join(name);
    let began = UNIX_EPOCH + Duration::from_millis(1_795_000_000_123);
    ToPush::new(all.path(), &image, "job", began).unwrap()
}

fn names(all: &TempDir) -> Vec<String> {
    let noted = noted(all.path()).unwrap().into_iter();
    noted
        .map(|one| format!("{}/{}", one.key, one.name))
        .collect()
}

#[test]
fn what_is_noted_is_found_the_latest_first_until_it_is_removed() {
    let all = TempDir::new().unwrap();
    assert_eq!(noted(all.path()).unwrap(), []);
    let key = "a/".repeat(500) + "b";
    let images = [
        image(&all, "red/job", NAME),
        image(&all, &key, "2026-11-26T03:00:00.000Z-stop"),
        image(&all, "job", NAME),
        image(&all, "job", "2026-11-26T02:00:00.000Z-stop"),
    ];
    for image in &images {
        image.note().unwrap();
    }
    let [first, long, other, later] = images;
    assert_eq!(
        noted(all.path()).unwrap(),
        [long, later, first, other.clone()]
    );
    other.hold().unwrap().unwrap().remove();
    assert!(other.hold().unwrap().is_none());
    assert_eq!(noted(all.path()).unwrap().len(), 3);
}

#[test]
fn who_is_at_it_is_alone() {
    let all = TempDir::new().unwrap();
    let [one, two] = ["one", "two"].map(|key| image(&all, key, NAME));
    one.note().unwrap();
    two.note().unwrap();
    let held = one.hold().unwrap().unwrap();
    // The maker of the image notes it once more: it is the same note.
    one.note().unwrap();
    let free = hold_all(all.path()).unwrap();
    let keys: Vec<_> = free.iter().map(|held| held.to_push.key.as_str()).collect();
    assert_eq!(keys, ["two"]);
    drop(held);
    let held = hold_all(all.path()).unwrap();
    assert_eq!(held.len(), 1);
    for held in held {
        held.remove();
    }
    assert_eq!(names(&all), [format!("two/{NAME}")]);
}

#[test]
fn who_has_waited_for_what_is_gone_has_nothing() {
    let all = TempDir::new().unwrap();
    let one = image(&all, "one", NAME);
    one.note().unwrap();
    let held = one.hold().unwrap().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| one.hold().unwrap().is_none());
        held.remove();
        assert!(waits.join().unwrap());
    });
}

#[test]
fn what_is_no_note_is_nobodys() {
    let all = TempDir::new().unwrap();
    let one = image(&all, "job", NAME);
    one.note().unwrap();
    let path = one.path();
    let text = fs::read_to_string(&path).unwrap();
    for odd in [
        text.replace("\"job\"", "\"../job\""),
        text.replace("-stop", "-stop/.."),
        text.replace("-stop", ""),
        text.replace("\"version\":1", "\"version\":2"),
        text[1..].to_owned(),
        " ".repeat(10 << 10),
    ] {
        fs::write(&path, odd).unwrap();
        assert_eq!(names(&all), [""; 0]);
    }
    fs::write(path.with_file_name("elsewhere"), &text).unwrap();
    fs::remove_file(&path).unwrap();
    symlink("elsewhere", &path).unwrap();
    assert_eq!(names(&all), [""; 0]);
    assert!(hold_all(all.path()).unwrap().is_empty());
    for (key, name) in [
        ("", NAME),
        (".pulled", NAME),
        ("job", "image"),
        ("job", ".-stop"),
    ] {
        let image = all.path().join(key).join(name);
        ToPush::new(all.path(), &image, "job", UNIX_EPOCH).unwrap_err();
    }
    ToPush::new(
        all.path(),
        Path::new("/images/job/1-stop"),
        "job",
        UNIX_EPOCH,
    )
    .unwrap_err();
}
