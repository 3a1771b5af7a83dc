//! Calls without a GPU work as with the low-level runtime alone, whatever is wrong with stasis.

use std::fs;

use anyhow::{Result, ensure};
use serde_json::json;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{SETTINGS, StasisHost};
use stasis_integration::on_hosts;

/// A directory in which no file can be made.
const NOWHERE: &str = "paths.state_dir = \"/proc/nowhere\"\n";

on_hosts!(all_cases: trixie_v2);

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    a_plain_container_is_checkpointed_without_a_state_directory(stasis)?;
    an_image_directory_is_made_with_those_above_it(stasis)?;
    a_mistake_in_the_settings_keeps_nobody_from_ending_a_container(stasis)
}

fn a_plain_container_is_checkpointed_without_a_state_directory(stasis: &StasisHost) -> Result<()> {
    let plain = Bundle::make(stasis, "plain", &["/bin/pause"])?;
    plain.change(|spec| spec["linux"]["devices"] = json!([]))?;
    plain.run()?;
    stasis.set("runc", NOWHERE)?;
    plain.checkpoint("image", &[])?;
    stasis.set("runc", "")?;
    plain.restore("image")?;
    assert_eq!(plain.status()?, "running");
    plain.delete()
}

fn an_image_directory_is_made_with_those_above_it(stasis: &StasisHost) -> Result<()> {
    let counter = Bundle::make(stasis, "deep", &["/bin/counter", "10000"])?;
    counter.comes_up(10000, "101")?;
    counter.checkpoint("a/new/image", &[])?;
    counter.restore("a/new/image")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    counter.delete()
}

fn a_mistake_in_the_settings_keeps_nobody_from_ending_a_container(
    stasis: &StasisHost,
) -> Result<()> {
    let counter = Bundle::make(stasis, "mistake", &["/bin/counter", "10001"])?;
    counter.comes_up(10001, "101")?;
    let right = fs::read_to_string(stasis.path(SETTINGS))?;
    stasis.write(SETTINGS, &format!("{right}[deadlines]\nlock_mss = 1\n"))?;
    let message = counter.checkpoint_fails("refused", &[])?;
    assert_contains(&message, &["stasis.toml:", "lock_mss"]);
    assert_eq!(counter.status()?, "running");
    assert_eq!(counter.exec("echo here")?, "here");
    counter.pause()?;
    counter.resume()?;
    let killed = counter.runtime(&["kill", "mistake", "TERM"]).output()?;
    let errors = String::from_utf8_lossy(&killed.stderr);
    ensure!(killed.status.success() && errors.is_empty(), "{errors}");
    counter.delete()?;
    let log = format!("{}/log.json", counter.directory());
    let log = fs::read_to_string(stasis.path(log))?;
    assert_contains(&log, &["\"level\":\"warning\"", "lock_mss"]);
    stasis.set("runc", "")
}
