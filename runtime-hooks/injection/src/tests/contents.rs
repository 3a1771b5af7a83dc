//! Contents in a file of ours are found, and become ordinary memory.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::thread;
use std::time::{Duration, Instant};

use stasis_linux::file_system::detached::DetachedMount;
use stasis_linux::memory_file::{self, is_sealed};

use super::program::{Variant, Workload};
use super::round::{BYTES, armed, assert_holds_contents, out_into, returned};
use super::state::{State, smaps_kib};
use crate::area::in_process;
use crate::detach::{map, unmap};
use crate::private::memory_beside;
use crate::slots::inspect;
use crate::{
    InjectionError, Sharing, Span, Transfer, contents_of, file_of, make_private, own_files_of,
};

pub(super) const THREADS: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// Makes a file as for contents.
pub(super) fn in_memory() -> File {
    memory_file::create(BYTES + (3 << 20)).unwrap()
}

/// Checkpoints a program into a file that no other process has any more.
fn suspended(variant: Variant) -> (Workload, Span) {
    suspended_in(&in_memory(), variant)
}

pub(super) fn suspended_in(file: &File, variant: Variant) -> (Workload, Span) {
    let mut workload = Workload::start(super::round::PIECES, variant);
    assert_eq!(contents_of(&workload.process()).unwrap(), []);
    let out = armed(&workload, out_into(file));
    assert_eq!(workload.tell("out"), 0);
    let contents = returned(out.disarm().unwrap()).contents.unwrap();
    assert_holds_contents(file);
    (workload, contents)
}

pub(super) fn comes_back(mut workload: Workload, contents: Span) {
    let into = armed(&workload, Transfer::In { contents });
    assert_eq!(workload.tell("in"), 0);
    assert_eq!(returned(into.disarm().unwrap()).reported.copied, BYTES);
    assert_eq!(workload.tell("wrong"), 0);
    assert_eq!(contents_of(&workload.process()).unwrap(), []);
}

#[test]
fn contents_are_found_without_a_record() {
    let (workload, contents) = suspended(Variant::Lazy);
    assert_eq!(contents_of(&workload.process()).unwrap(), [contents]);
    comes_back(workload, contents);
}

#[test]
fn contents_in_pieces_are_one() {
    let (mut workload, contents) = suspended(Variant::Lazy);
    // One page of the mapping differs from the rest.
    assert_eq!(workload.tell("lock"), 0);
    assert_eq!(contents_of(&workload.process()).unwrap(), [contents]);
    comes_back(workload, contents);
}

#[test]
fn they_become_memory_of_the_process() {
    for variant in [Variant::Lazy, Variant::Taker, Variant::Locked] {
        let (workload, contents) = suspended(variant);
        let process = workload.process();
        let slots = inspect(&process).unwrap();
        let before = State::of(&workload, &slots);
        make_private(&process, contents, THREADS).unwrap();
        assert_eq!(contents_of(&process).unwrap(), []);
        let after = State::of(&workload, &slots);
        assert_eq!(after.without(contents), before.without(contents));
        comes_back(workload, contents);
    }
}

/// Memory is not needed before the copy, also where all memory is locked.
#[test]
fn memory_for_them_has_no_pages_at_first() {
    let (workload, contents) = suspended(Variant::Locked);
    let process = workload.process();
    let beside = in_process(&process, |proxy| memory_beside(proxy, contents.length)).unwrap();
    assert_eq!(beside.start % (2 << 20), 0);
    for field in ["Rss", "Locked"] {
        assert_eq!(smaps_kib(&workload, beside, field), 0, "{field}");
    }
    comes_back(workload, contents);
}

/// The memory made for them is unmapped again.
#[test]
fn contents_that_cannot_be_read_are_left_as_they_are() {
    let file = in_memory();
    let (workload, contents) = suspended_in(&file, Variant::Lazy);
    let process = workload.process();
    let slots = inspect(&process).unwrap();
    let before = State::of(&workload, &slots);
    file.set_len(BYTES / 2).unwrap();
    let error = make_private(&process, contents, THREADS).unwrap_err();
    assert!(matches!(error, InjectionError::Private(_)), "{error}");
    assert_eq!(State::of(&workload, &slots), before);
    assert_eq!(contents_of(&process).unwrap(), [contents]);
}

#[test]
fn what_is_not_there_is_left_as_it_is() {
    let (workload, contents) = suspended(Variant::Lazy);
    let process = workload.process();
    let slots = inspect(&process).unwrap();
    let before = State::of(&workload, &slots);
    let Span { start, length } = contents;
    for (start, length) in [
        (start, 1 << 45),
        (start, length - 4096),
        (start + 4096, length - 4096),
        (slots.memcpy.address / 4096 * 4096, 4096),
    ] {
        let error = make_private(&process, Span { start, length }, THREADS).unwrap_err();
        assert!(matches!(error, InjectionError::Private(_)), "{error}");
        assert_eq!(State::of(&workload, &slots), before);
    }
    comes_back(workload, contents);
}

/// A container can give a file the name of ours, and map it.
#[test]
fn a_file_of_such_a_name_alone_is_not_ours() {
    let file = in_memory();
    let (workload, contents) = suspended_in(&file, Variant::Lazy);
    let process = workload.process();
    rustix::fs::fremovexattr(&file, "trusted.stasis").unwrap();
    assert_eq!(contents_of(&process).unwrap(), []);
    assert!(file_of(&process, contents).is_err());
    assert!(make_private(&process, contents, THREADS).is_err());
    memory_file::mark(&file).unwrap();
    comes_back(workload, contents);
}

/// A pack of the store: it cannot be changed once it is an image, and it is still found.
#[test]
fn contents_in_a_pack_come_back_private() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("stasis-memory-1-0.pack");
    let pack = File::create_new(&path).unwrap();
    pack.set_len(BYTES + (3 << 20)).unwrap();
    drop(pack);
    let mut options = File::options();
    let pack = options.read(true).write(true).open(&path).unwrap();
    let (workload, contents) = suspended_in(&pack, Variant::Lazy);
    drop(pack);
    let process = workload.process();
    let found = file_of(&process, contents).unwrap();
    assert_eq!((found.offset, found.sharing), (0, Sharing::Private));
    assert!(
        !is_sealed(&found.file).unwrap(),
        "the process can write to it"
    );
    unmap(&process, contents).unwrap();
    becomes_sealed(&found.file);
    map(&process, contents, &found.file, 0, found.sharing).unwrap();
    becomes_sealed(&found.file);
    drop(directory);
    // The image may be removed.
    assert_eq!(contents_of(&process).unwrap(), [contents]);
    assert_eq!(
        file_of(&process, contents).unwrap().sharing,
        Sharing::Private
    );
    comes_back(workload, contents);
    assert_holds_contents(&found.file);
}

/// A child that another test forks has our descriptors until it is another program.
fn becomes_sealed(file: &File) {
    let began = Instant::now();
    while !is_sealed(file).unwrap() {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "a process can write to it"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Freeing a file's memory takes it from no other process.
#[test]
fn only_a_file_without_a_name_that_we_have_marked_is_its_own() {
    let file = in_memory();
    let (workload, contents) = suspended_in(&file, Variant::Lazy);
    let process = workload.process();
    let inodes = || {
        let own = own_files_of(&process).unwrap();
        let inode = |file: &File| file.metadata().unwrap().ino();
        own.iter().map(inode).collect::<Vec<_>>()
    };
    assert_eq!(inodes(), [file.metadata().unwrap().ino()]);
    rustix::fs::fremovexattr(&file, "trusted.stasis").unwrap();
    assert!(inodes().is_empty());
    memory_file::mark(&file).unwrap();
    // In `/proc/PID/maps` it looks like a file that has lost this name.
    let others = tempfile::tempdir_in("/dev/shm").unwrap();
    let name = "stasis-gpu-contents (deleted)";
    let named = File::create_new(others.path().join(name)).unwrap();
    named.set_len(contents.length).unwrap();
    let mount = DetachedMount::of(others.path()).unwrap();
    let named = mount.open_to_write(name.as_ref()).unwrap();
    unmap(&process, contents).unwrap();
    map(&process, contents, &named, 0, Sharing::Shared).unwrap();
    assert_eq!(contents_of(&process).unwrap(), [contents]);
    assert!(inodes().is_empty());
    unmap(&process, contents).unwrap();
    map(&process, contents, &file, 0, Sharing::Shared).unwrap();
    comes_back(workload, contents);
    assert!(inodes().is_empty());
}

/// The driver restores before anything is loaded, and has all of it in the end.
#[test]
fn contents_are_copied_as_they_are_loaded() {
    let (mut workload, contents) = suspended(Variant::Lazy);
    let process = workload.process();
    let from = file_of(&process, contents).unwrap();
    let mut bytes = vec![0; usize::try_from(BYTES).unwrap()];
    from.file.read_exact_at(&mut bytes, from.offset).unwrap();
    let nothing = vec![0; bytes.len()];
    from.file.write_all_at(&nothing, from.offset).unwrap();
    let into = armed(&workload, Transfer::Arriving { contents });
    thread::scope(|scope| {
        let loads = scope.spawn(|| {
            for (index, piece) in bytes.chunks(3 << 20).enumerate() {
                let at = (index * (3 << 20)) as u64;
                assert!(into.reported().unwrap().copied <= at);
                from.file.write_all_at(piece, from.offset + at).unwrap();
                let missing = BYTES - at - piece.len() as u64;
                into.loaded(missing).unwrap();
            }
        });
        assert_eq!(workload.tell("in"), 0);
        loads.join().unwrap();
    });
    assert_eq!(returned(into.disarm().unwrap()).reported.copied, BYTES);
    assert_eq!(workload.tell("wrong"), 0);
}

/// The process that reports loaded contents is gone: no thread waits for ever.
#[test]
fn who_waits_is_let_go_when_the_process_is_put_back() {
    let (mut workload, contents) = suspended(Variant::Lazy);
    let process = workload.process();
    let into = armed(&workload, Transfer::Arriving { contents });
    thread::scope(|scope| {
        let put_back = scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            into.disarm()
        });
        assert_eq!(workload.tell("in"), 0);
        drop(put_back.join().unwrap().unwrap());
    });
    assert_eq!(workload.tell("wrong"), 0);
    assert_eq!(contents_of(&process).unwrap(), []);
}
