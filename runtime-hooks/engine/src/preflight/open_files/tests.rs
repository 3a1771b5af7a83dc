use super::*;

const MAPS: &str = "\
7f0000000000-7f0000001000 r--p 00000000 fe:00 1234                       /usr/lib/libcuda.so.580.1
7f0000001000-7f0000002000 rw-s 00000000 00:06 99                         /dev/gdrdrv (deleted)
7f0000002000-7f0000003000 rw-s 08000000 00:0f 12                         anon_inode:[io_uring]
7f0000003000-7f0000004000 rw-s 08000000 00:0f 12                         anon_inode:[io_uring]
7f0000004000-7f0000005000 rw-p 00000000 00:00 0 
7f0000005000-7f0000006000 r--p 00000000 fe:00 1235                       /tmp/a b/libc.so
";

/// Returns the files of a process with these mappings.
fn holds_of(maps: &str) -> OpenFiles {
    let mut holds = OpenFiles::default();
    let mappings = maps.lines().map(|line| Mapping::parse(line.as_bytes()));
    mappings.for_each(|mapping| {
        let mapping = mapping.unwrap();
        holds.add_mapping(mapping, &String::from_utf8_lossy(mapping.path));
    });
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

/// A check of all files for each one would not end with these, and paths of a page each would take
/// gigabytes.
#[test]
fn a_process_may_hold_a_million_files() {
    let mut holds = OpenFiles::default();
    let long = "x".repeat(4000);
    for number in 0..1_000_000 {
        let path = format!("/dev/shm/nccl-{number}{long}");
        holds.add(&path, How::Descriptor(number));
    }
    holds.add("/dev/gdrdrv", How::Descriptor(1_000_000));
    assert_eq!(holds.files.len(), MOST_OF_A_BEGINNING + 1);
    assert!(holds.find(|path| path == "/dev/gdrdrv").is_some());
}

/// As many descriptors as the limit allows, in a process that was started for it: a million, where
/// the limit of the caller allows that.
#[test]
fn a_process_with_all_the_descriptors_it_may_have_is_read() {
    let holder = Holder::start();
    let process = ProcessRef::open(holder.pid()).unwrap().unwrap();
    let held = OpenFiles::read(&process, Some("/dev/null".to_owned())).unwrap();
    let of_null = held.files.iter().filter(|file| file.path == "/dev/null");
    assert_eq!(of_null.count(), 1);
    let count = stasis_linux::procfs::descriptors(holder.pid())
        .unwrap()
        .count();
    assert_eq!(count as u64, holder.limit);
}

/// A process that does nothing but hold them, until its standard input ends.
struct Holder {
    child: std::process::Child,
    limit: u64,
}

impl Holder {
    fn start() -> Self {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", HOLDER])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let mut limits =
            lines.filter_map(|line| line.unwrap().strip_prefix("holds ")?.parse().ok());
        let limit = limits.next().unwrap();
        Self { child, limit }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const HOLDER: &str = "preflight::open_files::tests::holds_all_the_descriptors_it_may";

/// Started by [`Holder`].
#[test]
#[ignore = "it is a program for another test"]
fn holds_all_the_descriptors_it_may() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let null = File::open("/dev/null").unwrap();
    let mut held = Vec::new();
    let full = loop {
        match null.try_clone() {
            Ok(file) => held.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(
        full.raw_os_error(),
        Some(rustix::io::Errno::MFILE.raw_os_error())
    );
    println!("\nholds {}", most.unwrap());
    let _ = std::io::stdin().read(&mut [0]);
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
    assert_eq!(holds.sockets, BTreeMap::from([(4711, 9)]));
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
