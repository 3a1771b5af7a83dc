use super::*;
use std::time::Duration;

/// A status file that says what a test wants: this process's own memory moves with every test.
fn fake(directory: &Path, name: &str) -> (std::path::PathBuf, Status) {
    let path = directory.join(name);
    tell(&path, 0);
    let file = File::open(&path).unwrap();
    (path, Status(file))
}

fn tell(path: &Path, anonymous: u64) {
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
    tell(&one, 100);
    let mut filling = Gauge::new(Some(20 << 10), Source::Filling(vec![first, second]));
    assert_eq!(filling.gpu_bytes(), Some(20 << 10));
    filling.start();
    assert_eq!(filling.read(), reading(0, Some(20 << 10)));
    tell(&one, 107);
    tell(&two, 6);
    assert_eq!(filling.read(), reading(13 << 10, Some(20 << 10)));
    tell(&two, 600);
    assert_eq!(
        filling.read(),
        reading(20 << 10, Some(20 << 10)),
        "more than all"
    );
    tell(&one, 0);
    tell(&two, 0);
    assert_eq!(filling.read(), reading(0, Some(20 << 10)));

    let (one, first) = fake(directory.path(), "1");
    tell(&one, 100);
    let mut emptying = Gauge::new(None, Source::Emptying(vec![first]));
    emptying.start();
    tell(&one, 30);
    assert_eq!(emptying.read(), reading(70 << 10, None));
    tell(&one, 130);
    assert_eq!(emptying.read(), reading(0, None));
}

#[test]
fn a_live_process_has_memory() {
    let pid = i32::try_from(std::process::id()).unwrap();
    let own = ProcessRef::open(pid).unwrap().unwrap();
    let statuses = open_all(&[own]);
    assert!(anonymous(&statuses) > 0);
    assert!(anonymous(&statuses) > 0, "read again from its beginning");
}

#[test]
fn the_plugin_tells_how_far_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("progress");
    let gauge = Gauge::criu_restore(Some(&file));
    assert_eq!(gauge.read(), Reading::default());
    fs::write(&file, "0 0\n").unwrap();
    assert_eq!(gauge.read(), Reading::default());
    fs::write(&file, "30 100\n00\n").unwrap();
    assert_eq!(gauge.read(), reading(30, Some(100)));
    fs::write(&file, "  300   100\n").unwrap();
    assert_eq!(gauge.read(), reading(100, Some(100)));
    fs::write(&file, "nonsense").unwrap();
    assert_eq!(gauge.read(), Reading::default());
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
    let status = "Name:\tVmSwap: 1 kB\nVmRSS:\t 9 kB\nRssAnon:\t  5 kB\nRssShmem:\t 2 kB\n";
    assert_eq!(bytes_of(status, &["RssAnon:"]), 5 << 10);
    assert_eq!(bytes_of(status, &["RssAnon:", "RssShmem:"]), 7 << 10);
    assert_eq!(bytes_of("Name:\tkthreadd\n", &["RssAnon:"]), 0);
}

#[test]
fn a_process_that_has_ended_holds_nothing() {
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let processes = [ProcessRef::open(pid).unwrap().unwrap()];
    let mut gauge = Gauge::gpu_checkpoint(None, &processes);
    gauge.start();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(gauge.read().done, Some(0));
    assert!(Status::open(&processes[0]).is_none());
}
