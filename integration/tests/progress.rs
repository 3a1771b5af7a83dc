//! What a running operation tells in its progress file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use stasis::progress::{FILE_NAME, UnderWay};
use stasis_integration::bundle::Bundle;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;

/// Two processes: one that the driver has served shows while it is still at the other.
const JOB: [&str; 3] = [
    "/bin/sh",
    "-c",
    "/bin/memcheck 32 10001 & exec /bin/memcheck 32 10000",
];
const HALF: u64 = 32 << 20;

#[test]
fn of_operations() -> Result<()> {
    let lab = Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?;
    let _containerd = lab.containerd()?;
    let job = Bundle::make(&lab, "job", &JOB)?;
    job.run()?;
    assert_eq!(lab.ask_until_up(10000)?, "ok 0");
    assert_eq!(lab.ask_until_up(10001)?, "ok 0");
    each_slow_phase_of_a_checkpoint_is_told(&lab, &job)?;
    both_answer(&lab, "ok 1")?;
    a_resume_tells_what_it_gives_back(&lab, &job)?;
    both_answer(&lab, "ok 2")?;
    a_restore_tells_what_it_gives_back(&lab, &job)?;
    both_answer(&lab, "ok 3")?;
    a_roll_back_is_told(&lab, &job)?;
    both_answer(&lab, "ok 4")?;
    a_plain_container_has_no_file(&lab)
}

fn both_answer(lab: &Lab, answer: &str) -> Result<()> {
    assert_eq!(lab.ask(10000)?.as_deref(), Some(answer));
    assert_eq!(lab.ask(10001)?.as_deref(), Some(answer));
    Ok(())
}

/// The directory of the operations on a container.
fn directory(lab: &Lab, id: &str) -> PathBuf {
    let inside = format!("/run/stasis/containers/%run%bundles/{id}");
    lab.host.path(inside)
}

/// Waits until the operation tells what is wanted.
fn told(lab: &Lab, job: &Bundle<'_>, wanted: impl Fn(&UnderWay) -> bool) -> Result<UnderWay> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut last = None;
    while Instant::now() < deadline {
        if let Some(found) = UnderWay::read(&directory(lab, &job.id))? {
            if wanted(&found) {
                return Ok(found);
            }
            last = Some(found);
        }
        sleep(Duration::from_millis(5));
    }
    anyhow::bail!("it was not told within 20 s; last was {last:?}")
}

/// One of the two has been moved, as far as the kernel's counters are exact.
fn half_done(told: &UnderWay, phase: &str) -> bool {
    told.phase == phase && told.bytes_done > Some(HALF / 2)
}

fn is_over(lab: &Lab, job: &Bundle<'_>) {
    assert!(!directory(lab, &job.id).exists());
}

fn each_slow_phase_of_a_checkpoint_is_told(lab: &Lab, job: &Bundle<'_>) -> Result<()> {
    // One of two calls is slow.
    lab.order("checkpoint job slow:1500 1\nrestore job slow:1500 1\nunlock job slow:400 1")?;
    let mut child = job.begin_checkpoint("one", &["--leave-running"])?;
    let first = told(lab, job, |told| told.phase == "gpu checkpoint")?;
    assert_eq!(first.operation, "checkpoint");
    let name = lab.host.path(format!("/proc/{}/comm", first.pid));
    assert_eq!(fs::read_to_string(name)?, "stasis-runtime\n");
    let mode = fs::metadata(directory(lab, &job.id).join(FILE_NAME))?.permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let moved = told(lab, job, |told| half_done(told, "gpu checkpoint"))?;
    assert!(moved.bytes_total > Some(2 * HALF), "{moved:?}");
    assert_eq!(moved.phase_since.to_bits(), first.phase_since.to_bits());
    let later = told(lab, job, |told| half_done(told, "gpu restore"))?;
    assert_eq!(later.bytes_total, moved.bytes_total);
    assert_eq!(
        (&later.began, later.pid, later.start_time),
        (&first.began, first.pid, first.start_time)
    );
    assert!(later.phase_since > first.phase_since);
    let unlock = told(lab, job, |told| told.phase == "unlock")?;
    assert_eq!((unlock.bytes_done, unlock.bytes_total), (None, None));
    ensure!(child.wait()?.success());
    lab.order("")?;
    let logged = lab.operation("checkpoint")?;
    let began = logged["time"].as_str();
    assert_eq!(began, Some(first.began.as_str()));
    is_over(lab, job);
    Ok(())
}

fn a_resume_tells_what_it_gives_back(lab: &Lab, job: &Bundle<'_>) -> Result<()> {
    ensure!(job.runtime(&["pause", "job"]).status()?.success());
    job.checkpoint("paused", &["--leave-running"])?;
    let left = fs::read_dir(directory(lab, &job.id))?;
    let mut left = left
        .map(|entry| Ok(entry?.file_name()))
        .collect::<Result<Vec<_>>>()?;
    left.sort();
    assert_eq!(left, ["intent.json", "lock"], "a checkpoint that is over");
    lab.order("restore job slow:1500 1")?;
    let mut child = job.runtime(&["resume", "job"]).spawn()?;
    let moved = told(lab, job, |told| half_done(told, "gpu restore"))?;
    assert_eq!(moved.operation, "resume");
    assert!(moved.bytes_total > Some(2 * HALF), "{moved:?}");
    ensure!(child.wait()?.success());
    lab.order("")?;
    is_over(lab, job);
    Ok(())
}

fn a_restore_tells_what_it_gives_back(lab: &Lab, job: &Bundle<'_>) -> Result<()> {
    job.checkpoint("away", &[])?;
    is_over(lab, job);
    job.delete()?;
    lab.order("restore job slow:1500 1")?;
    scope(|scope| {
        let restore = scope.spawn(|| job.restore("away"));
        let moved = told(lab, job, |told| half_done(told, "gpu restore"));
        restore.join().ok().context("the restore panicked")??;
        let moved = moved?;
        assert_eq!(moved.operation, "restore");
        assert!(moved.bytes_total > Some(2 * HALF), "{moved:?}");
        anyhow::Ok(())
    })?;
    lab.order("")?;
    is_over(lab, job);
    Ok(())
}

fn a_roll_back_is_told(lab: &Lab, job: &Bundle<'_>) -> Result<()> {
    lab.order("checkpoint job slow:500 1\nrestore job slow:1000 1")?;
    let mut child = job.begin_checkpoint("cancelled", &["--leave-running"])?;
    let first = told(lab, job, |told| told.phase == "gpu checkpoint")?;
    lab.host.run(&["kill", &first.pid.to_string()])?;
    let roll_back = told(lab, job, |told| told.phase == "roll back")?;
    assert_eq!(roll_back.pid, first.pid);
    ensure!(!child.wait()?.success());
    lab.order("")?;
    is_over(lab, job);
    Ok(())
}

fn a_plain_container_has_no_file(lab: &Lab) -> Result<()> {
    let plain = Bundle::make(lab, "plain", &["/bin/pause"])?;
    without_gpu(lab, &plain)?;
    plain.run()?;
    let mut child = plain.begin_checkpoint("plain", &["--leave-running"])?;
    let ended = loop {
        assert_eq!(UnderWay::read(&directory(lab, "plain"))?, None);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        sleep(Duration::from_millis(2));
    };
    ensure!(ended.success());
    assert!(!directory(lab, "plain").exists());
    plain.delete()
}

/// A container with a GPU that nothing uses is ours to watch (`overtaken.rs`).
fn without_gpu(lab: &Lab, bundle: &Bundle<'_>) -> Result<()> {
    let path = lab.host.path(format!("{}/config.json", bundle.directory()));
    let mut spec: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    spec["linux"]["devices"] = serde_json::json!([]);
    Ok(fs::write(path, spec.to_string())?)
}
