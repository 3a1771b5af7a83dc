//! Who is odd is left to CRIU, alone; and so is everything where the kernel or an old pack lets the
//! plugin down.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::memory_container::names_in;
use stasis_integration::host::HostKind;
use stasis_integration::host::c_build;
use stasis_integration::host::installed::{PROGRAM, RUNTIME, StasisHost};

/// `PAGEMAP_SCAN` (linux/fs.h).
const PAGEMAP_SCAN: &str = "c0606610";
const HEAPS: &str = "/bin/heaps 10000 24 random plain heap";
/// CRIU's record of what the kernel can do (criu/kerndat.c).
const KERNEL_DATA: &str = "/run/criu.kdat";
/// A program that becomes another one, for which the kernel lacks an ioctl.
const DENY: &str = "/usr/local/bin/deny";
const DISK: &str = "/var/lib/stasis/memory";

#[test]
fn what_is_odd_is_left_to_criu() -> Result<()> {
    let stasis = StasisHost::of(HostKind::sid()?)?;
    let _containerd = stasis.containerd()?;
    stasis.set("runc", "bulk_memory = { heaps = true, tier = \"disk\" }\n")?;
    a_damaged_pack_is_not_referred_to(&stasis).context("a damaged pack")?;
    asynchronous_io(&stasis).context("AIO")?;
    a_ring_that_criu_refuses(&stasis).context("io_uring")?;
    no_more_processes(&stasis).context("no more processes")?;
    stasis
        .host
        .install(&c_build::build()?.join("bin/deny"), DENY)?;
    what_the_machine_can_do(&stasis).context("stasis check --machine")?;
    a_kernel_that_does_not_scan_pages(&stasis).context("PAGEMAP_SCAN")
}

/// Starts a shell's command with a port.
fn start<'l>(stasis: &'l StasisHost, id: &str, command: &str, port: u16) -> Result<Bundle<'l>> {
    let job = Bundle::make(stasis, id, &["/bin/sh", "-c", command])?;
    job.run()?;
    stasis.ask_until_up(port)?;
    Ok(job)
}

fn is_whole(stasis: &StasisHost, port: u16) -> Result<()> {
    let answer = stasis.ask(port)?.context("it does not answer")?;
    ensure!(answer.starts_with("ok "), "{answer}");
    Ok(())
}

/// Checks how many processes were moved in the last checkpoint, and why the others were not.
fn moved(stasis: &StasisHost, processes: u64, why: &str) -> Result<()> {
    let report = stasis.operation("checkpoint")?["bulk_memory"].clone();
    ensure!(report["processes"] == processes, "{report}");
    assert_contains(&report["left_to_criu"].to_string(), &[why]);
    Ok(())
}

/// A bit is flipped in the pack of an earlier checkpoint, which the next one would refer to.
fn a_damaged_pack_is_not_referred_to(stasis: &StasisHost) -> Result<()> {
    let job = start(stasis, "damaged", &format!("exec {HEAPS}"), 10000)?;
    job.checkpoint("first", &["--leave-running"])?;
    let store = stasis.host.path(DISK);
    let [id] = &names_in(&store)?[..] else {
        anyhow::bail!("there is not one store");
    };
    let names = names_in(&store.join(id))?.into_iter();
    for pack in names.filter(|name| name.ends_with(".pack")) {
        let pack = store.join(id).join(pack);
        let mut bytes = fs::read(&pack)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&pack, bytes)?;
    }
    for (image, options) in [("running", &["--leave-running"][..]), ("ended", &[])] {
        job.checkpoint(image, options)?;
        let report = stasis.operation("checkpoint")?["bulk_memory"].clone();
        ensure!(report["reused_bytes"].as_u64() > Some(0), "{report}");
        if image == "running" {
            assert_contains(&report["not_reused"].to_string(), &["is damaged at"]);
            is_whole(stasis, 10000)?;
        }
    }
    for image in ["ended", "running"] {
        job.restore(image)?;
        is_whole(stasis, 10000)?;
        job.delete()?;
    }
    Ok(())
}

/// The kernel may write to the memory of one of two processes.
fn asynchronous_io(stasis: &StasisHost) -> Result<()> {
    let command = format!("/bin/aio 10001 24 & exec {HEAPS}");
    let job = start(stasis, "aio", &command, 10000)?;
    stasis.ask_until_up(10001)?;
    for options in [&["--leave-running"][..], &[]] {
        job.checkpoint("image", options)?;
        moved(stasis, 1, "it has asynchronous I/O")?;
        if options.is_empty() {
            job.restore("image")?;
        }
        is_whole(stasis, 10000)?;
        is_whole(stasis, 10001)?;
    }
    job.delete()
}

/// Nothing was taken when CRIU refuses it.
fn a_ring_that_criu_refuses(stasis: &StasisHost) -> Result<()> {
    let command = format!("exec /bin/ring {HEAPS}");
    let job = start(stasis, "ring", &command, 10000)?;
    let message = job.checkpoint_fails("image", &["--leave-running"])?;
    assert_contains(&message, &["io-uring", "nothing was changed"]);
    let settings = "bulk_memory = { heaps = true, tier = \"disk\" }\n";
    let allowed = "preflight.allow = [\"io-uring\"]\n";
    stasis.set("runc", &format!("{settings}{allowed}"))?;
    job.checkpoint_fails("image", &["--leave-running"])?;
    stasis.set("runc", settings)?;
    let log = fs::read_to_string(job.image_path("image/dump.log"))?;
    assert_contains(&log, &["left to CRIU: process 1", "asynchronous I/O"]);
    is_whole(stasis, 10000)?;
    job.delete()
}

/// The container may have no more processes, and the plugin needs one more in it.
fn no_more_processes(stasis: &StasisHost) -> Result<()> {
    let job = start(stasis, "full", &format!("exec {HEAPS}"), 10000)?;
    let update = ["update", "--pids-limit", "1", "full"];
    ensure!(job.runtime(&update).status()?.success(), "no limit is set");
    job.checkpoint("image", &["--leave-running"])?;
    moved(stasis, 0, "cannot get at the memory of process")?;
    is_whole(stasis, 10000)?;
    job.delete()
}

fn what_the_machine_can_do(stasis: &StasisHost) -> Result<()> {
    let check = [PROGRAM, "check", "--machine"];
    let text = stasis
        .host
        .run_for_text(&[&check[..], &["--json"]].concat())?;
    let machine: Value = serde_json::from_str(&text)?;
    ensure!(machine["kernel"]["pagemap_scan"] == true, "{machine}");
    ensure!(machine["driver"].is_string(), "{machine}");
    ensure!(machine["fall_backs"] == json!([]), "{machine}");
    let denied = [&[DENY, PAGEMAP_SCAN], &check[..]].concat();
    let text = stasis.host.run_for_text(&denied)?;
    assert_contains(&text, &["PAGEMAP_SCAN: no", "CRIU alone moves heaps"]);
    Ok(())
}

/// As before Linux 6.7: first for CRIU alone, then for the engine, too.
fn a_kernel_that_does_not_scan_pages(stasis: &StasisHost) -> Result<()> {
    let criu = "/usr/local/sbin/criu";
    // CRIU keeps what it has found out about the kernel.
    let script = format!(
        "#!/bin/sh\nrm -f {KERNEL_DATA}\nexec {DENY} {PAGEMAP_SCAN} /usr/sbin/criu \"$@\"\n"
    );
    let job = start(stasis, "old", &format!("exec {HEAPS}"), 10000)?;
    stasis.host.write(criu, &script)?;
    stasis.host.run(&["chmod", "755", criu])?;
    job.checkpoint("running", &["--leave-running"])?;
    moved(stasis, 0, "cannot see the pages of process")?;
    is_whole(stasis, 10000)?;
    job.checkpoint("ended", &[])?;
    stasis.host.run(&["rm", "-f", criu, KERNEL_DATA])?;
    job.restore("ended")?;
    is_whole(stasis, 10000)?;

    let engine = "/usr/local/bin/old-runtime";
    let script = format!("#!/bin/sh\nexec {DENY} {PAGEMAP_SCAN} {RUNTIME} \"$@\"\n");
    stasis.host.write(engine, &script)?;
    stasis.host.run(&["chmod", "755", engine])?;
    let job = job.through(engine);
    stasis.host.run(&["rm", "-f", KERNEL_DATA])?;
    job.checkpoint("ended", &[])?;
    let notes = stasis.operation("checkpoint")?["notes"].to_string();
    assert_contains(&notes, &["CRIU alone moves the memory", "PAGEMAP_SCAN"]);
    stasis.host.run(&["rm", "-f", KERNEL_DATA])?;
    let job = job.through(RUNTIME);
    job.restore("ended")?;
    is_whole(stasis, 10000)?;
    job.delete()
}
