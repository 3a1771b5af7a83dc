use super::*;

const MOST: u64 = 1 << 20;

fn unpacked(archive: &[u8]) -> io::Result<tempfile::TempDir> {
    let into = tempfile::tempdir()?;
    unpack(archive, into.path(), MOST).map(|()| into)
}

/// A tar of these entries, whatever their names.
fn tar(entries: &[(EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (kind, name, contents) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(contents.len() as u64);
        header.set_cksum();
        tar.append(&header, *contents).unwrap();
    }
    tar.into_inner().unwrap()
}

fn all(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for (name, what) in sorted(directory).unwrap() {
        if what == What::Directory {
            let inner = all(&directory.join(&name));
            names.extend(inner.into_iter().map(|inner| format!("{name}/{inner}")));
        }
        names.push(name);
    }
    names.sort_unstable();
    names
}

#[test]
fn what_was_packed_is_unpacked() {
    let from = tempfile::tempdir().unwrap();
    let long = "a".repeat(200);
    fs::create_dir_all(from.path().join("checkpoint/empty")).unwrap();
    for (name, contents) in [
        ("config.dump", "{}"),
        ("checkpoint/core-1.img", "core"),
        ("left", "out"),
        (&long, ""),
    ] {
        fs::write(from.path().join(name), contents).unwrap();
    }
    for compression in [Compression::None, Compression::Zstd] {
        let mut archive = Vec::new();
        pack(
            from.path(),
            |name| name != "left",
            compression,
            &mut archive,
        )
        .unwrap();
        let into = unpacked(&archive).unwrap();
        let expected = [
            &long,
            "checkpoint",
            "checkpoint/core-1.img",
            "checkpoint/empty",
            "config.dump",
        ];
        assert_eq!(all(into.path()), expected);
        let core = fs::read(into.path().join("checkpoint/core-1.img")).unwrap();
        assert_eq!(core, b"core");
    }
}

#[test]
fn a_bomb_is_not_unpacked() {
    let mut bomb = Vec::new();
    compress(io::repeat(0).take(MOST + 1), &mut bomb).unwrap();
    let mut into = Vec::new();
    decompress(bomb.as_slice(), &mut into, MOST + 1).unwrap();
    assert_eq!(into.len() as u64, MOST + 1);
    for (bytes, most) in [(&bomb[..], MOST), (&b"rubbish"[..], MOST)] {
        let error = decompress(bytes, io::sink(), most).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }
}

/// Go's archive/tar, in which engines are written, puts long names and lengths beyond 8 GiB into
/// records of pax before an entry.
#[test]
fn what_is_said_before_an_entry_counts() {
    let long = "b".repeat(150);
    let path = format!("{} path={long}\n", 5 + path_length(&long));
    let size = b"10 size=4\n";
    let records = [path.as_bytes(), size].concat();
    let mut archive = tar(&[
        (EntryType::XGlobalHeader, "global", b"9 a=bcde\n"),
        (EntryType::XHeader, "pax", &records),
    ]);
    archive.truncate(archive.len() - 1024);
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.as_old_mut().name[..1].copy_from_slice(b"b");
    header.set_size(0);
    header.set_cksum();
    archive.extend(header.as_bytes());
    archive.extend(b"four");
    archive.resize(archive.len().next_multiple_of(512) + 1024, 0);
    let into = unpacked(&archive).unwrap();
    assert_eq!(fs::read(into.path().join(long)).unwrap(), b"four");
}

/// The length of a record with three digits, without five bytes that the caller adds.
fn path_length(value: &str) -> usize {
    "path=\n".len() + value.len() - 1
}

/// Archives that are refused, by the reason.
fn refused_ones() -> Vec<(&'static str, Vec<u8>)> {
    use EntryType as Kind;
    let one = |kind, name: &str, contents: &[u8]| tar(&[(kind, name, contents)]);
    let file = |name: &'static str| (Kind::Regular, name, &b""[..]);
    let core = one(Kind::Regular, "a", b"core");
    let mut lying = core.clone();
    lying[124..136].copy_from_slice(b"77777777777\0");
    let mut sized = Header::new_gnu();
    sized.set_size(u64::MAX);
    let large = vec![0; 1 + usize::try_from(MOST).unwrap()];
    vec![
        ("up", one(Kind::Regular, "a/../../b", b"")),
        ("absolute", one(Kind::Regular, "/etc/passwd", b"")),
        ("link", one(Kind::Symlink, "checkpoint", b"")),
        ("hard link", one(Kind::Link, "a", b"")),
        ("device", one(Kind::Char, "a", b"")),
        ("pipe", one(Kind::Fifo, "a", b"")),
        ("twice", tar(&[file("a"), file("./a")])),
        ("below a file", tar(&[file("a"), file("a/b")])),
        ("deep", one(Kind::Directory, &"a/".repeat(40), b"")),
        ("no name", one(Kind::Regular, "./", b"")),
        ("holes", one(Kind::XHeader, "p", b"22 GNU.sparse.major=1\n")),
        ("no length", one(Kind::XHeader, "p", b"10 size=x\n")),
        ("long", one(Kind::XHeader, "p", &vec![b' '; 2 << 20])),
        ("checksum", lying),
        ("large", one(Kind::Regular, "a", &large)),
        ("cut off", core[..514].to_vec()),
        ("no end", core[..1024].to_vec()),
        ("gzip", vec![0x1f, 0x8b, 8, 0]),
        ("no zstd", [&ZSTD[..], b"rubbish"].concat()),
        ("nothing", Vec::new()),
        ("text", b"rubbish".repeat(100)),
        ("no possible length", sized.as_bytes().to_vec()),
    ]
}

#[test]
fn nothing_but_files_and_directories_below_it_comes_out() {
    let good = [
        (EntryType::Directory, "./", &b""[..]),
        (EntryType::Regular, "./checkpoint/core-1.img", b"core"),
    ];
    unpacked(&tar(&good)).unwrap();
    for (what, archive) in refused_ones() {
        let error = unpacked(&archive).unwrap_err();
        let known = [
            io::ErrorKind::InvalidData,
            io::ErrorKind::NotADirectory,
            io::ErrorKind::AlreadyExists,
        ];
        assert!(known.contains(&error.kind()), "{what}: {error}");
    }
}
