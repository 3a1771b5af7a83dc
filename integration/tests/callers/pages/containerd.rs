//! docs/containerd.md as written: ways to name stasis, the link in place of containerd's shim and
//! its exchange, and CRIU's settings for jobs whose processes talk.

use anyhow::{Context, Result, ensure};
use stasis_integration::client::ctr::gpu_options;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};

use super::node::{ARCHIVE, IMAGE, has_an_image, has_systemctl};
use super::{blocks, page, run};

const OF_CTR: &str = "ctr";
const IN_PLACE: &str = "In place of containerd's own shim";
const BACK: &str = "Going back";
const JOBS: &str = "Jobs of several processes";
const PORT: u16 = 10000;
const RUNC_CONF: &str = "/etc/criu/runc.conf";
/// A training with a connection to itself.
const TALKS: &str = "mkfifo /in; nc -l -p 7000 -e /bin/cat & \
     (until nc 127.0.0.1 7000; do :; done) </in >/dev/null & exec 3>/in; exec /bin/counter 10000";

on_hosts!(every_block_does_what_is_said: trixie, sid_v2);

fn every_block_does_what_is_said(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let page = page("docs/containerd.md")?;
    let stasis = &StasisHost::of(kind)?;
    stasis.install_shim()?;
    let host = &stasis.host;
    has_an_image(host)?;
    has_systemctl(host)?;
    host.run(&["systemctl", "restart", "containerd"])?;
    host.run(&["ctr", "image", "import", ARCHIVE])?;
    each_way_is_of_stasis(stasis, &page)?;
    link_is_put_and_exchanged(stasis, &page)?;
    connections_are_saved(stasis, &page)
}

/// ctr 1.7 takes no device of CDI.
fn options() -> String {
    format!("-d --cpu-shares 0 {}", gpu_options("job").join(" "))
}

fn each_way_is_of_stasis(stasis: &StasisHost, page: &str) -> Result<()> {
    let [ways] = blocks(page, OF_CTR)?;
    ensure!(ways.lines().count() == 3, "{ways}");
    for way in ways.lines() {
        let way = way.replacen("...", &format!("{} {IMAGE} job", options()), 1);
        run(stasis, &way)?;
        ensure!(stasis.ask_until_up(PORT)? == "101", "{way}");
        run(stasis, "stasis check job").with_context(|| way.clone())?;
        stasis.ctr_checkpoint("job", "example.com/job:1")?;
        ensure!(stasis.ask_until_up(PORT)? == "102", "{way}");
        ensure!(stasis.operation("checkpoint")?.get("error").is_none());
        stasis.ctr_remove("job")?;
        run(stasis, "ctr image rm example.com/job:1")?;
    }
    Ok(())
}

fn link_is_put_and_exchanged(stasis: &StasisHost, page: &str) -> Result<()> {
    let [in_place] = blocks(page, IN_PLACE)?;
    run(stasis, &in_place)?;
    run(stasis, &format!("ctr run {} {IMAGE} job", options()))?;
    ensure!(stasis.ask_until_up(PORT)? == "101");
    ensure!(stasis.shims()?.len() == 1, "it is not our shim");
    let [that_need_a_path, exchange] = blocks(page, BACK)?;
    let found = run(stasis, &that_need_a_path)?;
    ensure!(found == "default/job/shim-binary-path", "{found}");
    run(stasis, &exchange)?;
    run(
        stasis,
        &format!("ctr run {} {IMAGE} other /bin/pause", options()),
    )?;
    ensure!(stasis.shims()?.len() == 1, "a new one has our shim");
    ensure!(stasis.ask_until_up(PORT)? == "102");
    stasis.ctr_remove("other")?;
    stasis.ctr_remove("job")
}

/// Without the page's settings its checkpoint is refused.
fn connections_are_saved(stasis: &StasisHost, page: &str) -> Result<()> {
    let [settings] = blocks(page, JOBS)?;
    let named = format!("--runtime io.containerd.stasis.v2 {}", options());
    let talks = format!("ctr run {named} {IMAGE} job /bin/sh -c '{TALKS}'");
    run(stasis, &talks)?;
    ensure!(stasis.ask_until_up(PORT)? == "101");
    let refused = stasis.command(PROGRAM).args(["check", "job"]).output()?;
    let refused = String::from_utf8_lossy(&refused.stdout).into_owned();
    ensure!(refused.contains("tcp-connection"), "{refused}");
    stasis.run(&["mkdir", "-p", "/etc/criu"])?;
    stasis.write(RUNC_CONF, &settings)?;
    run(stasis, "stasis check job")?;
    stasis.ctr_checkpoint("job", "example.com/job:talks")?;
    ensure!(stasis.ask_until_up(PORT)? == "102");
    stasis.ctr_remove("job")
}
