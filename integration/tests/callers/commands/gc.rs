//! `stasis gc`.

use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::contents::{IN_MEMORY, MEMORY};
use stasis_integration::container::memory_container::names_in;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

use super::{json, run};

on_hosts!(what_is_not_to_be_kept_goes: trixie, sid_v2);

fn what_is_not_to_be_kept_goes(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let job = Bundle::make(stasis, "job", &["/bin/memcheck", "16", "10001"])?;
    job.comes_up(10001, "ok 0")?;
    for name in ["one", "two", "three"] {
        job.checkpoint(name, &["--leave-running"])?;
    }
    the_clock_was_ahead_at_the_first(stasis, &job)?;
    nothing_is_removed_unless_it_is_asked_for(stasis, &job)?;
    what_is_open_stays(stasis, &job)?;
    rests_of_a_checkpoint_go_and_its_image_stays(stasis, &job)?;
    what_is_being_restored_stays(stasis, &job)?;
    contents_go_with_their_image_unless_they_are_open(stasis, &job)
}

/// The image that was made first is the oldest one, although its time is the latest.
fn the_clock_was_ahead_at_the_first(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let path = job.image_path("one").join("stasis.json");
    let before = fs::read(&path)?;
    let mut manifest: Value = serde_json::from_slice(&before)?;
    manifest["created"] = "2099-01-01T00:00:00Z".into();
    fs::write(&path, serde_json::to_vec(&manifest)?)?;
    let (_, rows) = json(stasis, &["gc", "--keep", "1"])?;
    let older = ["two", "one"].map(|name| job.image(name));
    assert_eq!(facts(&rows, "image"), older);
    Ok(fs::write(&path, before)?)
}

fn nothing_is_removed_unless_it_is_asked_for(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let all = ["one", "two", "three"].map(|name| job.image(name));
    for nothing in [
        &["gc"][..],
        &["gc", "--keep", "3"],
        &["gc", "--older-than", "1h"],
    ] {
        assert_eq!(json(stasis, nothing)?, (Some(0), Vec::new()), "{nothing:?}");
    }
    // However old it is, the newest stays.
    for two in [
        &["gc", "--keep", "1"][..],
        &["gc", "--older-than", "0s", "--dry-run"],
    ] {
        let (code, rows) = json(stasis, two)?;
        assert_eq!(
            (code, facts(&rows, "image")),
            (Some(0), vec![all[1].clone(), all[0].clone()])
        );
        assert_eq!(facts(&rows, "result"), ["would-remove"; 2]);
        assert!(
            rows.iter()
                .all(|row| row["bytes"].as_u64() > Some(16 << 20)),
            "{rows:?}"
        );
    }
    for wrong in [
        &["gc", "--keep", "0", "--yes", "--container", "other"][..],
        &["gc", "--yes", "--dry-run"],
        &["gc", "--keep", "x"],
        &["gc", "all"],
    ] {
        assert_eq!(run(stasis, wrong)?.0, Some(2), "{wrong:?}");
    }
    let (_, stdout, _) = run(stasis, &["gc", "--keep", "2"])?;
    let line = format!("would remove image {} of container job, ", all[0]);
    assert_contains(
        &stdout,
        &[&line, "nothing was removed; --yes removes these, "],
    );
    assert_eq!(listed(stasis)?, all);
    Ok(())
}

fn what_is_open_stays(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let [one, two, three] = ["one", "two", "three"].map(|name| job.image(name));
    let mut reader = reader_of(stasis, &format!("{one}/pstree.img"))?;
    let (code, rows) = json(stasis, &["gc", "--keep", "1", "--yes"])?;
    assert_eq!(
        (code, facts(&rows, "image")),
        (Some(1), vec![two, one.clone()])
    );
    assert_eq!(facts(&rows, "result"), ["removed", "in-use"]);
    assert_eq!(rows[1]["kind"], "busy");
    assert_eq!(listed(stasis)?, [one, three.clone()]);
    drop(reader.stdin.take());
    ensure!(reader.wait()?.success());
    let (code, stdout, _) = run(stasis, &["gc", "--keep", "1", "--yes"])?;
    assert_eq!(code, Some(0), "{stdout}");
    assert_eq!(listed(stasis)?, [three]);
    ensure!(!job.image_path("one").exists() && !job.image_path("two").exists());
    Ok(())
}

fn rests_of_a_checkpoint_go_and_its_image_stays(
    stasis: &StasisHost,
    job: &Bundle<'_>,
) -> Result<()> {
    let rest = job.image_path("three").join(".stasis-new");
    fs::create_dir(&rest)?;
    fs::write(rest.join("core-1.img"), "cut off")?;
    let (code, rows) = json(stasis, &["gc", "--yes"])?;
    assert_eq!(
        (code, facts(&rows, "what")),
        (Some(0), vec!["rest".to_owned()])
    );
    ensure!(!rest.exists());
    Ok(())
}

/// Also on a read-only mount, and while neither its processes nor CRIU have a file of it open.
fn what_is_being_restored_stays(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let (image, read_only) = (job.image("three"), "/images/read-only");
    let mount = |arguments: &[&str]| stasis.run(&[&["mount"], arguments].concat());
    stasis.run(&["mkdir", read_only])?;
    mount(&["--bind", &image, read_only])?;
    mount(&["-o", "remount,bind,ro", read_only])?;
    job.delete()?;
    stasis.hold_driver_for("restore *", "gate", 1)?;
    let mut restore = job.begin_restore_from(read_only)?;
    stasis.until_driver_is_called()?;
    let (code, rows) = json(stasis, &["gc", "--keep", "0", "--yes"])?;
    assert_eq!(
        (code, facts(&rows, "result")),
        (Some(1), vec!["in-use".to_owned()])
    );
    stasis.let_driver_go("gate")?;
    ensure!(restore.wait()?.success(), "{:?}", job.message()?);
    stasis.inject("")?;
    stasis.run(&["umount", read_only])?;
    stasis.run(&["rmdir", read_only])?;
    assert_eq!(stasis.ask_until_up(10001)?, "ok 1");
    job.delete()?;
    job.restore("three")?;
    assert_eq!(stasis.ask_until_up(10001)?, "ok 1");
    let (code, rows) = json(stasis, &["gc", "--keep", "0", "--yes"])?;
    assert_eq!(
        (code, facts(&rows, "result")),
        (Some(0), vec!["removed".to_owned()])
    );
    assert_eq!(listed(stasis)?, [""; 0]);
    Ok(())
}

/// GPU contents that are stored apart from the image count as well.
fn contents_go_with_their_image_unless_they_are_open(
    stasis: &StasisHost,
    job: &Bundle<'_>,
) -> Result<()> {
    stasis.set(&stasis.low_level, IN_MEMORY)?;
    job.checkpoint("stored", &[])?;
    job.delete()?;
    let pack = format!("$(echo {MEMORY}/*/*.pack | cut -d' ' -f1)");
    let mut reader = reader_of(stasis, &pack)?;
    let everything = ["gc", "--keep", "0", "--yes"];
    let (code, rows) = json(stasis, &everything)?;
    assert_eq!(
        (code, facts(&rows, "result")),
        (Some(1), vec!["in-use".to_owned()])
    );
    assert_contains(
        rows[0]["error"].as_str().unwrap_or_default(),
        &["process ", " uses it"],
    );
    drop(reader.stdin.take());
    ensure!(reader.wait()?.success());
    let (code, rows) = json(stasis, &everything)?;
    assert_eq!(
        (code, facts(&rows, "result")),
        (Some(0), vec!["removed".to_owned()])
    );
    assert_eq!(names_in(&stasis.path(MEMORY))?, [""; 0]);
    stasis.nothing_to_put_right()
}

/// Starts a process of the host that has a file open until its standard input ends.
fn reader_of(stasis: &StasisHost, path: &str) -> Result<Child> {
    let script = format!("exec 3<{path}; echo; exec cat");
    let mut reader = stasis.command("sh");
    let reader = reader.args(["-c", &script]).stdin(Stdio::piped());
    let mut reader = reader.stdout(Stdio::piped()).spawn()?;
    let stdout = reader.stdout.as_mut().context("no pipe")?;
    stdout.read_exact(&mut [0])?;
    Ok(reader)
}

fn listed(stasis: &StasisHost) -> Result<Vec<String>> {
    let (_, rows) = json(stasis, &["images"])?;
    Ok(facts(&rows, "image"))
}

fn facts(rows: &[Value], key: &str) -> Vec<String> {
    let facts = rows.iter().filter_map(|row| row[key].as_str());
    facts.map(str::to_owned).collect()
}
