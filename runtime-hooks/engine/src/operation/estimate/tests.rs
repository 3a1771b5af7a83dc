use std::fs::File;
use std::time::Duration;

use super::observed::Status;
use super::*;
use crate::fake_driver::FakeDriver;

/// A status file with the values that a test wants: this process's own memory varies.
fn fake(directory: &Path, name: &str) -> (std::path::PathBuf, Status) {
    let path = directory.join(name);
    write_status(&path, 0);
    let file = File::open(&path).unwrap();
    (path, Status(file))
}

fn write_status(path: &Path, anonymous: u64) {
    fs::write(path, format!("Name:\tx\nRssAnon:\t{anonymous} kB\n")).unwrap();
}

fn reading(done: u64, total: Option<u64>) -> Reading {
    let done = Some(done);
    Reading { done, total }
}

#[test]
fn growth_and_shrinkage_of_all_processes_count() {
    let directory = tempfile::tempdir().unwrap();
    let (one, first) = fake(directory.path(), "1");
    let (two, second) = fake(directory.path(), "2");
    write_status(&one, 100);
    let driver = FakeDriver::default();
    let mut filling = ProgressEstimate::new(
        Some(20 << 10),
        Source::Filling(Observed {
            statuses: vec![first, second],
            driver: &driver,
        }),
    );
    assert_eq!(filling.gpu_bytes(), Some(20 << 10));
    filling.start();
    assert_eq!(filling.read(), reading(0, Some(20 << 10)));
    write_status(&one, 107);
    write_status(&two, 6);
    assert_eq!(filling.read(), reading(13 << 10, Some(20 << 10)));
    write_status(&two, 600);
    assert_eq!(
        filling.read(),
        reading(20 << 10, Some(20 << 10)),
        "more than all"
    );
    write_status(&one, 0);
    write_status(&two, 0);
    assert_eq!(filling.read(), reading(0, Some(20 << 10)));

    let (one, first) = fake(directory.path(), "1");
    write_status(&one, 100);
    let mut emptying = ProgressEstimate::new(
        None,
        Source::Emptying(Observed {
            statuses: vec![first],
            driver: &driver,
        }),
    );
    emptying.start();
    write_status(&one, 30);
    assert_eq!(emptying.read(), reading(70 << 10, None));
    write_status(&one, 130);
    assert_eq!(emptying.read(), reading(0, None));
}

#[test]
fn a_live_process_has_memory() {
    let pid = i32::try_from(std::process::id()).unwrap();
    let own = ProcessRef::open(pid).unwrap().unwrap();
    let driver = FakeDriver::default();
    let statuses = Observed::of(&[own], &driver).statuses;
    assert!(held_by(&statuses).anonymous > 0);
    assert!(
        held_by(&statuses).anonymous > 0,
        "read again from its beginning"
    );
}

#[test]
fn what_is_said_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("progress");
    let estimate = ProgressEstimate::said(&file);
    assert_eq!(estimate.read(), Reading::default());
    fs::write(&file, "0 0\n").unwrap();
    assert_eq!(estimate.read(), Reading::default());
    fs::write(&file, "30 100\n00\n").unwrap();
    assert_eq!(estimate.read(), reading(30, Some(100)));
    fs::write(&file, "  300   100\n").unwrap();
    assert_eq!(estimate.read(), reading(100, Some(100)));
    fs::write(&file, "nonsense").unwrap();
    assert_eq!(estimate.read(), Reading::default());
}

#[test]
fn only_files_of_this_dump_count() {
    let directory = tempfile::tempdir().unwrap();
    let old = directory.path().join("pages-9.img");
    fs::write(&old, [0; 100]).unwrap();
    let since = SystemTime::now() - Duration::from_secs(60);
    let before = since - Duration::from_secs(60);
    File::options()
        .write(true)
        .open(&old)
        .unwrap()
        .set_modified(before)
        .unwrap();
    fs::write(directory.path().join("pages-1.img"), [0; 10]).unwrap();
    fs::write(directory.path().join("core-1.img"), [0; 3]).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", directory.path().join("parent")).unwrap();
    fs::create_dir(directory.path().join("inner")).unwrap();
    assert_eq!(written(directory.path(), since).unwrap(), 13);
    assert!(written(&directory.path().join("missing"), since).is_err());
}

#[test]
fn status_gives_memory_in_bytes() {
    let text = b"Name:\tVmSwap: 1 kB\xe8\nVmRSS:\t 9 kB\nRssAnon:\t  5 kB\nRssShmem:\t 2 kB\n";
    let status = procfs::Status::from_text(text.to_vec());
    assert_eq!(bytes_of(&status, &["RssAnon"]), 5 << 10);
    assert_eq!(bytes_of(&status, &["RssAnon", "RssShmem"]), 7 << 10);
    let status = procfs::Status::from_text(b"Name:\tkthreadd\n".to_vec());
    assert_eq!(bytes_of(&status, &["RssAnon"]), 0);
}

#[test]
fn a_process_that_has_ended_holds_nothing() {
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let processes = [ProcessRef::open(pid).unwrap().unwrap()];
    let driver = FakeDriver::default();
    let mut estimate = ProgressEstimate::gpu_checkpoint(0, &processes, &driver);
    estimate.start();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(estimate.read().done, Some(0));
    assert!(Status::open(&processes[0]).is_none());
}
