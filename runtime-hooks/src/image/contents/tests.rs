use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use prost::encoding::{WireType, encode_key, encode_varint};

use super::processes::State;
use super::*;
use crate::error::kind::Kind;
use crate::image::criu_file::{COMMON_MAGIC, SERVICE_MAGIC};

const PSTREE: u32 = 0x5027_3030;
const CORE: u32 = 0x5505_3847;
const IDS: u32 = 0x5443_2030;
const MM: u32 = 0x5749_2820;
const PAGEMAP: u32 = 0x5608_4025;
const FILES: u32 = 0x5630_3138;
const FDINFO: u32 = 0x5621_3732;
const MOUNTS: u32 = 0x5556_3928;
const STATS: u32 = 0x5709_3306;

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
    let first = if magic == STATS {
        SERVICE_MAGIC
    } else {
        COMMON_MAGIC
    };
    let mut file = [first, magic].map(u32::to_ne_bytes).concat();
    for Entry(bytes) in entries {
        file.extend(u32::try_from(bytes.len()).unwrap().to_ne_bytes());
        file.extend(bytes);
    }
    fs::write(image.join(name), file).unwrap();
}

fn entry() -> Entry {
    Entry::default()
}

fn process(image: &Path, pid: u64, name: &str, state: u64) {
    let task = entry().number(1, state).bytes(6, name.as_bytes());
    write(
        image,
        &format!("core-{pid}.img"),
        CORE,
        &[entry().bytes(3, &task.0)],
    );
    write(
        image,
        &format!("ids-{pid}.img"),
        IDS,
        &[entry().number(2, pid)],
    );
}

fn read(image: &Path) -> Result<Contents, ContentsError> {
    Contents::read(&Files::of(image)?)
}

fn socket(protocol: &str, state: &str, local: &str, remote: Option<&str>) -> serde_json::Value {
    serde_json::json!({
        "protocol": protocol, "state": state, "local": local, "remote": remote,
    })
}

/// A container with two processes, one of which has ended.
fn image(image: &Path) {
    let listed = [(1, 0), (9, 1), (7, 1), (8, 7)];
    let listed = listed.map(|(pid, parent)| {
        let entry = entry()
            .number(1, pid)
            .number(2, parent)
            .number(3, 1)
            .number(4, 1);
        (0..pid).fold(entry, |entry, thread| entry.number(5, thread))
    });
    write(image, "pstree.img", PSTREE, &listed);
    for (pid, name, state) in [
        (1, "init", 1),
        (7, "odd\n", 1),
        (8, "late", 3),
        (9, "gone", 2),
    ] {
        process(image, pid, name, state);
    }
    let mm = entry().number(8, 0x7010).number(9, 0x7010 + 14);
    write(image, "mm-1.img", MM, &[mm]);
    let pages = [(0x1000, 2, 4), (0x5000, 1, 1), (0x6000, 2, 4)];
    let pages = pages
        .map(|(start, pages, flags)| entry().number(1, start).number(2, pages).number(4, flags));
    let head = [entry().number(1, 3)];
    write(
        image,
        "pagemap-1.img",
        PAGEMAP,
        &head.into_iter().chain(pages).collect::<Vec<_>>(),
    );
    let mut memory = vec![0; 4 * 4096];
    memory[3 * 4096 + 16..][..14].copy_from_slice(b"init\0--all now");
    fs::write(image.join("pages-3.img"), memory).unwrap();
}

#[test]
fn processes_are_a_tree_with_names_states_and_command_lines() {
    let directory = tempfile::tempdir().unwrap();
    image(directory.path());
    let processes = read(directory.path()).unwrap().processes;
    let told = processes
        .iter()
        .map(|one| (one.pid, one.parent, one.threads, one.state));
    let expected = [
        (1, 0, 1, State::Alive),
        (9, 1, 9, State::Zombie),
        (7, 1, 7, State::Alive),
        (8, 7, 8, State::Stopped),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert_eq!(processes[0].command_line, ["init", "--all now"]);
    assert_eq!(processes[2].name, "odd\n");
    assert!(processes[1..].iter().all(|one| one.command_line.is_empty()));
}

#[test]
fn what_is_open_is_a_file_or_a_socket() {
    let directory = tempfile::tempdir().unwrap();
    image(directory.path());
    let image = directory.path();
    let [ours, theirs] = [[127, 0, 0, 1], [10, 0, 0, 2]].map(u32::from_ne_bytes);
    let tcp = entry()
        .number(3, 2)
        .number(5, 6)
        .number(6, 1)
        .number(7, 80)
        .number(8, 4000);
    let tcp = tcp.number(11, ours.into()).number(12, theirs.into());
    let listening = entry()
        .number(3, 10)
        .number(5, 6)
        .number(6, 10)
        .number(7, 443)
        .number(8, 0);
    let listening = (0..4).fold(listening, |entry, _| entry.number(11, 0));
    let unix = entry().number(4, 10).bytes(11, b"\0hidden");
    write(
        image,
        "files.img",
        FILES,
        &[
            entry()
                .number(1, 1)
                .number(2, 5)
                .bytes(3, &entry().bytes(6, b"/a\xff").0),
            entry().number(1, 4).number(2, 6).bytes(4, &tcp.0),
            entry().number(1, 4).number(2, 7).bytes(4, &listening.0),
            entry().number(1, 5).number(2, 8).bytes(16, &unix.0),
        ],
    );
    let open = [(4, 5, 1), (3, 6, 4), (5, 7, 4), (6, 8, 5), (7, 99, 2)];
    let open = open.map(|(fd, id, kind)| {
        entry()
            .number(1, id)
            .number(2, 0)
            .number(3, kind)
            .number(4, fd)
    });
    write(image, "fdinfo-1.img", FDINFO, &open);
    let processes = read(image).unwrap().processes;
    let files = serde_json::to_value(&processes[0].files).unwrap();
    let none = serde_json::Value::Null;
    let tcp = socket("tcp", "established", "127.0.0.1:80", Some("10.0.0.2:4000"));
    let expected = serde_json::json!([
        {"fd": 3, "kind": "inet", "path": none, "socket": tcp},
        {"fd": 4, "kind": "file", "path": "/a\u{fffd}", "socket": none},
        {"fd": 5, "kind": "inet", "path": none,
         "socket": socket("tcp6", "listening", "[::]:443", None)},
        {"fd": 6, "kind": "unix", "path": none,
         "socket": socket("unix", "listening", "@hidden", None)},
        {"fd": 7, "kind": "pipe", "path": none, "socket": none},
    ]);
    assert_eq!(files, expected);
}

#[test]
fn mounts_and_statistics_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path();
    let mount = |at: &str| entry().number(1, 5).bytes(6, b"/").bytes(7, at.as_bytes());
    let mounts = [
        mount("/tmp").bytes(8, b"tmpfs"),
        mount("/data")
            .bytes(8, b"/dev/sda")
            .bytes(14, b"ext4")
            .bytes(18, b"/data"),
    ];
    write(image, "mountpoints-12.img", MOUNTS, &mounts);
    let dump = entry()
        .number(1, 1500)
        .number(2, 2_000_000)
        .number(3, 3)
        .number(4, 4);
    let dump = dump.number(5, 5).number(6, 6).number(7, 7).number(9, 0);
    write(image, "stats-dump", STATS, &[entry().bytes(1, &dump.0)]);
    let contents = read(image).unwrap();
    let mounts = contents.mounts.iter();
    let mounts = mounts.map(|mount| (&*mount.mountpoint, &*mount.file_system, mount.external));
    let expected = [("/tmp", "tmpfs", false), ("/data", "ext4", true)];
    assert_eq!(mounts.collect::<Vec<_>>(), expected);
    let statistics = contents.statistics.unwrap();
    assert!(
        (statistics.frozen_seconds - 2.0).abs() < 1e-9,
        "{statistics:?}"
    );
    assert_eq!((statistics.pages_scanned, statistics.pages_written), (5, 7));
}

/// What an error says, and what makes it.
type Case = (&'static str, fn(&Path));

#[test]
fn what_criu_does_not_write_is_an_error_and_nothing_else() {
    let cases: [Case; 7] = [
        ("core-9.img: it is of no process", |image| {
            fs::remove_file(image.join("core-9.img")).unwrap();
        }),
        ("pstree.img: it ends within an entry", |image| {
            let file = image.join("pstree.img");
            let bytes = fs::read(&file).unwrap();
            fs::write(file, &bytes[..bytes.len() - 1]).unwrap();
        }),
        ("core-1.img: it has the magic 0x0, not", |image| {
            fs::write(image.join("core-1.img"), [0; 64]).unwrap();
        }),
        ("has more processes than", |image| {
            let many: Vec<Entry> = (0..=1 << 14).map(|_| entry().number(1, 1)).collect();
            write(image, "pstree.img", PSTREE, &many);
        }),
        ("has more bytes of CRIU's records than", |image| {
            let file = fs::File::create(image.join("files.img")).unwrap();
            file.set_len(2 << 30).unwrap();
        }),
        ("cannot read", |image| {
            fs::write(image.join("pages-3.img"), [0; 4096]).unwrap();
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
    fs::remove_file(directory.path().join("mm-1.img")).unwrap();
    symlink("/etc/passwd", directory.path().join("mm-1.img")).unwrap();
    let contents = read(directory.path()).unwrap();
    assert!(contents.processes[0].command_line.is_empty());
}

#[test]
fn processes_that_are_each_others_parents_are_shown_once() {
    let directory = tempfile::tempdir().unwrap();
    let listed = [(2, 3), (3, 2), (4, 4)];
    let listed = listed.map(|(pid, parent)| entry().number(1, pid).number(2, parent));
    write(directory.path(), "pstree.img", PSTREE, &listed);
    for pid in [2, 3, 4] {
        process(directory.path(), pid, "round", 1);
    }
    let processes = read(directory.path()).unwrap().processes.into_iter();
    assert_eq!(processes.map(|one| one.pid).collect::<Vec<_>>(), [4, 3, 2]);
}
