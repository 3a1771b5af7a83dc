//! Options of groups, blockers, and operations of others meanwhile.

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::client::answer::listed;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::container::contents::{DISK, ON_DISK};
use stasis_integration::host::installed::PROGRAM;

use super::three::{IDS, Three, answer, of};

const HELD: &str = "step";

/// The images are of one moment, and can be restored after the containers have gone on.
pub(super) fn left_running(three: &mut Three<'_>) -> Result<()> {
    let into = three.directory();
    let answer = three.checkpoint(&into, &["--leave-running"])?;
    ensure!(answer["result"] == "done" && answer["complete"] == true);
    for bundle in &three.bundles {
        ensure!(bundle.status()? == "running");
        let image = three.stasis.path(format!("{into}/{}", bundle.id));
        ensure!(image.join("inventory.img").exists());
        ensure!(!image.join(".stasis-new").exists() && !image.join(".stasis-group").exists());
    }
    let again = three.directory();
    let output = three.command(&IDS, &again, &["-R"]).output()?;
    let said = String::from_utf8(output.stdout)?;
    ensure!(
        said.starts_with("3 containers: checkpointed together in "),
        "{said}"
    );
    ensure!(
        said.ends_with(&format!(" s, into {again}; all keep running\n")),
        "{said}"
    );
    let group = std::fs::read(three.stasis.path(format!("{into}/group.json")))?;
    let group: serde_json::Value = serde_json::from_slice(&group)?;
    ensure!(group["containers"].as_array().context("none")?.len() == 3);
    let image = format!("{into}/b");
    let verify = [PROGRAM, "verify", "--here", &image];
    three.stasis.run(&verify).map(drop)
}

/// All together: refused if the room is not enough for all, ended if one fails, and restored.
pub(super) fn ended_and_restored(three: &mut Three<'_>) -> Result<()> {
    let into = three.directory();
    three.checkpoint(&into, &[])?;
    three.stasis.nothing_to_put_right()?;
    // Room for each of the two, and not for both.
    three.set("deadlines.room_s = 0\n")?;
    three.stasis.inject("memory 120")?;
    let refused = three.restore_fails(&into)?;
    ensure!(of(&refused, "b", "kind") == "no-gpu-memory", "{refused:#}");
    // crun would run a restored container before the others are restored.
    three.stasis.set("crun", "")?;
    let refused = three.restore_fails(&into)?;
    ensure!(of(&refused, "a", "kind") == "unsupported", "{refused:#}");
    three.set("")?;
    three.stasis.inject("restore b error:999 2")?;
    let failed = three.restore_fails(&into)?;
    ensure!(of(&failed, "b", "kind") == "driver", "{failed:#}");
    for id in ["a", "c"] {
        ensure!(of(&failed, id, "kind") == "group-abandoned", "{failed:#}");
        ensure!(of(&failed, id, "state") == "ended", "{failed:#}");
    }
    three.stasis.inject("")?;
    let output = three.restore_command(&into, &["--dry-run"]).output()?;
    let all = listed(&output.stdout)?;
    ensure!(
        all.len() == 3 && all.iter().all(|one| one["begins"] == true),
        "{all:#?}"
    );
    three.restore_together(&into)?;
    let output = three.restore_command(&into, &[]).output()?;
    let again = answer(&output)?;
    ensure!(output.status.code() == Some(1), "{again:#}");
    ensure!(
        of(&again, "a", "error").contains("container of this id"),
        "{again:#}"
    );
    Ok(())
}

/// A container that its caller has paused stays paused.
pub(super) fn one_is_paused(three: &mut Three<'_>) -> Result<()> {
    let into = three.directory();
    three.bundles[1].pause()?;
    three.checkpoint(&into, &["--leave-running"])?;
    ensure!(three.bundles[1].status()? == "paused");
    three.bundles[1].resume()
}

pub(super) fn a_blocker_in_one(three: &mut Three<'_>) -> Result<()> {
    let into = three.directory();
    three.stasis.inject("checkpoint b error:801 1")?;
    let answer = three.fails(&into, &[])?;
    ensure!(of(&answer, "b", "kind") == "unsupported", "{answer:#}");
    ensure!(of(&answer, "a", "kind") == "group-abandoned", "{answer:#}");
    for id in IDS {
        ensure!(of(&answer, id, "state") == "unharmed", "{answer:#}");
    }
    three.stasis.inject("checkpoint b error:801 1")?;
    let output = three.command(&IDS, &into, &[]).output()?;
    let (stdout, stderr) = (
        String::from_utf8(output.stdout)?,
        String::from_utf8(output.stderr)?,
    );
    ensure!(
        stdout == "3 containers: none is checkpointed, and all are as before\n",
        "{stdout}"
    );
    ensure!(
        stderr.starts_with("stasis: b: gpu checkpoint of "),
        "{stderr}"
    );
    ensure!(stderr.matches("unsupported").count() == 1, "{stderr}");
    ensure!(
        stderr.ends_with("stasis: b cannot be checkpointed [group-abandoned]\n"),
        "{stderr}"
    );
    Ok(())
}

pub(super) fn not_locked_in_time(three: &mut Three<'_>) -> Result<()> {
    let into = three.directory();
    three.set("deadlines.lock_ms = 300\n")?;
    three.stasis.inject("lock b error:600")?;
    let answer = three.fails(&into, &["--leave-running"])?;
    ensure!(answer["kind"] == "lock-timeout", "{answer:#}");
    three.set("")
}

pub(super) fn a_full_disk_for_one(three: &mut Three<'_>) -> Result<()> {
    without_room_for("b", three)
}

/// In its dump: the GPU contents of the other, whose image is on disk, are removed with that.
pub(super) fn a_full_disk_beside_contents_apart(three: &mut Three<'_>) -> Result<()> {
    three.set(&format!("{ON_DISK}preflight.disk_space = \"ignore\"\n"))?;
    without_room_for("a", three)?;
    let left = three.stasis.run_for_text(&["find", DISK, "-type", "f"])?;
    ensure!(left.is_empty(), "{left}");
    three.set("")
}

fn without_room_for(id: &str, three: &mut Three<'_>) -> Result<()> {
    let into = three.directory();
    let image = format!("{into}/{id}");
    three.stasis.run(&["mkdir", "-p", &image])?;
    three.stasis.host.mount_memory(1 << 17, &image)?;
    let answer = three.fails(&into, &[]);
    three.stasis.run(&["umount", &image])?;
    let answer = answer?;
    ensure!(of(&answer, id, "kind") == "no-space", "{answer:#}");
    Ok(())
}

pub(super) fn refusals(three: &mut Three<'_>) -> Result<()> {
    let into = three.directory();
    let refused = |ids: &[&str], into: &str| -> Result<String> {
        let output = three.command(ids, into, &["-R"]).output()?;
        ensure!(output.status.code() == Some(2));
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_contains(
        &refused(&["a", "b", "a"], &into)?,
        &["same container", "[no-container]"],
    );
    assert_contains(
        &refused(&["a", "none"], &into)?,
        &["none", "[no-container]"],
    );
    ensure!(!three.stasis.path(&into).exists());
    three.checkpoint(&into, &["-R"])?;
    assert_contains(
        &refused(&["a", "b"], &into)?,
        &["holds the images", "[image-directory]"],
    );
    let without = [
        "restore",
        "--group",
        &into,
        "--root",
        ROOT,
        "--bundle",
        "a=/run/bundle-a",
    ];
    let said = three.stasis.fails(&[&[PROGRAM][..], &without].concat())?;
    assert_contains(&said, &["no bundle is named for b", "--bundle b=DIRECTORY"]);
    let alone = ["checkpoint", "a", "b", "--root", ROOT];
    let said = three.stasis.fails(&[&[PROGRAM][..], &alone].concat())?;
    assert_contains(&said, &["--group"]);
    Ok(())
}

/// The first is complete; the second is refused, and has changed nothing.
pub(super) fn two_that_overlap(three: &mut Three<'_>) -> Result<()> {
    let (first, second) = (three.directory(), three.directory());
    three.stasis.hold_driver("checkpoint b", HELD)?;
    let begun = three.begin(&first, &["-R", "--json"])?;
    three.stasis.until_driver_is_called()?;
    let output = three
        .command(&["b", "c"], &second, &["-R", "--json"])
        .output()?;
    three.stasis.let_driver_go(HELD)?;
    let refused = answer(&output)?;
    ensure!(of(&refused, "b", "kind") == "busy", "{refused:#}");
    let output = begun.wait_with_output()?;
    let done = answer(&output)?;
    ensure!(done["result"] == "done", "{done:#}");
    three.no_image(&second)
}

/// A process of one is killed while all are locked; that container is started anew.
pub(super) fn one_ends_meanwhile(three: &mut Three<'_>) -> Result<()> {
    let into = three.directory();
    three.checkpoint(&into, &["-R"])?;
    let failed = three.directory();
    three.stasis.hold_driver("checkpoint a", HELD)?;
    let begun = three.begin(&failed, &["--json"])?;
    three.stasis.until_driver_is_called()?;
    three.kill("^/bin/memcheck")?;
    three.stasis.let_driver_go(HELD)?;
    let output = begun.wait_with_output()?;
    let answer = answer(&output)?;
    ensure!(answer["complete"] == false, "{answer:#}");
    ensure!(of(&answer, "b", "state") == "ended", "{answer:#}");
    ensure!(of(&answer, "a", "state") == "unharmed", "{answer:#}");
    three.no_image(&failed)?;
    three.stasis.nothing_to_put_right()?;
    three.bundles[1].delete()?;
    let mut restore = three.bundles[1].begin_restore_from(&format!("{into}/b"))?;
    ensure!(restore.wait()?.success());
    Ok(())
}

pub(super) fn a_dry_run(three: &mut Three<'_>) -> Result<()> {
    let into = three.directory();
    let output = three
        .command(&IDS, &into, &["--dry-run", "--json"])
        .output()?;
    let all = listed(&output.stdout)?;
    ensure!(
        all.len() == 3 && all.iter().all(|one| one["checkpointable"] == true),
        "{all:#?}"
    );
    ensure!(!three.stasis.path(&into).exists());
    Ok(())
}

/// A container that had no CUDA when the checkpoint began: the driver would not save its GPU state.
pub(super) fn one_starts_cuda_meanwhile(three: &mut Three<'_>) -> Result<()> {
    let stasis = three.stasis;
    let late = Bundle::make(stasis, "late", &["/bin/late", "10402"])?;
    late.run()?;
    stasis.hold_driver("lock a", HELD)?;
    let into = three.directory();
    let together = three
        .command(&["a", "late"], &into, &["-R", "--json"])
        .spawn()?;
    stasis.until_driver_is_called()?;
    ensure!(stasis.ask_until_up(10402)? == "101");
    stasis.let_driver_go(HELD)?;
    let refused = answer(&together.wait_with_output()?)?;
    ensure!(
        of(&refused, "late", "kind") == "process-started-cuda",
        "{refused:#}"
    );
    ensure!(of(&refused, "late", "state") == "unharmed", "{refused:#}");
    three.no_image(&into)?;
    ensure!(stasis.ask(10402)?.as_deref() == Some("102"));
    late.delete()
}
