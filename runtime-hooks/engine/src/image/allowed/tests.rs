use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::slice;

use super::*;

/// An image of root's with two files.
fn image(directory: &Path, name: &str) -> PathBuf {
    let image = directory.join(name);
    fs::create_dir_all(image.join("parts")).unwrap();
    fs::write(image.join("inventory.img"), "").unwrap();
    image
}

#[test]
fn an_image_of_roots_in_a_named_directory_is_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let named = [directory.path().join("images")];
    let image = image(&named[0], "one");
    let nowhere = Path::new("/nowhere");
    assert_eq!(admit(&[], nowhere).unwrap(), nowhere);
    assert_eq!(admit(&named, &image).unwrap(), image);
    // The image that was checked is restored, whatever becomes of the link.
    let link = directory.path().join("link");
    symlink(&image, &link).unwrap();
    assert_eq!(admit(&named, &link).unwrap(), image);
}

#[test]
fn an_image_elsewhere_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let named = [directory.path().join("images")];
    let wanted = image(&named[0], "one");
    let elsewhere = image(&directory.path().join("images-2"), "one");
    let error = admit(&named, &elsewhere).unwrap_err();
    assert!(matches!(error, NotAllowed::Elsewhere { .. }), "{error}");
    symlink("../../images-2/one", wanted.join("parent")).unwrap();
    let error = admit(&named, &wanted).unwrap_err();
    assert!(matches!(error, NotAllowed::Elsewhere { .. }), "{error}");
    fs::remove_file(wanted.join("parent")).unwrap();
    symlink(".", wanted.join("parent")).unwrap();
    let error = admit(&named, &wanted).unwrap_err();
    assert!(matches!(error, NotAllowed::TooMuch { .. }), "{error}");
}

#[test]
fn what_others_than_root_may_write_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let named = [directory.path().join("images")];
    let image = image(&named[0], "one");
    for path in [
        &named[0],
        &image,
        &image.join("parts"),
        &image.join("inventory.img"),
    ] {
        let before = path.metadata().unwrap().permissions();
        for mode in [0o775, 0o757] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            let error = admit(&named, &image).unwrap_err();
            assert!(matches!(error, NotAllowed::NotRoots { .. }), "{error}");
        }
        fs::set_permissions(path, before).unwrap();
        chown(path, Some(1000), None).unwrap();
        let error = admit(&named, &image).unwrap_err();
        assert!(matches!(error, NotAllowed::NotRoots { .. }), "{error}");
        chown(path, Some(0), None).unwrap();
    }
    admit(&named, &image).unwrap();
    symlink("/etc/passwd", image.join("core-1.img")).unwrap();
    let error = admit(&named, &image).unwrap_err();
    assert!(matches!(error, NotAllowed::OtherFile { .. }), "{error}");
}

#[test]
fn a_named_directory_that_is_not_there_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let wanted = image(&directory.path().join("images"), "one");
    let missing = directory.path().join("mounted-later");
    let error = admit(slice::from_ref(&missing), &wanted).unwrap_err();
    assert!(matches!(error, NotAllowed::Elsewhere { .. }), "{error}");
    let says = format!("{}, unusable: No such file", missing.display());
    assert!(error.to_string().contains(&says), "{error}");
    admit(&[missing, directory.path().join("images")], &wanted).unwrap();
}

#[test]
fn an_earlier_image_is_not_reached_through_what_others_can_change() {
    let directory = tempfile::tempdir().unwrap();
    let named = [directory.path().join("images")];
    let (wanted, earlier) = (image(&named[0], "two"), image(&named[0], "one"));
    let place = directory.path().join("place");
    fs::create_dir(&place).unwrap();
    symlink(&earlier, place.join("link")).unwrap();
    symlink("../../place/link", wanted.join("parent")).unwrap();
    assert_eq!(admit(&named, &wanted).unwrap(), wanted);
    // Its target is as before, but its owner can exchange it.
    lchown(place.join("link"), Some(1000), None).unwrap();
    let error = admit(&named, &wanted).unwrap_err();
    assert!(matches!(error, NotAllowed::NotRoots { .. }), "{error}");
    lchown(place.join("link"), Some(0), None).unwrap();
    chown(&place, Some(1000), None).unwrap();
    let error = admit(&named, &wanted).unwrap_err();
    assert!(matches!(error, NotAllowed::NotRoots { .. }), "{error}");
}
