use std::fs;

use tempfile::TempDir;

use super::*;

fn line(operation: &str, error: Option<&str>) -> String {
    let line = serde_json::json!({
        "time": "2026-11-25T07:00:00Z",
        "operation": operation,
        "container": "job",
        "error": error,
        "kind": error.map(|_| "no-space"),
        "phases": [
            {"name": "dump", "seconds": 3.0, "bytes": 2_u64 << 30},
            {"name": "dump: hook", "seconds": 1.0},
        ],
        "locked_seconds": 0.2,
    });
    format!("{line}\n")
}

fn logs() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let earlier = line("checkpoint", None) + &line("restore", Some("full"));
    fs::write(directory.path().join(EARLIER), earlier).unwrap();
    let log = line("checkpoint", None) + "{\"operation\":\"cut of";
    fs::write(directory.path().join(FILE_NAME), log).unwrap();
    directory
}

#[test]
fn outcomes_are_counted_and_what_failed_is_not_timed() {
    let directory = logs();
    let totals = Totals::read(directory.path()).unwrap();
    let [checkpoint, restore] = ["checkpoint", "restore"].map(|name| &totals.operations[name]);
    assert_eq!(checkpoint.outcomes, BTreeMap::from([(DONE.to_owned(), 2)]));
    assert_eq!((checkpoint.seconds.count, checkpoint.seconds.sum), (2, 6.0));
    assert_eq!((checkpoint.locked.count, checkpoint.frozen.count), (2, 0));
    assert_eq!(checkpoint.bytes.sum, (4_u64 << 30) as f64);
    assert_eq!(
        restore.outcomes,
        BTreeMap::from([("no-space".to_owned(), 1)])
    );
    assert_eq!(restore.seconds, Distribution::default());
    let none = directory.path().join("none");
    assert_eq!(Totals::read(&none).unwrap(), Totals::default());
}

/// Also if the process that replaces a log is killed at any time.
#[test]
fn they_stay_when_a_log_is_replaced() {
    let directory = logs();
    let operations = || Totals::read(directory.path()).unwrap().operations;
    let before = operations();
    let [log, earlier] = [FILE_NAME, EARLIER].map(|name| directory.path().join(name));
    for _ in 0..3 {
        for _ in 0..2 {
            Totals::keep_earlier(directory.path()).unwrap();
            assert_eq!(operations(), before);
        }
        fs::rename(&log, &earlier).unwrap();
        assert_eq!(operations(), before);
        fs::write(&log, "").unwrap();
    }
    fs::remove_file(&earlier).unwrap();
    assert_eq!(operations(), before);
    fs::write(&log, line("restore", None)).unwrap();
    assert_eq!(operations()["restore"].outcomes[DONE], 1);
}

#[test]
fn damaged_ones_are_said_to_be_so_and_begun_anew() {
    let directory = logs();
    let totals = directory.path().join(TOTALS);
    let short = r#"{"operations":{"restore":{"outcomes":{},"seconds":{"counts":[1],"count":1,
        "sum":1.0},"locked":{"counts":[],"count":0,"sum":0.0},"frozen":{"counts":[],"count":0,
        "sum":0.0},"bytes":{"counts":[],"count":0,"sum":0.0}}},"with":null}"#;
    for damaged in ["", "{}", "[1", short] {
        fs::write(&totals, damaged).unwrap();
        let error = Totals::read(directory.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{damaged}");
        Totals::keep_earlier(directory.path()).unwrap();
        let totals = Totals::read(directory.path()).unwrap();
        assert_eq!(totals.operations["checkpoint"].outcomes[DONE], 2);
    }
}
