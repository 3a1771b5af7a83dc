//! Containers that begin with an image: their create runs no process, and they go on at their
//! start; a container that cannot be restored starts cold, and says why.

mod killed;

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use serde_json::json;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::process_tree::descendant;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(all_cases: sid_v2, trixie);

/// The setting with the directory of [`Bundle`]'s images.
const AT_CREATE: &str = "restore.at_create = \"/images\"\n";

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set(&stasis.low_level, AT_CREATE)?;
    let job = &Bundle::make(stasis, "job", &["/bin/counter", "10000"])?;
    job.comes_up(10000, "101")?;
    job.checkpoint("good", &[])?;
    job.delete()?;
    let cases: [(&str, Case); 9] = [
        ("start", it_goes_on_at_its_start),
        ("end", it_is_ended_before_its_start),
        ("before", nothing_else_touches_it_before),
        ("killed", what_is_killed_leaves_nothing),
        ("rest", killed::nothing_is_left_for_the_next_one_of_its_id),
        ("twice", the_second_of_two_creates_takes_nothing_away),
        ("damaged", what_is_damaged_is_passed_over),
        ("cold", what_cannot_be_restored_starts_cold),
        ("names", what_is_no_name_creates_nothing),
    ];
    for (name, case) in cases {
        case(stasis, job).context(name)?;
        assert_eq!(job.status()?, "", "{name}");
        stasis.nothing_to_put_right().context(name)?;
    }
    stasis.set(&stasis.low_level, AT_CREATE)?;
    without_a_gpu(stasis)
}

/// clock_nanosleep(2) in `/proc/PID/syscall`.
const SLEEPS: &str = "230 ";

type Case = fn(&StasisHost, &Bundle<'_>) -> Result<()>;

/// Creates the container from an image, without a start. A question sent meanwhile waits.
fn created(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    job.begin_with("job-good")?;
    job.create()?;
    assert_eq!(job.warnings()?, "");
    assert_eq!(stasis.last_operation()?["operation"], "create");
    assert_eq!(job.status()?, "created");
    assert!(stasis.is_silent(10000)?);
    Ok(())
}

fn it_goes_on_at_its_start(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    job.annotate("io.stasis.hook.after-restore", "echo >>/told")?;
    for round in ["1", "2"] {
        job.change(|spec| spec["hostname"] = json!("another"))?;
        created(stasis, job)?;
        let pid = job.pid()?;
        job.start()?;
        assert_eq!((job.status()?.as_str(), job.pid()?), ("running", pid));
        // The question sent before the start was 102.
        assert_eq!(stasis.ask_until_up(10000)?, "103");
        assert_eq!(job.exec("cat /proc/sys/kernel/hostname")?, "another");
        assert_eq!(job.exec("wc -l </told")?, round);
        assert!(job.start().is_err());
        job.delete()?;
    }
    Ok(())
}

fn it_is_ended_before_its_start(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    created(stasis, job)?;
    let deleted = job.runtime(&["delete", &job.id]).status()?;
    assert!(deleted.success());
    assert_eq!(job.status()?, "");
    created(stasis, job)?;
    assert!(job.runtime(&["kill", &job.id, "KILL"]).status()?.success());
    wait_until_clear(|| Ok(Some(job.status()?).filter(|status| status != "stopped")))?;
    assert!(job.start().is_err());
    job.delete()
}

fn nothing_else_touches_it_before(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    created(stasis, job)?;
    let refused = said(job.resume())?;
    assert_contains(&refused, &["[not-started]", "start it first"]);
    let refused = job.checkpoint_fails("early", &[])?;
    assert_contains(&refused, &["[not-started]", "nothing was changed"]);
    assert!(job.exec("true").is_err());
    stasis.run(&["stasis", "recover"])?;
    assert_eq!(job.status()?, "created");
    job.start()?;
    assert_eq!(stasis.ask_until_up(10000)?, "103");
    job.delete()
}

fn said(refused: Result<()>) -> Result<String> {
    match refused {
        Ok(()) => bail!("it was not refused"),
        Err(error) => Ok(error.to_string()),
    }
}

/// Kills at the create, before and after CRIU's part, and at the start.
fn what_is_killed_leaves_nothing(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let killed = "kill -9 $PPID; exit 1";
    job.begin_with("job-good")?;
    let low_level = &stasis.low_level;
    let after = format!("{low_level} \"$@\"; {killed}");
    for script in [killed, &after] {
        job.before("restore", script, AT_CREATE)?;
        assert!(job.create().is_err());
        stasis.nothing_to_put_right()?;
        assert_eq!(job.status()?, "");
        assert!(stasis.is_silent(10000)?);
    }
    stasis.set(low_level, AT_CREATE)?;
    created(stasis, job)?;
    stasis.hold_driver("restore job", "late")?;
    let mut start = job.runtime(&["start", &job.id]).spawn()?;
    stasis.until_driver_is_called()?;
    let runtime = descendant(&start, "stasis-runtime")?.context("it is over")?;
    kill(runtime, Signal::SIGKILL)?;
    start.wait()?;
    stasis.let_driver_go("late")?;
    stasis.inject("")?;
    stasis.nothing_to_put_right()?;
    assert_eq!(job.status()?, "");
    Ok(())
}

/// A caller without an answer asks again: the image is restored, and neither create starts cold.
fn the_second_of_two_creates_takes_nothing_away(
    stasis: &StasisHost,
    job: &Bundle<'_>,
) -> Result<()> {
    job.begin_with("job-good")?;
    let held = stasis.path("/run/held");
    let script = ": >/run/held; while [ -e /run/held ]; do sleep 0.1; done";
    job.before("restore", script, AT_CREATE)?;
    let mut first = job.begin_create()?;
    wait_until_clear(|| Ok((!held.exists()).then(|| "no restore".to_owned())))?;
    let directory = job.directory();
    let second = ["create", "--bundle", &directory, &job.id];
    let mut second = job.runtime(&second).stderr(Stdio::null()).spawn()?;
    let waits = || -> Result<bool> {
        let runtime = descendant(&second, "stasis-runtime")?;
        let runtime = runtime.context("the second one is over")?;
        let doing = fs::read_to_string(format!("/proc/{runtime}/syscall"));
        Ok(doing.unwrap_or_default().starts_with(SLEEPS))
    };
    wait_until_clear(|| Ok((!waits()?).then(|| "the second one".to_owned())))?;
    fs::remove_file(held)?;
    assert!(first.wait()?.success() && !second.wait()?.success());
    stasis.set(&stasis.low_level, AT_CREATE)?;
    assert_eq!(job.warnings()?, "");
    job.start()?;
    assert_eq!(stasis.ask_until_up(10000)?, "102");
    job.delete()
}

/// Images as a machine leaves them that has lost power. The image before them is taken.
fn what_is_damaged_is_passed_over(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let good = job.image("good");
    let script = format!(
        "mkdir /images/key; cd /images/key; for name in 1 2 3; do cp -a {good} $name; done
         : >2/pstree.img; : >3/stasis.json"
    );
    stasis.run(&["sh", "-ec", &script])?;
    job.begin_with("latest:key")?;
    job.create()?;
    assert_eq!(job.warnings()?, "");
    let notes = stasis.last_operation()?["notes"].to_string();
    let taken = "and /images/key/1 taken in its place";
    for (image, why) in [("2", "pstree.img"), ("3", "stasis.json")] {
        let passed_over = format!("/images/key/{image} is passed over, {taken}");
        assert_contains(&notes, &[&passed_over, why]);
    }
    job.start()?;
    assert_eq!(stasis.ask_until_up(10000)?, "102");
    job.delete()
}

fn what_cannot_be_restored_starts_cold(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    stasis.run(&["cp", "-a", &job.image("good"), &job.image("bad")])?;
    let pstree = job.image_path("bad/pstree.img");
    fs::write(&pstree, "no image")?;
    starts_cold(stasis, job, "job-bad", "pstree.img")?;
    fs::remove_file(job.image_path("bad/stasis.json"))?;
    starts_cold(stasis, job, "latest:job-bad", "no complete image")?;
    starts_cold(stasis, job, "job-bad", "criu")?;
    starts_cold(stasis, job, "job-none", "no complete image")?;
    starts_cold(stasis, job, "/etc", "not below a directory")?;
    job.annotate("io.kubernetes.cri.sandbox-namespace", "red")?;
    starts_cold(stasis, job, "/images/job-good", "not below a directory")?;
    job.change(|spec| spec["annotations"] = json!({}))?;
    let before = job.spec()?;
    let mount = json!({
        "destination": "/mnt", "source": "/run", "type": "bind", "options": ["bind"]
    });
    job.change(|spec| {
        if let Some(mounts) = spec["mounts"].as_array_mut() {
            mounts.push(mount);
        }
    })?;
    starts_cold(stasis, job, "job-good", "")?;
    job.change(|spec| *spec = before)?;
    stasis.inject("memory 90")?;
    stasis.set(&stasis.low_level, "")?;
    starts_cold(stasis, job, "job-good", "restore.at_create")
}

fn starts_cold(stasis: &StasisHost, job: &Bundle<'_>, image: &str, why: &str) -> Result<()> {
    let case = || format!("{image}: {why}");
    job.begin_with(image)?;
    job.create().with_context(case)?;
    assert_contains(&job.warnings()?, &["started cold", why]);
    let notes = stasis.last_operation()?["notes"].to_string();
    assert_contains(&notes, &["started cold", why]);
    assert_eq!(job.status()?, "created");
    job.start().with_context(case)?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    job.delete()
}

fn what_is_no_name_creates_nothing(_: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    for (image, why) in [
        ("example.com/job", "HOST/NAME:TAG"),
        ("../job-good", "is neither"),
    ] {
        job.begin_with(image)?;
        let refused = said(job.create())?;
        assert_contains(&refused, &["io.stasis.restore", why, "nothing was created"]);
    }
    Ok(())
}

fn without_a_gpu(stasis: &StasisHost) -> Result<()> {
    let plain = &Bundle::make(
        stasis,
        "plain",
        &["/bin/sh", "-c", "while :; do echo; done"],
    )?;
    plain.change(|spec| spec["linux"]["devices"] = json!([]))?;
    plain.run()?;
    plain.checkpoint("images/1", &[])?;
    plain.delete()?;
    plain.begin_with("latest:plain-images")?;
    plain.create()?;
    assert_eq!(
        (plain.warnings()?.as_str(), plain.status()?.as_str()),
        ("", "created")
    );
    let stat = stasis.path(format!("/proc/{}/stat", plain.pid()?));
    let time = || {
        Ok::<_, anyhow::Error>(
            fs::read_to_string(&stat)?
                .split(' ')
                .nth(13)
                .map(str::to_owned),
        )
    };
    let before = time()?;
    plain.start()?;
    wait_until_clear(|| Ok((time()? == before).then(|| "it does not run".to_owned())))?;
    plain.delete()
}
