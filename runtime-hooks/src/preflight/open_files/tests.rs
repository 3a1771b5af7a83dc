use super::*;

const MAPS: &str = "\
7f0000000000-7f0000001000 r--p 00000000 fe:00 1234                       /usr/lib/libcuda.so.580.1
7f0000001000-7f0000002000 rw-s 00000000 00:06 99                         /dev/gdrdrv (deleted)
7f0000002000-7f0000003000 rw-s 08000000 00:0f 12                         anon_inode:[io_uring]
7f0000003000-7f0000004000 rw-s 08000000 00:0f 12                         anon_inode:[io_uring]
7f0000004000-7f0000005000 rw-p 00000000 00:00 0 
7f0000005000-7f0000006000 r--p 00000000 fe:00 1235                       /tmp/a b/libc.so
";

/// What a process with these mappings holds.
fn holds_of(maps: &str) -> OpenFiles {
    let mut holds = OpenFiles::default();
    let mappings = maps.lines().map(|line| Mapping::parse(line.as_bytes()));
    mappings.for_each(|mapping| holds.add_mapping(mapping.unwrap()));
    holds
}

#[test]
fn mappings_of_interest_are_found_once_each() {
    let holds = holds_of(MAPS);
    assert!(holds.libcuda);
    let paths: Vec<&str> = holds.files.iter().map(|hold| hold.path.as_str()).collect();
    assert_eq!(paths, ["/dev/gdrdrv (deleted)", "anon_inode:[io_uring]"]);
    assert_eq!(
        holds.files[1].to_string(),
        "\"anon_inode:[io_uring]\" is mapped"
    );
}

/// What looks through all files for each one does not come to an end with these.
#[test]
fn a_process_may_hold_a_hundred_thousand_files() {
    let mut holds = OpenFiles::default();
    for number in 0..100_000 {
        holds.add("/dev/shm/nccl-x", How::Descriptor(number));
        holds.add(&format!("/dev/shm/nccl-{number}"), How::Mapping);
    }
    assert_eq!(holds.files.len(), 200_000);
}

#[test]
fn managed_memory_is_told_from_the_drivers_own_window() {
    let at = |start: &str| {
        let line = format!("{start}-7fffffffffff rw-s {start} 00:06 9   /dev/nvidia-uvm\n");
        holds_of(&line).managed_memory
    };
    assert_eq!(at("204a00000"), None);
    assert_eq!(at("7f3fd2000000"), Some(0x7f3f_d200_0000));
}

#[test]
fn a_descriptor_is_named_and_quoted() {
    let mut holds = OpenFiles::default();
    holds.add("/dev/infiniband/uverbs0\x1b[2J", How::Descriptor(7));
    holds.add("/dev/null", How::Descriptor(8));
    holds.add("socket:[4711]", How::Descriptor(9));
    assert_eq!(holds.files.len(), 1);
    assert_eq!(holds.sockets, BTreeSet::from([4711]));
    let text = holds.files[0].to_string();
    assert_eq!(
        text,
        "descriptor 7 is \"/dev/infiniband/uverbs0\\u{1b}[2J\""
    );
}

#[test]
fn this_process_has_an_environment_and_threads() {
    let pid = i32::try_from(std::process::id()).unwrap();
    let process = ProcessRef::open(pid).unwrap().unwrap();
    let environment = Environment::read(&process).unwrap();
    assert!(!environment.is_overwritten());
    assert!(environment.get("PATH").is_some());
    assert!(!threads_named(&process, "").unwrap().is_empty());
    assert!(threads_named(&process, "NCCL ").unwrap().is_empty());
    assert!(!OpenFiles::read(&process, None).unwrap().libcuda);
}

#[test]
fn an_environment_that_a_title_has_overwritten_is_seen() {
    assert!(Environment::of(b"rank 3\0\0\0\0\0\0").is_overwritten());
    assert!(Environment::of(b"\0\0\0").is_overwritten());
    assert!(!Environment::of(b"").is_overwritten());
    let environment = Environment::of(b"A=1\0B=2=3\0A=4\0");
    assert!(!environment.is_overwritten());
    assert_eq!(environment.get("A"), Some("1"));
    assert_eq!(environment.get("B"), Some("2=3"));
    assert_eq!(environment.get("C"), None);
}
