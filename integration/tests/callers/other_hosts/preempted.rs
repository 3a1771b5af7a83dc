//! A job that is preempted at one host goes on at another, by its annotations and the registry.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::load;

use super::edges::nothing_is_pushed;
use super::{host_at, host_for_registry, with_registry};

/// The program reports how often it has verified its GPU and host memory, and then changes both.
const JOB: [&str; 3] = ["/bin/memcheck", "4", "10000"];
pub(super) const SETTINGS: &str = "restore.at_create = \"/images\"\nrestore.keep_at_stop = 2\n\
    restore.registry = \"registry.test:5443/jobs\"\n";

/// The next job is created as soon as the previous one is seen to have ended: its image is
/// incomplete at that moment, or not pushed yet. The clock of the first host is far ahead.
#[test]
fn a_preempted_job_goes_on_at_the_other_host_each_time() -> Result<()> {
    let registry = host_for_registry()?;
    let (network, _daemon) = with_registry(&registry)?;
    let hosts = [
        host_at(HostKind::sid()?, &registry, &network, 2)?,
        host_at(HostKind::trixie()?, &registry, &network, 3)?,
    ];
    let _daemons = (hosts[0].containerd()?, hosts[1].containerd()?);
    let jobs = [job(&hosts[0], "moves")?, job(&hosts[1], "moves")?];
    let ahead = "/images/moves/2099-01-01T00:00:00.000Z-stop";
    hosts[0].host.run(&["mkdir", "-p", ahead])?;
    let times = load::asked(4, 50);
    for time in 0..times {
        let number = time as usize % 2;
        let (host, job) = (&hosts[number], &jobs[number]);
        host.set(&host.low_level, SETTINGS)?;
        begin(job)?;
        asked(host, time)?;
        job.kill("TERM")?;
        ended(host, job)?;
    }
    for host in &hosts {
        host.nobody_is_stopped()?;
        ensure!(host.operation("stop")?["notes"] == Value::Null);
        host.nothing_to_put_right()?;
    }
    Ok(())
}

/// No process uses CUDA at the stop, in a container with a GPU and in one without.
#[test]
fn a_job_without_cuda_goes_on_at_the_other_host_each_time() -> Result<()> {
    let registry = host_for_registry()?;
    let (network, _daemon) = with_registry(&registry)?;
    let hosts = [
        &host_at(HostKind::sid()?, &registry, &network, 2)?,
        &host_at(HostKind::sid()?, &registry, &network, 3)?,
    ];
    let _daemons = (hosts[0].containerd()?, hosts[1].containerd()?);
    for host in hosts {
        host.set(&host.low_level, SETTINGS)?;
    }
    for key in ["idle", "plain"] {
        let jobs = [without_cuda(hosts[0], key)?, without_cuda(hosts[1], key)?];
        for (life, answer) in ["1 ok", "2 ok", "3 ok"].into_iter().enumerate() {
            let (host, job) = (hosts[life % 2], &jobs[life % 2]);
            begin(job)?;
            let found = host.ask_until_up(10000)?;
            let notes = host.operation("create")?["notes"].take();
            ensure!(found == answer, "{key}: {found}, not {answer}: {notes}");
            job.kill("TERM")?;
            ended(host, job)?;
            host.nobody_is_stopped()?;
            ensure!(host.operation("stop")?["notes"] == Value::Null);
            host.has_whole_images(&format!("/images/{key}"))?;
        }
    }
    for host in hosts {
        nothing_is_pushed(host)?;
        host.nothing_to_put_right()?;
    }
    Ok(())
}

fn without_cuda<'h>(stasis: &'h StasisHost, key: &str) -> Result<Bundle<'h>> {
    let job = Bundle::make(stasis, key, &["/bin/kept", "10000"])?;
    if key == "plain" {
        job.change(|spec| spec["linux"]["devices"] = json!([]))?;
    }
    asks_for(&job, key)?;
    Ok(job)
}

/// Makes the bundle of a job that moves.
pub(super) fn job<'h>(stasis: &'h StasisHost, key: &str) -> Result<Bundle<'h>> {
    let job = Bundle::make(stasis, "job", &JOB)?;
    asks_for(&job, key)?;
    Ok(job)
}

/// Has the job be saved with this key when it is stopped, and begin with the key's latest image.
pub(super) fn asks_for(job: &Bundle<'_>, key: &str) -> Result<()> {
    job.change(|spec| {
        spec["annotations"] = json!({
            "io.stasis.checkpoint": "on-term",
            "io.stasis.checkpoint.key": key,
            "io.stasis.restore": format!("latest:{key}"),
        });
    })
}

pub(super) fn begin(job: &Bundle<'_>) -> Result<()> {
    job.create()?;
    job.start()
}

/// Checks that the job's memory is right, and was changed `before` times.
pub(super) fn asked(stasis: &StasisHost, before: u32) -> Result<()> {
    let answer = stasis.ask_until_up(10000)?;
    let notes = stasis.operation("create")?["notes"].take();
    ensure!(
        answer == format!("ok {before}"),
        "{answer}, not {before}: {notes}"
    );
    Ok(())
}

/// Waits for the end of the first process, which is the container's end to engines.
pub(super) fn ended(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    job.until_ended()?;
    ensure!(stasis.is_silent(10000)?, "it answers");
    job.delete()
}
