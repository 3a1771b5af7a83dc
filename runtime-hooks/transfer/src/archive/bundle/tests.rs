use std::fs;

use tar::{EntryType, Header};

use super::*;

const FILES: [Listed<'static>; 2] = [
    Listed {
        name: "core-1.img",
        bytes: 4,
    },
    Listed {
        name: "inventory.img",
        bytes: 0,
    },
];

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("core-1.img"), "core").unwrap();
    fs::write(directory.path().join("inventory.img"), "").unwrap();
    directory
}

fn packed(directory: &Path, files: &[Listed<'_>]) -> io::Result<Vec<u8>> {
    let mut bundle = Vec::new();
    pack(directory, files, &mut bundle).map(|()| bundle)
}

fn unpacked(bundle: &[u8], files: &[Listed<'_>]) -> io::Result<tempfile::TempDir> {
    let into = tempfile::tempdir()?;
    unpack(bundle, files, into.path()).map(|()| into)
}

/// A tar of these entries, compressed.
fn tar(entries: &[(EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut tar = Builder::new(zstd::Encoder::new(Vec::new(), LEVEL).unwrap());
    for (kind, name, contents) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        // Names that the crate would refuse.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(contents.len() as u64);
        header.set_cksum();
        tar.append(&header, *contents).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

#[test]
fn files_come_out_as_they_went_in_and_equal_ones_make_equal_bundles() {
    let (one, other) = (directory(), directory());
    let bundle = packed(one.path(), &FILES).unwrap();
    assert_eq!(bundle, packed(other.path(), &FILES).unwrap());
    let into = unpacked(&bundle, &FILES).unwrap();
    assert_eq!(fs::read(into.path().join("core-1.img")).unwrap(), b"core");
    assert_eq!(fs::read(into.path().join("inventory.img")).unwrap(), b"");
}

#[test]
fn a_file_that_is_not_as_listed_is_not_packed() {
    let directory = directory();
    for bytes in [3, 5] {
        let listed = Listed {
            name: "core-1.img",
            bytes,
        };
        let packed = packed(directory.path(), &[listed]);
        assert!(packed.is_err(), "{bytes} bytes");
    }
    std::os::unix::fs::symlink("core-1.img", directory.path().join("link.img")).unwrap();
    let link = Listed {
        name: "link.img",
        bytes: 4,
    };
    packed(directory.path(), &[link]).unwrap_err();
}

#[test]
fn nothing_but_what_is_listed_comes_out() {
    use EntryType as Kind;
    let good: [(Kind, &str, &[u8]); 2] = [
        (Kind::Regular, "core-1.img", b"core"),
        (Kind::Regular, "inventory.img", b""),
    ];
    unpacked(&tar(&good), &FILES).unwrap();
    let change = |at: usize, entry| {
        let mut entries = good;
        entries[at] = entry;
        tar(&entries)
    };
    let whole = tar(&good);
    let cases = [
        (
            "other name",
            change(0, (Kind::Regular, "core-2.img", b"core")),
        ),
        ("path", change(0, (Kind::Regular, "../core-1.img", b"core"))),
        (
            "absolute",
            change(0, (Kind::Regular, "/core-1.img", b"core")),
        ),
        ("longer", change(0, (Kind::Regular, "core-1.img", b"cores"))),
        ("link", change(1, (Kind::Symlink, "inventory.img", b""))),
        ("hard link", change(1, (Kind::Link, "inventory.img", b""))),
        (
            "directory",
            change(1, (Kind::Directory, "inventory.img", b"")),
        ),
        ("device", change(1, (Kind::Block, "inventory.img", b""))),
        (
            "long name",
            change(0, (Kind::GNULongName, "core-1.img", b"core")),
        ),
        ("order", tar(&[good[1], good[0]])),
        ("fewer", tar(&good[..1])),
        ("more", tar(&[good[0], good[1], good[0]])),
        ("cut off", whole[..whole.len() / 2].to_vec()),
        ("no zstd", b"core".to_vec()),
        ("nothing", Vec::new()),
    ];
    for (what, bundle) in cases {
        let error = unpacked(&bundle, &FILES).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{what}: {error}");
    }
}

#[test]
fn a_file_that_is_there_is_not_overwritten() {
    let from = directory();
    let bundle = packed(from.path(), &FILES).unwrap();
    let error = unpack(bundle.as_slice(), &FILES, from.path()).unwrap_err();
    assert!(error.to_string().contains("is there twice"), "{error}");
}
