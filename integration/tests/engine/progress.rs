//! The progress file of a running operation.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use stasis_engine::operation::progress::{FILE_NAME, UnderWay};
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

/// Two processes: the finished one shows while the driver is still at the other.
const JOB: [&str; 3] = [
    "/bin/sh",
    "-c",
    "/bin/memcheck 32 10001 & exec /bin/memcheck 32 10000",
];
const HALF: u64 = 32 << 20;

#[test]
fn of_operations() -> Result<()> {
    let stasis = StasisHost::with_containerd(HostKind::sid()?)?;
    // The stand-in's GPU memory is memory of its process, of the same kind as our files.
    stasis.set("runc", "gpu_checkpoint.path = \"driver\"\n")?;
    let job = Bundle::make(&stasis, "job", &JOB)?;
    job.comes_up(10000, "ok 0")?;
    assert_eq!(stasis.ask_until_up(10001)?, "ok 0");
    each_slow_phase_of_a_checkpoint_is_told(&stasis, &job)?;
    both_answer(&stasis, "ok 1")?;
    a_resume_tells_what_it_gives_back(&stasis, &job)?;
    both_answer(&stasis, "ok 2")?;
    a_restore_tells_what_it_gives_back(&stasis, &job)?;
    both_answer(&stasis, "ok 3")?;
    a_roll_back_is_told(&stasis, &job)?;
    both_answer(&stasis, "ok 4")?;
    a_plain_container_has_no_file(&stasis)
}

/// A process's memory tells nothing while it is read: the code that copies reports the amount.
#[test]
fn of_what_threads_of_ours_copy() -> Result<()> {
    needs!(StandIn);
    let stasis = StasisHost::with_containerd(HostKind::sid()?)?;
    let job = Bundle::make(&stasis, "job", &["/bin/memcheck", "64", "10000"])?;
    job.comes_up(10000, "ok 0")?;
    stasis.inject("checkpoint job slowly:120\nrestore job slowly:120")?;
    let mut child = job.begin_checkpoint("one", &["--leave-running"])?;
    for phase in ["gpu checkpoint", "gpu restore"] {
        let moved = until(&stasis, &job, |now| in_the_middle(now, phase))?;
        assert!(moved.bytes_total >= Some(2 * HALF), "{moved:?}");
    }
    ensure!(child.wait()?.success());
    job.checkpoint("two", &[])?;
    scope(|scope| {
        let restore = scope.spawn(|| job.restore("two"));
        let moved = until(&stasis, &job, |now| in_the_middle(now, "gpu restore"));
        restore.join().ok().context("the restore panicked")??;
        moved
    })?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    job.delete()
}

fn in_the_middle(under_way: &UnderWay, phase: &str) -> bool {
    let Some(done) = under_way.bytes_done else {
        return false;
    };
    under_way.phase == phase && (HALF / 2..HALF * 3 / 2).contains(&done)
}

fn both_answer(stasis: &StasisHost, answer: &str) -> Result<()> {
    assert_eq!(stasis.ask(10000)?.as_deref(), Some(answer));
    assert_eq!(stasis.ask(10001)?.as_deref(), Some(answer));
    Ok(())
}

/// Returns the directory of the operations on a container.
fn directory(stasis: &StasisHost, id: &str) -> PathBuf {
    stasis.record(ROOT, id)
}

/// Waits until the file has the wanted state.
fn until(
    stasis: &StasisHost,
    job: &Bundle<'_>,
    wanted: impl Fn(&UnderWay) -> bool,
) -> Result<UnderWay> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut last = None;
    while Instant::now() < deadline {
        if let Some(found) = UnderWay::read(&directory(stasis, &job.id))? {
            if wanted(&found) {
                return Ok(found);
            }
            last = Some(found);
        }
        sleep(Duration::from_millis(5));
    }
    anyhow::bail!("not within 60 s; last was {last:?}")
}

/// Whether one of the two has been moved, as far as the kernel's counters are exact.
fn half_done(under_way: &UnderWay, phase: &str) -> bool {
    under_way.phase == phase && under_way.bytes_done > Some(HALF / 2)
}

fn is_over(stasis: &StasisHost, job: &Bundle<'_>) {
    assert!(!directory(stasis, &job.id).exists());
}

fn each_slow_phase_of_a_checkpoint_is_told(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    // The call for one of the two processes is held.
    stasis.hold_driver_at(&[
        ("checkpoint job", "away"),
        ("restore job", "back"),
        ("unlock job", "unlock"),
    ])?;
    let mut child = job.begin_checkpoint("one", &["--leave-running"])?;
    let first = until(stasis, job, |under_way| under_way.phase == "gpu checkpoint")?;
    assert_eq!(first.operation, "checkpoint");
    let name = stasis.path(format!("/proc/{}/comm", first.pid));
    assert_eq!(fs::read_to_string(name)?, "stasis-runtime\n");
    let mode = fs::metadata(directory(stasis, &job.id).join(FILE_NAME))?.permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let moved = until(stasis, job, |under_way| {
        half_done(under_way, "gpu checkpoint")
    })?;
    stasis.let_driver_go("away")?;
    assert!(moved.bytes_total > Some(2 * HALF), "{moved:?}");
    assert_eq!(moved.phase_since.to_bits(), first.phase_since.to_bits());
    let later = until(stasis, job, |under_way| half_done(under_way, "gpu restore"))?;
    stasis.let_driver_go("back")?;
    assert_eq!(later.bytes_total, moved.bytes_total);
    assert_eq!(
        (&later.began, later.pid, later.start_time),
        (&first.began, first.pid, first.start_time)
    );
    assert!(later.phase_since > first.phase_since);
    let unlock = until(stasis, job, |under_way| under_way.phase == "unlock")?;
    stasis.let_driver_go("unlock")?;
    assert_eq!((unlock.bytes_done, unlock.bytes_total), (None, None));
    ensure!(child.wait()?.success());
    stasis.inject("")?;
    let logged = stasis.operation("checkpoint")?;
    let began = logged["time"].as_str();
    assert_eq!(began, Some(first.began.as_str()));
    is_over(stasis, job);
    Ok(())
}

fn a_resume_tells_what_it_gives_back(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    job.pause()?;
    job.checkpoint("paused", &["--leave-running"])?;
    let left = fs::read_dir(directory(stasis, &job.id))?;
    let mut left = left
        .map(|entry| Ok(entry?.file_name()))
        .collect::<Result<Vec<_>>>()?;
    left.sort();
    assert_eq!(left, ["intent.json", "lock"], "a checkpoint that is over");
    stasis.hold_driver("restore job", "back")?;
    let mut child = job.runtime(&["resume", "job"]).spawn()?;
    let moved = until(stasis, job, |under_way| half_done(under_way, "gpu restore"))?;
    stasis.let_driver_go("back")?;
    assert_eq!(moved.operation, "resume");
    assert!(moved.bytes_total > Some(2 * HALF), "{moved:?}");
    ensure!(child.wait()?.success());
    stasis.inject("")?;
    is_over(stasis, job);
    Ok(())
}

fn a_restore_tells_what_it_gives_back(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    job.checkpoint("away", &[])?;
    is_over(stasis, job);
    job.delete()?;
    stasis.hold_driver("restore job", "back")?;
    scope(|scope| {
        let restore = scope.spawn(|| job.restore("away"));
        let moved = until(stasis, job, |under_way| half_done(under_way, "gpu restore"));
        stasis.let_driver_go("back")?;
        restore.join().ok().context("the restore panicked")??;
        let moved = moved?;
        assert_eq!(moved.operation, "restore");
        assert!(moved.bytes_total > Some(2 * HALF), "{moved:?}");
        anyhow::Ok(())
    })?;
    stasis.inject("")?;
    is_over(stasis, job);
    Ok(())
}

fn a_roll_back_is_told(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    stasis.hold_driver_at(&[("checkpoint job", "away"), ("restore job", "back")])?;
    let mut child = job.begin_checkpoint("cancelled", &["--leave-running"])?;
    let first = until(stasis, job, |under_way| under_way.phase == "gpu checkpoint")?;
    stasis.run(&["kill", &first.pid.to_string()])?;
    stasis.let_driver_go("away")?;
    let roll_back = until(stasis, job, |under_way| under_way.phase == "roll back")?;
    stasis.let_driver_go("back")?;
    assert_eq!(roll_back.pid, first.pid);
    ensure!(!child.wait()?.success());
    stasis.inject("")?;
    is_over(stasis, job);
    Ok(())
}

fn a_plain_container_has_no_file(stasis: &StasisHost) -> Result<()> {
    let plain = Bundle::make(stasis, "plain", &["/bin/pause"])?;
    without_gpu(stasis, &plain)?;
    plain.run()?;
    let mut child = plain.begin_checkpoint("plain", &["--leave-running"])?;
    let ended = loop {
        assert_eq!(UnderWay::read(&directory(stasis, "plain"))?, None);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        sleep(Duration::from_millis(2));
    };
    ensure!(ended.success());
    assert!(!directory(stasis, "plain").exists());
    plain.delete()
}

/// Takes the GPU away: stasis watches a container with a GPU that no process uses (`overtaken.rs`).
fn without_gpu(stasis: &StasisHost, bundle: &Bundle<'_>) -> Result<()> {
    let path = stasis.path(format!("{}/config.json", bundle.directory()));
    let mut spec: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    spec["linux"]["devices"] = serde_json::json!([]);
    Ok(fs::write(path, spec.to_string())?)
}
