use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use prost::encoding::{WireType, encode_key, encode_varint};

use super::*;
use crate::error::kind::Kind;
use crate::image::criu_file::COMMON_MAGIC;

const FILES: u32 = 0x5630_3138;
const MOUNTS: u32 = 0x5556_3928;
const REMAP: u32 = 0x5913_3954;

/// A message of protobuf that is being put together.
#[derive(Default)]
struct Entry(Vec<u8>);

impl Entry {
    fn number(mut self, tag: u32, value: u64) -> Self {
        encode_key(tag, WireType::Varint, &mut self.0);
        encode_varint(value, &mut self.0);
        self
    }

    fn bytes(mut self, tag: u32, bytes: &[u8]) -> Self {
        encode_key(tag, WireType::LengthDelimited, &mut self.0);
        encode_varint(bytes.len() as u64, &mut self.0);
        self.0.extend(bytes);
        self
    }
}

fn write(image: &Path, name: &str, magic: u32, entries: &[Entry]) {
    let mut file = [COMMON_MAGIC, magic].map(u32::to_ne_bytes).concat();
    for Entry(bytes) in entries {
        file.extend(u32::try_from(bytes.len()).unwrap().to_ne_bytes());
        file.extend(bytes);
    }
    fs::write(image.join(name), file).unwrap();
}

fn entry() -> Entry {
    Entry::default()
}

fn read(image: &Path) -> Result<Expected, ContentsError> {
    Expected::read(&Files::of(image)?)
}

/// A container with a mount of its own, one that its runtime provides, and files in both.
fn image(image: &Path) {
    let mount = |number, at: &str| entry().number(2, number).bytes(7, at.as_bytes());
    let mounts = [
        mount(1, "/"),
        mount(2, "/tmp"),
        mount(3, "/data").bytes(18, b"/data"),
    ];
    write(image, "mountpoints-12.img", MOUNTS, &mounts);
    let file = |id, path: &str, mount: u64| {
        // sint32 is zigzag.
        let regular = entry().bytes(6, path.as_bytes()).number(7, mount * 2);
        let regular = regular.number(8, 5).number(10, 0o100_644);
        entry().number(1, 1).number(2, id).bytes(3, &regular.0)
    };
    let files = [
        file(1, "/bin/job", 1),
        file(2, "/data/set", 3),
        file(3, "/tmp/scratch", 2),
        file(4, "/gone", 1),
        file(5, "/dev/null", 1),
        entry().number(1, 4).number(2, 6),
    ];
    write(image, "files.img", FILES, &files);
    write(image, "remap-fpath.img", REMAP, &[entry().number(1, 4)]);
}

#[test]
fn what_the_new_container_has_to_have_is_read() {
    let directory = tempfile::tempdir().unwrap();
    image(directory.path());
    let expected = read(directory.path()).unwrap();
    assert_eq!(expected.mounts, ["/data".into()].into());
    let files = expected.files.iter();
    let files: Vec<_> = files.map(|file| (file.path(), file.bytes)).collect();
    let named = ["/bin/job", "/data/set"].map(|path| (path.into(), Some(5)));
    assert_eq!(files, named);
}

/// The text of an error, and the change that leads to it.
type Case = (&'static str, fn(&Path));

#[test]
fn what_criu_does_not_write_is_an_error_and_nothing_else() {
    let cases: [Case; 4] = [
        ("files.img: it ends within an entry", |image| {
            let file = image.join("files.img");
            let bytes = fs::read(&file).unwrap();
            fs::write(file, &bytes[..bytes.len() - 1]).unwrap();
        }),
        ("mountpoints-12.img: it has the magic 0x0, not", |image| {
            fs::write(image.join("mountpoints-12.img"), [0; 64]).unwrap();
        }),
        ("has more bytes of CRIU's records than", |image| {
            let file = fs::File::create(image.join("files.img")).unwrap();
            file.set_len(2 << 30).unwrap();
        }),
        ("cannot read", |image| {
            let file = fs::File::create(image.join("files.img")).unwrap();
            file.set_len(65 << 20).unwrap();
        }),
    ];
    for (expected, spoil) in cases {
        let directory = tempfile::tempdir().unwrap();
        image(directory.path());
        spoil(directory.path());
        let error = read(directory.path()).unwrap_err();
        assert_eq!(error.kind(), Kind::ImageDamaged, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn links_are_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    image(directory.path());
    fs::remove_file(directory.path().join("files.img")).unwrap();
    symlink("/etc/passwd", directory.path().join("files.img")).unwrap();
    assert_eq!(read(directory.path()).unwrap().files, []);
}
