use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::cgroup::tests::left_out::say_left_out;

use super::*;

const SOON: Duration = Duration::from_secs(60);
const A_WHILE: Duration = Duration::from_millis(100);

/// Writes as the kernel changes its files: in place, never seen empty.
fn overwrite(directory: &Path, name: &str, content: &str) {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(directory.join(name))
        .unwrap();
    file.write_all(content.as_bytes()).unwrap();
}

fn set_kills(directory: &Path, kills: u64) {
    let content = format!("low 0\nhigh 0\nmax 7\noom 3\noom_kill {kills}\noom_group_kill 0\n");
    overwrite(directory, "memory.events", &content);
}

fn set_populated(directory: &Path, populated: u64) {
    let content = format!("populated {populated}\nfrozen 0\n");
    overwrite(directory, "cgroup.events", &content);
}

fn v2_with_a_process() -> (tempfile::TempDir, Cgroup) {
    let directory = tempfile::tempdir().unwrap();
    set_kills(directory.path(), 0);
    set_populated(directory.path(), 1);
    let cgroup = Cgroup::V2(directory.path().to_owned());
    (directory, cgroup)
}

async fn next(watch: &mut OomWatch) -> io::Result<Option<()>> {
    timeout(SOON, watch.next()).await.expect("no notice")
}

async fn is_quiet(watch: &mut OomWatch) -> bool {
    timeout(A_WHILE, watch.next()).await.is_err()
}

#[tokio::test]
async fn v2_tells_of_each_growth_of_oom_kill() {
    let (directory, cgroup) = v2_with_a_process();
    let mut watch = OomWatch::start(&cgroup).unwrap();
    assert!(is_quiet(&mut watch).await);

    set_kills(directory.path(), 1);
    assert_eq!(next(&mut watch).await.unwrap(), Some(()));
    assert!(is_quiet(&mut watch).await);

    // Reclaim at the limit changes the file, too.
    overwrite(directory.path(), "memory.events", "low 0\nhigh 0\nmax 9\n");
    assert!(is_quiet(&mut watch).await);

    set_kills(directory.path(), 2);
    set_kills(directory.path(), 5);
    assert_eq!(next(&mut watch).await.unwrap(), Some(()));
    assert!(is_quiet(&mut watch).await);
}

#[tokio::test]
async fn v2_tells_of_a_kill_while_waiting() {
    let (directory, cgroup) = v2_with_a_process();
    let mut watch = OomWatch::start(&cgroup).unwrap();
    let later = async {
        tokio::time::sleep(A_WHILE).await;
        set_kills(directory.path(), 1);
    };
    let (notice, ()) = tokio::join!(next(&mut watch), later);
    assert_eq!(notice.unwrap(), Some(()));
}

#[tokio::test]
async fn v2_tells_of_a_kill_from_before_the_watch() {
    let (directory, cgroup) = v2_with_a_process();
    set_kills(directory.path(), 1);
    let mut watch = OomWatch::start(&cgroup).unwrap();
    assert_eq!(next(&mut watch).await.unwrap(), Some(()));
    assert!(is_quiet(&mut watch).await);
}

#[tokio::test]
async fn v2_tells_of_the_kill_that_emptied_the_cgroup_and_then_ends() {
    let (directory, cgroup) = v2_with_a_process();
    let mut watch = OomWatch::start(&cgroup).unwrap();
    set_kills(directory.path(), 1);
    set_populated(directory.path(), 0);
    assert_eq!(next(&mut watch).await.unwrap(), Some(()));
    assert_eq!(next(&mut watch).await.unwrap(), None);
    assert_eq!(next(&mut watch).await.unwrap(), None);
}

#[tokio::test]
async fn v2_sees_at_a_look_what_it_has_not_told() {
    let (directory, cgroup) = v2_with_a_process();
    let mut watch = OomWatch::start(&cgroup).unwrap();
    assert!(!watch.look().unwrap());

    set_kills(directory.path(), 1);
    set_populated(directory.path(), 0);
    assert!(watch.look().unwrap());
    assert!(!watch.look().unwrap());
}

#[tokio::test]
async fn v2_ends_when_the_directory_is_gone() {
    let (directory, cgroup) = v2_with_a_process();
    let mut watch = OomWatch::start(&cgroup).unwrap();
    assert!(is_quiet(&mut watch).await);
    directory.close().unwrap();
    assert_eq!(next(&mut watch).await.unwrap(), None);
}

#[tokio::test]
async fn a_missing_file_is_named_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let v1 = BTreeMap::from([("memory".to_owned(), directory.path().to_owned())]);
    for (cgroup, name) in [
        (Cgroup::V2(directory.path().to_owned()), "memory.events"),
        (Cgroup::V1(v1), "memory.oom_control"),
        (Cgroup::V1(BTreeMap::new()), "memory controller"),
    ] {
        let error = OomWatch::start(&cgroup).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn v1_is_over_when_the_directory_is_gone() {
    for (notices, exists, expected) in [
        (1, true, V1Notice::Oom),
        (3, true, V1Notice::Oom),
        (1, false, V1Notice::Removed),
        (2, false, V1Notice::LastOom),
    ] {
        assert_eq!(classify_v1(notices, exists), expected, "{notices} {exists}");
    }
}

/// A memory cgroup of 8 MiB below that of the test; `None` where one cannot be made.
fn small_v1_cgroup(name: &str) -> Option<Cgroup> {
    let own = Cgroup::of_process(std::process::id()).ok()?;
    let Cgroup::V1(directories) = &own else {
        return None;
    };
    let directory = directories
        .get("memory")?
        .join(format!("{name}-{}", std::process::id()));
    fs::create_dir(&directory).ok()?;
    fs::write(directory.join("memory.limit_in_bytes"), "8388608").unwrap();
    // Not there without swap accounting.
    let _ = fs::write(directory.join("memory.memsw.limit_in_bytes"), "8388608");
    Some(Cgroup::V1(BTreeMap::from([("memory".into(), directory)])))
}

/// A process that enters the cgroup and then wants 64 MiB.
fn run_out_of_memory(directory: &Path) {
    let hog = "echo $$ > \"$0/cgroup.procs\" && exec dd if=/dev/zero of=/dev/null bs=64M count=1";
    let status = Command::new("sh")
        .args(["-c", hog])
        .arg(directory)
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success(), "the kernel did not stop the hog");
}

#[tokio::test]
async fn v1_tells_of_a_real_kill_and_of_the_removal() {
    let Some(cgroup) = small_v1_cgroup("stasis-oom") else {
        say_left_out("kills of version 1", "no memory cgroup of v1 can be made").unwrap();
        return;
    };
    let directory = cgroup.path_of("memory").unwrap().to_owned();
    let mut watch = OomWatch::start(&cgroup).unwrap();
    assert!(is_quiet(&mut watch).await);

    for _ in 0..2 {
        run_out_of_memory(&directory);
        assert_eq!(next(&mut watch).await.unwrap(), Some(()));
        assert!(is_quiet(&mut watch).await);
    }
    run_out_of_memory(&directory);
    assert!(watch.look().unwrap());
    assert!(!watch.look().unwrap());

    fs::remove_dir(&directory).unwrap();
    assert_eq!(next(&mut watch).await.unwrap(), None);
    assert_eq!(next(&mut watch).await.unwrap(), None);
}

/// Returns how many notices of version 1 are unread (proc_pid_fdinfo(5)).
fn unread(watch: &OomWatch) -> u64 {
    let Source::V1 { eventfd, .. } = &watch.source else {
        panic!("it is of version 2");
    };
    let info = format!("/proc/self/fdinfo/{}", eventfd.as_raw_fd());
    let info = fs::read_to_string(info).unwrap();
    let count = info
        .lines()
        .find_map(|line| line.strip_prefix("eventfd-count:"));
    u64::from_str_radix(count.unwrap().trim(), 16).unwrap()
}

#[tokio::test]
async fn v1_tells_of_a_kill_read_after_the_removal() {
    let Some(cgroup) = small_v1_cgroup("stasis-oom-late") else {
        say_left_out("kills of version 1", "no memory cgroup of v1 can be made").unwrap();
        return;
    };
    let directory = cgroup.path_of("memory").unwrap().to_owned();
    let mut watch = OomWatch::start(&cgroup).unwrap();
    run_out_of_memory(&directory);
    let of_kills = unread(&watch);
    fs::remove_dir(&directory).unwrap();
    // The notice of the removal comes from a worker of the kernel, some time after it.
    let given_up = Instant::now() + SOON;
    while unread(&watch) == of_kills {
        assert!(Instant::now() < given_up, "no notice of the removal");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(next(&mut watch).await.unwrap(), Some(()));
    assert_eq!(next(&mut watch).await.unwrap(), None);
}
