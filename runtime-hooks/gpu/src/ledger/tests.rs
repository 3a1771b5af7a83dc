use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use stasis_host::file_lock::{Tried, try_lock, unlock};

use super::*;

fn host(bytes: u64) -> Amounts {
    [(Resource::HostMemory, bytes)].into_iter().collect()
}

/// Tries to reserve `bytes` of 100 bytes.
fn reserve(of: &Reservation, bytes: u64) -> Result<(), Box<Short>> {
    let wait_limit = WaitLimit::none();
    let look = || Ok::<_, io::Error>(host(100));
    let reserved = of.reserve(&host(bytes), WaitFor::Reservations, &wait_limit, look);
    reserved.map_err(|error| match error {
        NotReserved::Short(short) => short,
        other => panic!("{other:?}"),
    })
}

fn entries(state_dir: &Path) -> usize {
    let ledger = fs::read_dir(state_dir.join(DIRECTORY)).unwrap();
    ledger.count()
}

#[test]
fn two_that_do_not_both_fit_do_not_both_get_it() {
    let state_dir = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|id| Reservation::new(state_dir.path(), id));
    reserve(&a, 60).unwrap();
    let short = reserve(&b, 60).unwrap_err();
    assert!(short.is_for_reservations_only());
    assert!(
        short
            .reserved
            .to_string()
            .contains("operations on a (process"),
        "{short:?}"
    );
    reserve(&b, 40).unwrap();
    // An operation's own amount does not count, and more takes the place of less.
    reserve(&a, 50).unwrap();
    assert!(!reserve(&a, 101).unwrap_err().is_for_reservations_only());
    a.release();
    reserve(&b, 100).unwrap();
    drop((a, b));
    assert_eq!(entries(state_dir.path()), 0);
}

#[test]
fn who_only_asks_reserves_nothing() {
    let state_dir = tempfile::tempdir().unwrap();
    let asking = Reservation::only_asking(state_dir.path());
    reserve(&asking, 60).unwrap();
    assert_eq!(entries(state_dir.path()), 0);
    let operation = Reservation::new(state_dir.path(), "a");
    reserve(&operation, 60).unwrap();
    assert!(reserve(&asking, 60).unwrap_err().is_for_reservations_only());
}

#[test]
fn who_waits_gets_what_another_releases() {
    let state_dir = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|id| Reservation::new(state_dir.path(), id));
    reserve(&a, 60).unwrap();
    let looks = std::cell::Cell::new(0);
    let look = || {
        looks.set(looks.get() + 1);
        Ok::<_, io::Error>(host(100))
    };
    std::thread::scope(|scope| {
        let (released, releases) = std::sync::mpsc::channel::<()>();
        let a = &a;
        scope.spawn(move || {
            let _ = releases.recv();
            a.release();
        });
        let wait_limit = WaitLimit::new(Duration::from_secs(60), Cancel::not_needed());
        let look = || {
            if looks.get() == 1 {
                released.send(()).unwrap();
            }
            look()
        };
        b.reserve(&host(60), WaitFor::Reservations, &wait_limit, look)
            .unwrap();
    });
    assert!(looks.get() > 1);
}

#[test]
fn who_lacks_room_for_good_waits_only_if_it_has_to() {
    let state_dir = tempfile::tempdir().unwrap();
    let a = Reservation::new(state_dir.path(), "a");
    let looks = std::cell::Cell::new(0);
    let look = || {
        looks.set(looks.get() + 1);
        Ok::<_, io::Error>(host(if looks.get() < 3 { 10 } else { 100 }))
    };
    let wait_limit = WaitLimit::new(Duration::from_secs(60), Cancel::not_needed());
    let refused = a.reserve(&host(60), WaitFor::Reservations, &wait_limit, look);
    assert!(matches!(refused, Err(NotReserved::Short(_))));
    assert_eq!(looks.get(), 1);
    a.reserve(&host(60), WaitFor::Room, &wait_limit, look)
        .unwrap();
    assert_eq!(looks.get(), 3);
}

#[test]
fn what_the_dead_have_left_and_what_is_no_entry_is_nothing() {
    let state_dir = tempfile::tempdir().unwrap();
    let ledger = state_dir.path().join(DIRECTORY);
    let a = Reservation::new(state_dir.path(), "a");
    a.hold(&host(1)).unwrap();
    let mode = fs::metadata(&ledger).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let dead = serde_json::to_vec(&Entry {
        container: "dead".to_owned(),
        pid: 1,
        record: Some(state_dir.path().join("undone")),
        amounts: host(90),
    });
    fs::write(ledger.join("1.dead"), dead.unwrap()).unwrap();
    fs::create_dir(ledger.join("directory")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", ledger.join("link")).unwrap();
    let fifo = ledger.join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    // Files that are locked as an entry is, and are none.
    let held = ["huge", "not json"].map(|name| {
        let text = if name == "huge" {
            vec![b'1'; 1 << 20]
        } else {
            b"{\xff".to_vec()
        };
        fs::write(ledger.join(name), text).unwrap();
        let file = File::open(ledger.join(name)).unwrap();
        lock_soon(&file).unwrap();
        file
    });
    let b = Reservation::new(state_dir.path(), "b");
    reserve(&b, 99).unwrap();
    assert!(!ledger.join("1.dead").exists());
    drop(held);
}

/// Has an operation reserve 60 bytes, and be killed; returns the record of how to undo it, and the
/// entry.
fn killed(state_dir: &Path) -> (PathBuf, PathBuf) {
    let record = state_dir.join("undo.json");
    fs::write(&record, "").unwrap();
    let a = Reservation::new(state_dir, "a").recorded(record.clone());
    reserve(&a, 60).unwrap();
    let (entry, lock) = a.own().file.take().unwrap();
    // A child that another test has just started may have the file open for a moment.
    unlock(&lock).unwrap();
    (record, entry)
}

#[test]
fn what_is_to_be_undone_stays_reserved() {
    let state_dir = tempfile::tempdir().unwrap();
    let new = |id| Reservation::new(state_dir.path(), id);
    let (record, path) = killed(state_dir.path());
    assert!(
        reserve(&new("b"), 60)
            .unwrap_err()
            .is_for_reservations_only()
    );
    assert!(path.exists());
    fs::remove_file(&record).unwrap();
    reserve(&new("b"), 60).unwrap();
    assert!(!path.exists());
}

#[test]
fn who_undoes_it_asks_for_itself() {
    let state_dir = tempfile::tempdir().unwrap();
    let new = |id| Reservation::new(state_dir.path(), id);
    let (record, _) = killed(state_dir.path());
    let again = new("a").recorded(record);
    reserve(&again, 60).unwrap();
    again.release();
    reserve(&new("b"), 60).unwrap();
}

#[test]
fn who_goes_back_and_can_write_no_entry_keeps_others_out() {
    let place = tempfile::tempdir().unwrap();
    let state_dir = long_below(place.path(), 4090 - DIRECTORY.len());
    let ledger = state_dir.join(DIRECTORY);
    // No file can be made there, as on a full disk: its path would be longer than PATH_MAX.
    std::fs::create_dir_all(&ledger).unwrap();
    let open = || File::open(&ledger).unwrap();
    let a = Reservation::new(&state_dir, "a");
    let go_back = || {
        let look = || Ok::<_, io::Error>(host(100));
        a.reserve(&host(60), WaitFor::Room, &WaitLimit::none(), look)
    };
    go_back().unwrap();
    let tried = try_lock(open(), Sharing::Exclusive).unwrap();
    assert_eq!(tried, Tried::Held);
    // The operation has the lock itself.
    go_back().unwrap();
    a.release();
    lock_soon(open()).unwrap();
    let look = || Ok::<_, io::Error>(host(100));
    let refused = a.reserve(&host(60), WaitFor::Reservations, &WaitLimit::none(), look);
    assert!(matches!(refused, Err(NotReserved::Ledger(_))));
    lock_soon(open()).unwrap();
}

/// Makes a path of this length in bytes.
fn long_below(place: &Path, bytes: usize) -> PathBuf {
    let mut path = place.to_owned();
    loop {
        let more = bytes - path.as_os_str().len() - 1;
        if more <= 200 {
            return path.join("x".repeat(more));
        }
        path.push("x".repeat(100));
    }
}
