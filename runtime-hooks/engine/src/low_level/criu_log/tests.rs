//! Tests which errors of CRIU's logs are read, and which logs are kept.

use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use super::*;

const LOG: &str = "(00.001) Dumping\n\
    (00.002)   12: Error (criu/files-ext.c:96): Can't dump file 5 of that type\n\
    (00.003) Warn  (criu/x.c:1): Error is not the word here\n\
    (00.004) Error (criu/cr-dump.c:1781): Dumping FAILED.\n";

fn before(work: &Path) -> CriuLog {
    CriuLog::with(CriuSettings::default(), work, "dump.log")
}

fn errors_of(log: &str) -> Vec<String> {
    errors_in(log.as_bytes()).unwrap().0
}

/// CRIU 4.2.1 on Linux 6.18, some lines left out.
#[test]
fn what_the_kernel_lacks_is_no_reason() {
    let probes = "(00.000046) Running on vm Linux 6.18.44 x86_64\n\
        (00.000060) File /run/criu.kdat does not exist\n\
        (00.007750) Error (criu/tun.c:85): tun: Unable to create tun: No such file or directory\n";
    let known = "(00.054160) files stat: fs/nr_open 1048576\n";
    let cached = "(00.000050) Loaded kdat cache from /run/criu.kdat\n";
    let dump = "(00.054213) ========================================\n\
        (00.054233) Dumping processes (pid: 59 comm: sleep)\n\
        (00.054235) ========================================\n\
        (00.054246) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: \
        Operation not permitted\n\
        (00.056135) ========================================\n\
        (00.056143) Dumping task (pid: 59 comm: sleep)\n\
        (00.056248) Error (criu/files-reg.c:1790): Can't lookup mount=24 for fd=10 path=/dev/null\n\
        (00.056249) ========================================\n\
        (00.056493) Error (criu/cr-dump.c:1975): Dumping FAILED.\n";
    let restore = "(00.031618) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self\n\
        (00.031634) No inventory.img image\n\
        (00.031639) Error (criu/protobuf.c:72): Unexpected EOF on (empty-image)\n";
    let of_dump = [
        "Error (criu/files-reg.c:1790): Can't lookup mount=24 for fd=10 path=/dev/null",
        "Error (criu/cr-dump.c:1975): Dumping FAILED.",
    ];
    for kernel in [probes, &format!("{probes}{known}"), cached] {
        assert_eq!(errors_of(&format!("{kernel}{dump}")), of_dump, "{kernel}");
    }
    let of_restore = ["Error (criu/protobuf.c:72): Unexpected EOF on (empty-image)"];
    for kernel in [&format!("{probes}{known}"), cached] {
        assert_eq!(errors_of(&format!("{kernel}{restore}")), of_restore);
    }
    // Without the end of the probes, a probe may be the cause.
    assert_eq!(errors_of(probes).len(), 1);
}

#[test]
fn a_log_that_cannot_be_kept_is_read_where_it_is() {
    let work = tempfile::tempdir().unwrap();
    let logs = work.path().join("logs");
    fs::create_dir(&logs).unwrap();
    fs::set_permissions(&logs, fs::Permissions::from_mode(0o777)).unwrap();
    let criu = before(work.path());
    let path = work.path().join("dump.log");
    fs::write(&path, LOG).unwrap();
    let found = find(&criu, &logs, "c1").unwrap().unwrap();
    assert_eq!((&found.path, found.errors.len()), (&path, 2));
    let why = found.not_kept.unwrap();
    assert!(why.contains("logs: ") && why.contains("mode 0777"), "{why}");
    assert_eq!(fs::read_dir(&logs).unwrap().count(), 0);
}

#[test]
fn a_log_is_found_where_criu_is_told_to_write_it() {
    let place = tempfile::tempdir().unwrap();
    let [work, logs] = ["work", "logs"].map(|name| place.path().join(name));
    fs::create_dir(&work).unwrap();
    let conf = place.path().join("runc.conf");
    for (text, log) in [
        (format!("work-dir {}\n", work.display()), "dump.log"),
        (
            format!("work-dir {}\nlog-file its.log\n", work.display()),
            "its.log",
        ),
        (
            format!("log-file {}/work/b.log\n", place.path().display()),
            "b.log",
        ),
    ] {
        fs::write(&conf, text).unwrap();
        let criu = CriuLog::with(CriuSettings::read(&conf), Path::new("/nil"), "dump.log");
        fs::write(work.join(log), LOG).unwrap();
        let found = find(&criu, &logs, "c1").unwrap().unwrap();
        assert_eq!(found.path, logs.join("c1-dump.log"));
    }
}

#[test]
fn a_log_is_kept_with_its_errors() {
    let (work, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let criu = before(work.path());
    let log = format!(
        "{}{LOG}",
        "(00.000) Error (criu/tun.c:85): tun: probe\n".repeat(4)
    );
    fs::write(work.path().join("dump.log"), &log).unwrap();
    let log_dir = logs.path().join("new");
    let kept = find(&criu, &log_dir, "c1-T").unwrap().unwrap();
    assert_eq!(kept.path, log_dir.join("c1-T-dump.log"));
    assert_eq!(fs::read_to_string(&kept.path).unwrap(), log);
    assert_eq!(
        kept.errors[4..],
        [
            "Error (criu/files-ext.c:96): Can't dump file 5 of that type",
            "Error (criu/cr-dump.c:1781): Dumping FAILED.",
        ]
    );
    let last = "(00.004) Error (criu/cr-dump.c:1781): Dumping FAILED.";
    assert_eq!(kept.last.as_deref(), Some(last));
}

#[test]
fn the_oldest_logs_go() {
    let logs = tempfile::tempdir().unwrap();
    let start = SystemTime::UNIX_EPOCH;
    for (age, name) in ["c1-4-dump.log", "c1-3-restore.log", "c2-2-dump.log"]
        .iter()
        .enumerate()
    {
        let log = File::create(logs.path().join(name)).unwrap();
        log.set_len(10).unwrap();
        let age = u64::try_from(age).unwrap();
        log.set_modified(start + std::time::Duration::from_secs(100 - age))
            .unwrap();
    }
    fs::write(logs.path().join("operations.log"), "kept").unwrap();
    let left = || fs::read_dir(logs.path()).unwrap().count();
    remove_oldest(logs.path(), 3, 30).unwrap();
    assert_eq!(left(), 4);
    remove_oldest(logs.path(), 3, 29).unwrap();
    assert!(left() == 3 && !logs.path().join("c2-2-dump.log").exists());
    remove_oldest(logs.path(), 1, 30).unwrap();
    assert_eq!(left(), 2);
    remove_oldest(logs.path(), 1, 0).unwrap();
    assert!(
        logs.path().join("c1-4-dump.log").exists(),
        "the newest stays"
    );
}

#[test]
fn what_this_operation_did_not_write_is_not_kept() {
    let work = tempfile::tempdir().unwrap();
    let before = || before(work.path());
    let kept = |criu: &CriuLog| find(criu, work.path(), "c1").unwrap();
    assert_eq!(kept(&before()), None, "no file");
    let path = work.path().join("dump.log");
    fs::write(&path, "").unwrap();
    assert_eq!(kept(&before()), None, "podman's empty file");
    fs::write(&path, LOG).unwrap();
    assert_eq!(kept(&before()), None, "an earlier operation's file");
    fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert_eq!(kept(&before()), None, "a fifo");
}

/// As if the file server's clock is behind, or ours was set back meanwhile.
#[test]
fn a_log_of_another_clock_is_kept() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("dump.log");
    fs::write(&path, "of an earlier operation").unwrap();
    let criu = before(work.path());
    fs::write(&path, LOG).unwrap();
    let log = File::options().write(true).open(&path).unwrap();
    log.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let kept = find(&criu, work.path(), "c1").unwrap().unwrap();
    assert_eq!(kept.errors.len(), 2);
}
