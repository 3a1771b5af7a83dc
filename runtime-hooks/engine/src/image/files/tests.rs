use std::os::unix::fs::{FileExt, chown, symlink};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use crate::left_out::say_left_out;

const PACK: &str = "stasis-memory-00000000000000000000000000000001-0.pack";
const LARGE: &str = "pages-1.img";

/// An image with a file of each kind, and with other files that may be beside them.
fn image() -> (tempfile::TempDir, Vec<ImageFile>) {
    let image = tempfile::tempdir().unwrap();
    let names = [
        "inventory.img",
        "core-1.img",
        "descriptors.json",
        INDEX_FILE,
        PACK,
    ];
    for name in names {
        fs::write(image.path().join(name), name).unwrap();
    }
    let large = File::create(image.path().join(LARGE)).unwrap();
    large.set_len(2 * hash::PART + 1).unwrap();
    large.write_all_at(b"contents", hash::PART).unwrap();
    for name in [
        "dump.log",
        "stats-dump",
        "irmap-cache",
        "stasis.json",
        "config.dump",
    ] {
        fs::write(image.path().join(name), name).unwrap();
    }
    symlink("../parent", image.path().join("parent")).unwrap();
    let listed = list(image.path(), 2).unwrap();
    (image, listed)
}

#[test]
fn what_a_restore_reads_is_listed() {
    let (image, listed) = image();
    let names: Vec<_> = listed.iter().map(|file| file.name.as_str()).collect();
    let expected = [
        "core-1.img",
        "descriptors.json",
        "inventory.img",
        LARGE,
        PACK,
        INDEX_FILE,
    ];
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(names, expected);
    for file in &listed {
        assert_eq!(file.blake3.is_none(), file.name == PACK);
    }
    check_list(&listed).unwrap();
    verify(image.path(), &listed, 3).unwrap();
}

#[test]
fn what_is_beside_it_may_change() {
    let (image, listed) = image();
    for name in [
        "dump.log",
        "stats-restore",
        "restore.log",
        "descriptors.json.more",
    ] {
        fs::write(image.path().join(name), "another").unwrap();
    }
    fs::remove_file(image.path().join("stats-dump")).unwrap();
    verify(image.path(), &listed, 1).unwrap();
}

/// Changes one file after the other in the same way, and returns the errors.
fn errors(listed: &[ImageFile], image: &Path, change: impl Fn(&Path)) -> Vec<FileError> {
    let refused = listed.iter().map(|file| {
        let path = image.join(&file.name);
        let aside = image.join("aside");
        fs::rename(&path, &aside).unwrap();
        fs::copy(&aside, &path).unwrap();
        change(&path);
        let error = verify(image, listed, 2).unwrap_err();
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
        let _ = fs::remove_file(&path);
        fs::rename(&aside, &path).unwrap();
        error
    });
    refused.collect()
}

#[test]
fn a_file_that_is_not_as_it_was_is_refused_by_its_name() {
    let (image, listed) = image();
    let image = image.path();
    let open = |path: &Path| File::options().write(true).open(path).unwrap();
    let shorter = |path: &Path| open(path).set_len(3).unwrap();
    let longer = |path: &Path| {
        let file = open(path);
        file.set_len(file.metadata().unwrap().len() + 1).unwrap();
    };
    for change in [&shorter as &dyn Fn(&Path), &longer] {
        for error in errors(&listed, image, change) {
            assert!(matches!(error, FileError::Length { .. }), "{error}");
        }
    }
    for error in errors(&listed, image, |path| fs::remove_file(path).unwrap()) {
        assert!(matches!(error, FileError::Missing { .. }), "{error}");
    }
    let hashed: Vec<_> = listed
        .iter()
        .filter(|file| file.blake3.is_some())
        .cloned()
        .collect();
    let flipped = |path: &Path| open(path).write_all_at(b"!", 2).unwrap();
    for error in errors(&hashed, image, flipped) {
        assert!(matches!(error, FileError::Contents { .. }), "{error}");
    }
    verify(image, &listed, 2).unwrap();
}

#[test]
fn what_is_no_file_is_refused_by_its_name() {
    let (image, listed) = image();
    let link = |path: &Path| {
        fs::remove_file(path).unwrap();
        symlink("aside", path).unwrap();
    };
    let fifo = |path: &Path| {
        fs::remove_file(path).unwrap();
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
    };
    for change in [&link as &dyn Fn(&Path), &fifo] {
        for error in errors(&listed, image.path(), change) {
            let FileError::Io { source, .. } = error else {
                panic!("{error}");
            };
            assert_eq!(source.kind(), io::ErrorKind::InvalidData);
        }
    }
}

#[test]
fn a_file_of_a_third_user_is_refused() {
    let (image, listed) = image();
    if !rustix::process::geteuid().is_root() {
        say_left_out("a file of a third user", "only root gives files away").unwrap();
        return;
    }
    let give = |path: &Path| chown(path, Some(4711), None).unwrap();
    for error in errors(&listed, image.path(), give) {
        assert!(
            matches!(error, FileError::Owner { found: 4711, .. }),
            "{error}"
        );
    }
    // As a copy that a user unpacked.
    give(image.path());
    listed
        .iter()
        .for_each(|file| give(&image.path().join(&file.name)));
    verify(image.path(), &listed, 2).unwrap();
}

#[test]
fn a_list_names_only_files_of_the_image() {
    let (_image, listed) = image();
    for name in [
        "../core-1.img",
        "/etc/passwd",
        "sub/core-1.img",
        "passwd",
        "",
    ] {
        let mut listed = listed.clone();
        listed[0].name = name.to_owned();
        check_list(&listed).unwrap_err();
    }
    let twice = [listed.clone(), listed].concat();
    check_list(&twice).unwrap_err();
}
