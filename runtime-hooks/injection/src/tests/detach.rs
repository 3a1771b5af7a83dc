//! Contents are taken away from their process, and given back.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use nix::libc;
use stasis_linux::memory_file::is_sealed;
use stasis_remote_call::memory;

use super::contents::{comes_back, in_memory, suspended_in};
use super::program::{Variant, Workload};
use super::round::assert_holds_contents;
use super::state::{State, smaps, smaps_kib};
use crate::area::{in_process, make};
use crate::detach::{MapFile, map, unmap, unmap_calls};
use crate::slots::inspect;
use crate::{InjectionError, Sharing, Span, contents_of};

const BOTH: [Sharing; 2] = [Sharing::Shared, Sharing::Private];

pub(super) fn state(workload: &Workload) -> State {
    State::of(workload, &inspect(&workload.process()).unwrap())
}

/// Whether it is locked, also where no memory is mapped to be locked.
pub(super) fn is_locked(workload: &Workload, contents: Span) -> bool {
    smaps(workload, contents, "VmFlags").contains("lo")
}

/// Opens a file as an image is opened.
fn for_reading(file: &File) -> File {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

/// Takes contents away and gives them back; each step is also taken twice.
fn away_and_back(variant: Variant, sharing: Sharing) {
    let file = in_memory();
    let (workload, contents) = suspended_in(&file, variant);
    let (process, before) = (workload.process(), state(&workload));
    let mut unmapped = Vec::new();
    for _ in 0..2 {
        unmap(&process, contents).unwrap();
        unmapped.push(state(&workload));
        assert_eq!(contents_of(&process).unwrap(), []);
        assert!(!is_locked(&workload, contents));
    }
    assert_eq!(unmapped[0], unmapped[1]);
    assert_eq!(
        unmapped[0].clone().without(contents),
        before.clone().without(contents)
    );
    for _ in 0..2 {
        let from = match sharing {
            Sharing::Shared => file.try_clone().unwrap(),
            Sharing::Private => for_reading(&file),
        };
        map(&process, contents, &from, 0, sharing).unwrap();
        assert!(!is_locked(&workload, contents));
        assert_eq!(smaps_kib(&workload, contents, "Anonymous"), 0);
        // A child that it forks does not get them ("do not copy on fork").
        assert!(smaps(&workload, contents, "VmFlags").contains("dc"));
        let filled = state(&workload);
        match sharing {
            Sharing::Shared => assert_eq!(filled, before),
            Sharing::Private => {
                assert_eq!(filled.without(contents), before.clone().without(contents));
            }
        }
    }
    assert_eq!(
        contents_of(&process).unwrap().contains(&contents),
        sharing == Sharing::Shared
    );
    comes_back(workload, contents);
    assert_holds_contents(&file);
}

#[test]
fn contents_go_and_come_back() {
    for sharing in BOTH {
        away_and_back(Variant::Lazy, sharing);
    }
}

#[test]
fn of_a_program_that_locks_its_memory() {
    for sharing in BOTH {
        away_and_back(Variant::Locked, sharing);
    }
}

#[test]
fn of_a_program_that_takes_every_child() {
    for sharing in BOTH {
        away_and_back(Variant::Taker, sharing);
    }
}

#[test]
fn of_a_program_that_may_make_hardly_any_system_call() {
    for sharing in BOTH {
        away_and_back(Variant::Filtered, sharing);
    }
}

/// The kernel makes one area of the hole and its neighbours.
#[test]
fn a_hole_that_is_joined_with_its_neighbours() {
    for sharing in BOTH {
        let file = in_memory();
        let (mut workload, contents) = suspended_in(&file, Variant::Lazy);
        assert_eq!(workload.tell("guards"), 0);
        let (process, before) = (workload.process(), state(&workload));
        for _ in 0..2 {
            unmap(&process, contents).unwrap();
            let Span { start, length } = contents;
            let joined = format!("{:x}-{:x} ---p", start - 4096, start + length + 4096);
            assert!(state(&workload).has_area(&joined), "{joined}");
        }
        map(&process, contents, &file, 0, sharing).unwrap();
        assert_eq!(state(&workload).without(contents), before.without(contents));
        comes_back(workload, contents);
    }
}

/// Another process of the container could open it there.
#[test]
fn nobody_has_it_open_once_it_is_mapped() {
    let file = in_memory();
    let (workload, contents) = suspended_in(&file, Variant::Lazy);
    let process = workload.process();
    unmap(&process, contents).unwrap();
    let mapping = MapFile {
        contents,
        file: &file,
        offset: 0,
        sharing: Sharing::Shared,
    };
    in_process(&process, |proxy| {
        let inside = mapping.received(proxy)?;
        let descriptor = format!("/proc/{}/fd/{inside}", proxy.pid());
        let is_open = || std::fs::read_link(&descriptor).is_ok();
        assert!(is_open());
        make(proxy, &mapping.calls(inside)[..2])?;
        assert!(!is_open());
        make(proxy, &mapping.calls(inside)[2..])
    })
    .unwrap();
    comes_back(workload, contents);
}

/// The file begins with other bytes, and the writes of the process are its own.
#[test]
fn a_private_file_stays_as_it_is() {
    const BEFORE: u64 = 2 << 20;
    let file = in_memory();
    let (workload, contents) = suspended_in(&file, Variant::Lazy);
    let image = tempfile::tempfile().unwrap();
    let mut bytes = vec![0; usize::try_from(contents.length).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    image.write_all_at(&bytes, BEFORE).unwrap();
    let process = workload.process();
    unmap(&process, contents).unwrap();
    let read_only = for_reading(&image);
    map(&process, contents, &read_only, BEFORE, Sharing::Private).unwrap();
    memory::write(process.pid(), contents.start, b"written!").unwrap();
    let mut found = [0; 8];
    image.read_exact_at(&mut found, BEFORE).unwrap();
    assert_eq!(found, bytes[..8]);
    memory::read(process.pid(), contents.start, &mut found).unwrap();
    assert_eq!(&found, b"written!");
    memory::write(process.pid(), contents.start, &bytes[..8]).unwrap();
    comes_back(workload, contents);
}

#[test]
fn what_is_no_hole_is_not_filled_and_no_contents_are_not_taken() {
    let file = in_memory();
    let (workload, contents) = suspended_in(&file, Variant::Lazy);
    let (process, before) = (workload.process(), state(&workload));
    let Span { start, length } = contents;
    let is_refused = |result: Result<(), InjectionError>| {
        assert!(matches!(result, Err(InjectionError::Hole(_))), "{result:?}");
        assert_eq!(state(&workload), before);
    };
    for (start, length) in [
        (start, length - 4096),
        (start + 4096, length - 4096),
        (start, length + 4096),
        (start, 0),
        (start - (1 << 30), 4096),
    ] {
        is_refused(unmap(&process, Span { start, length }));
    }
    // Contents exist, and others than these.
    is_refused(map(&process, contents, &in_memory(), 0, Sharing::Shared));
    is_refused(map(&process, contents, &file, 0, Sharing::Private));
    is_refused(map(&process, contents, &file, 4096, Sharing::Shared));
    unmap(&process, contents).unwrap();
    let before = state(&workload);
    let short = tempfile::tempfile().unwrap();
    short.set_len(length - 1).unwrap();
    for (file, offset) in [(&short, 0), (&file, 8 << 20), (&file, u64::MAX)] {
        map(&process, contents, file, offset, Sharing::Shared).unwrap_err();
        assert_eq!(state(&workload), before);
    }
    map(&process, contents, &file, 0, Sharing::Shared).unwrap();
    comes_back(workload, contents);
}

/// Not sealed while the process has kept another mapping, by duplicating it.
#[test]
fn a_file_is_sealed_once_nobody_can_write_to_it() {
    let file = in_memory();
    let (workload, contents) = suspended_in(&file, Variant::Lazy);
    let process = workload.process();
    let read_only = for_reading(&file);
    drop(file);
    assert!(!is_sealed(&read_only).unwrap());
    let kept = in_process(&process, |proxy| {
        let flags = u64::from(libc::MREMAP_MAYMOVE.unsigned_abs());
        proxy.call(libc::SYS_mremap, &[contents.start, 0, 4096, flags])
    });
    unmap(&process, contents).unwrap();
    assert!(!is_sealed(&read_only).unwrap());
    let unmap = [kept.unwrap(), 4096];
    in_process(&process, |proxy| proxy.call(libc::SYS_munmap, &unmap)).unwrap();
    for _ in 0..2 {
        assert!(is_sealed(&read_only).unwrap());
        map(&process, contents, &read_only, 0, Sharing::Private).unwrap();
    }
    // The open would not succeed at once if the lease were kept.
    let writing = File::options()
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(format!("/proc/self/fd/{}", read_only.as_raw_fd()));
    assert!(!is_sealed(&read_only).unwrap());
    drop(writing.unwrap());
    assert!(is_sealed(&read_only).unwrap());
    comes_back(workload, contents);
}

/// Each file has contents; both together are not one.
#[test]
fn two_files_side_by_side_are_two() {
    let (workload, contents) = suspended_in(&in_memory(), Variant::Lazy);
    let process = workload.process();
    let beside = Span {
        start: contents.start + contents.length,
        length: 4096,
    };
    // Empty addresses, as if they had been unmapped.
    in_process(&process, |proxy| make(proxy, &unmap_calls(beside))).unwrap();
    map(
        &process,
        beside,
        &in_memory(),
        contents.length,
        Sharing::Shared,
    )
    .unwrap();
    assert_eq!(contents_of(&process).unwrap(), [contents, beside]);
    unmap(&process, beside).unwrap();
    comes_back(workload, contents);
}
