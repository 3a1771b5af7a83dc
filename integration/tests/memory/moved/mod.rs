//! `stasis push` and `stasis pull`: images go elsewhere, are removed with all their files on this
//! machine, and come back.

mod arrives;
mod created;
mod few_capabilities;
mod layout;
mod named;
mod refused;
mod registry;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::contents::{DISK, ON_DISK};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::needs;

use layout::Layout;

/// One process with much GPU memory that stays the same, and one with little, whose contents change
/// with each question. Each has 16 MiB of host memory as well.
const COMMAND: &str = "/bin/memcheck 40 10000 & exec /bin/memcheck 4 10001";
const LARGE: u16 = 10000;
const SMALL: u16 = 10001;

#[test]
fn a_job_goes_on_from_an_image_that_was_pushed_and_pulled() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid()?)?;
    let job = Bundle::make(stasis, "job", &["/bin/sh", "-c", COMMAND])?;
    job.run()?;
    stasis.ask_until_up(LARGE)?;
    stasis.ask_until_up(SMALL)?;
    stasis.set("runc", ON_DISK)?;
    let layout = Layout::at(stasis, "/var/images");
    job.checkpoint("first", &["--leave-running"])?;
    holds_its_memory(stasis, SMALL)?;
    job.checkpoint("second", &[])?;
    the_second_image_moves_its_differences(stasis, &job, &|name| layout.tagged(name))?;
    refused::what_is_not_an_image_is_refused(stasis, &layout)?;
    refused::a_full_disk_is_told(stasis, &layout, &job.image("second"))?;
    registry::an_image_travels_through_a_registry(stasis, &job, &layout)?;
    for lost in [&job.image("first"), &job.image("second"), DISK] {
        stasis.run(&["rm", "-rf", lost])?;
    }
    moved(
        stasis,
        &["pull", &layout.tagged("second"), &job.image("pulled")],
    )?;
    stasis.run(&[PROGRAM, "verify", &job.image("pulled")])?;
    job.restore("pulled")?;
    holds_its_memory(stasis, LARGE)?;
    holds_its_memory(stasis, SMALL)?;
    job.delete()
}

fn the_second_image_moves_its_differences(
    stasis: &StasisHost,
    job: &Bundle<'_>,
    tagged: &dyn Fn(&str) -> String,
) -> Result<()> {
    let push = |name: &str| moved(stasis, &["push", &tagged(name), &job.image(name)]);
    let first = push("first")?;
    ensure!(first["moved_bytes"] == first["bytes"], "{first}");
    let second = push("second")?;
    let [moved, all] = ["moved_bytes", "bytes"].map(|name| second[name].as_u64());
    // The 20 MiB of the asked process; all are 80 MiB, with the contents of the first image alone.
    ensure!(moved < all.map(|all| all / 3), "{second}");
    // A blob of files and one of memory are moved; one of each was there.
    ensure!(
        second["moved_blobs"] == 2 && second["blobs"] == 4,
        "{second}"
    );
    let again = push("second")?;
    ensure!(
        again["moved_bytes"] == 0 && again["digest"] == second["digest"],
        "{again}"
    );
    Ok(())
}

fn holds_its_memory(stasis: &StasisHost, port: u16) -> Result<()> {
    let answer = stasis.ask(port)?;
    let answer = answer.context("it does not answer")?;
    ensure!(answer.starts_with("ok "), "{answer}");
    Ok(())
}

/// Runs `stasis`, which has to succeed. Returns its answer.
fn moved(stasis: &StasisHost, arguments: &[&str]) -> Result<Value> {
    let command = [&[PROGRAM], arguments, &["--json"]].concat();
    Ok(serde_json::from_str(&stasis.run_for_text(&command)?)?)
}
