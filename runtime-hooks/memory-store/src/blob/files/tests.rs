use std::fs;

use tempfile::TempDir;

use super::*;
use crate::blob::contents::{BlobContents, encode};
use crate::blob::gather::{Gathered, Plan};
use crate::blob::split::{BlobsOf, Lengths};
use crate::blob::tests::InMemory;
use crate::blob::write_files::{refuse_other_files, write_files};
use crate::index::codec;

/// Pages of a file; every fifth is zeros.
fn pages(seed: u64, count: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; count * PAGE];
    for (number, page) in bytes.chunks_mut(PAGE).enumerate() {
        if number % 5 > 0 {
            random.fill(page);
        }
    }
    bytes
}

/// Puts all into one blob.
fn one(_: u64) -> Lengths {
    Lengths {
        least: 1 << 30,
        most: 1 << 31,
    }
}

fn listed<'a>(files: &[(&'a str, Vec<u8>)]) -> Vec<LargeFile<'a>> {
    let listed = (1..).zip(files);
    listed
        .map(|(number, (name, bytes))| LargeFile {
            number,
            name,
            bytes: bytes.len() as u64,
        })
        .collect()
}

fn gathered(
    directory: &Path,
    files: &[(&str, Vec<u8>)],
    there: &[BlobContents],
    new: &mut InMemory,
) -> Result<Gathered, StoreError> {
    for (name, bytes) in files {
        fs::write(directory.join(name), bytes).unwrap();
    }
    let (index, reader) = split_files(directory, &listed(files), 3)?;
    Plan::of(BlobsOf::Files, &index, &reader, there, one, 3)?.put(new)
}

fn moved(gathered: &Gathered) -> u64 {
    let blobs = gathered.blobs.iter();
    let new = blobs.filter(|blob| !gathered.kept.contains(&blob.digest));
    new.map(|blob| blob.bytes).sum()
}

#[test]
fn files_are_made_again_from_their_pieces() {
    let files = [
        ("pages-1.img", pages(1, 3000)),
        ("pages-2.img", pages(2, 40)),
    ];
    let [from, into] = [(); 2].map(|()| TempDir::new().unwrap());
    let mut new = InMemory::default();
    let all = gathered(from.path(), &files, &[], &mut new).unwrap();
    let pieces = all.index.areas().count();
    assert!((50..300).contains(&pieces), "{pieces} pieces");
    let stored = moved(&all);
    assert!(stored < 2500 * PAGE as u64, "{stored} bytes with zeros");
    let index = Index::decode(&all.index.encode()).unwrap();
    refuse_other_files(&index, &listed(&files)).unwrap();
    new.write_packs(into.path(), &all);
    write_files(into.path(), &index, &listed(&files), 3).unwrap();
    for (name, bytes) in &files {
        assert!(
            fs::read(into.path().join(name)).unwrap() == *bytes,
            "{name}"
        );
    }
}

/// As a second replica has the same pages at other offsets, with some of its own between them.
#[test]
fn pages_at_other_offsets_are_moved_once() {
    let first = pages(1, 4000);
    let mut second = pages(2, 7);
    second.extend(&first[..1500 * PAGE]);
    second.extend(pages(3, 61));
    second.extend(&first[1500 * PAGE..]);
    let directory = TempDir::new().unwrap();
    let mut new = InMemory::default();
    let one = gathered(directory.path(), &[("pages-1.img", first)], &[], &mut new).unwrap();
    let files = [("pages-1.img", second)];
    let two = gathered(directory.path(), &files, &one.blobs, &mut new).unwrap();
    assert_eq!(two.kept.len(), 1);
    // Its own 68 pages, and other pages of their pieces.
    let own = moved(&two) / PAGE as u64;
    assert!((50..300).contains(&own), "{own} pages");
}

#[test]
fn the_more_there_is_the_longer_are_its_pieces() {
    for (gib, kib) in [(0, 64), (16, 64), (17, 128), (64, 256), (1024, 1024)] {
        let cut = Cut::of(gib << 30);
        assert_eq!(cut.least, (kib << 10) / 4, "{gib} GiB");
        assert_eq!(cut.most, (kib << 10) * 4, "{gib} GiB");
        assert!(cut.most <= CHUNK);
    }
    assert_eq!(Cut::of(u64::MAX).most, CHUNK);
}

#[test]
fn more_than_a_registry_takes_is_refused_before_anything_is_put_into_blobs() {
    let directory = TempDir::new().unwrap();
    let files = [("pages-1.img", pages(1, 4000))];
    fs::write(directory.path().join("pages-1.img"), &files[0].1).unwrap();
    let (index, reader) = split_files(directory.path(), &listed(&files), 1).unwrap();
    let plan = |least: u64| {
        let lengths = |_| Lengths { least, most: least };
        Plan::of(BlobsOf::Files, &index, &reader, &[], lengths, 2)
    };
    let planned = plan(1 << 20).unwrap();
    let error = plan(64 << 10).unwrap_err();
    assert!(matches!(error, StoreError::TooMuch { .. }), "{error}");
    assert!(error.to_string().contains("94 blobs"), "{error}");
    let new = &mut InMemory::default();
    let (index, listed) = (codec::most_bytes(&index, 94), planned.most_listed_bytes());
    let gathered = planned.put(new).unwrap();
    assert!((gathered.index.encode().len() as u64) < index);
    assert!((encode(&gathered.blobs).len() as u64) < listed);
}

#[test]
fn a_file_that_changes_is_not_put_into_blobs() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("pages-1.img");
    let files = [("pages-1.img", pages(1, 100))];
    fs::write(&path, &files[0].1).unwrap();
    let (index, reader) = split_files(directory.path(), &listed(&files), 1).unwrap();
    let plan = || Plan::of(BlobsOf::Files, &index, &reader, &[], one, 1);
    let planned = plan().unwrap();
    fs::write(&path, pages(2, 100)).unwrap();
    let error = planned.put(&mut InMemory::default()).unwrap_err();
    assert!(matches!(error, StoreError::Chunk { .. }), "{error}");
    plan().unwrap_err();
    fs::write(&path, pages(1, 99)).unwrap();
    let error = split_files(directory.path(), &listed(&files), 1).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

/// An index for others must not have them read endless zeros, or another file.
#[test]
fn an_index_of_other_files_is_refused() {
    let directory = TempDir::new().unwrap();
    let files = [
        ("pages-1.img", pages(1, 100)),
        ("pages-2.img", pages(2, 100)),
    ];
    let mut new = InMemory::default();
    let good = gathered(directory.path(), &files, &[], &mut new)
        .unwrap()
        .index;
    refuse_other_files(&good, &listed(&files)).unwrap();
    type Change = fn(&mut Index);
    let changes: [(&str, Change); 6] = [
        ("a file less", |index| drop(index.processes.pop())),
        ("another file", |index| index.processes[1].pid = 3),
        ("in another order", |index| index.processes.swap(0, 1)),
        ("shorter", |index| drop(index.processes[0].areas.pop())),
        ("not from its beginning", |index| {
            drop(index.processes[0].areas.remove(0));
        }),
        ("a long piece", |index| {
            index.processes[0].areas.last_mut().unwrap().bytes += 1 << 40;
        }),
    ];
    for (what, change) in changes {
        let mut changed = good.clone();
        change(&mut changed);
        assert!(
            refuse_other_files(&changed, &listed(&files)).is_err(),
            "{what}"
        );
    }
}
