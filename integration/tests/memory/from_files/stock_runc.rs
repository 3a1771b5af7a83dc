//! An image with holes and a stock runc: no container is restored without its GPU contents.

use std::fs;

use anyhow::{Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::contents::IN_MEMORY;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PLUGIN, RUNTIME, StasisHost};
use stasis_integration::needs;

use super::{has_holes, started};

/// The directory in which CRIU looks for plugins that an image needs, if it exists.
const DEFAULT_PLUGINS: &str = "/usr/lib/criu";
const WITH_PLUGIN: &str = "/usr/local/bin/runc-with-plugin";

#[test]
fn nothing_is_restored() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid()?)?;
    let plugins = PLUGIN
        .rsplit_once('/')
        .map_or("/", |(directory, _)| directory);
    let script = format!("#!/bin/sh\nCRIU_LIBS_DIR={plugins} exec runc \"$@\"\n");
    stasis.script(WITH_PLUGIN, &script)?;
    stasis.run(&["mkdir", "-p", DEFAULT_PLUGINS])?;
    let mut holder = started(stasis)?;
    for settings in ["", IN_MEMORY] {
        stasis.set(&stasis.low_level, settings)?;
        holder.bundle.checkpoint("image", &[])?;
        has_holes(&holder, "image")?;
        // Without our plugin; and with it, but without a request to leave the holes to an engine.
        for (runc, why) in [
            ("runc", "plugin: stasis_memory"),
            (WITH_PLUGIN, "Failed in init"),
        ] {
            holder.bundle = holder.bundle.through(runc);
            holder.bundle.restore_fails("image")?;
            let log = format!("{}/work/restore.log", holder.bundle.directory());
            let log = fs::read_to_string(stasis.path(log))?;
            let errors: Vec<&str> = log.lines().filter(|line| line.contains("rror")).collect();
            assert_contains(&errors.join("\n"), &[why]);
            stasis.no_criu()?;
            ensure!(holder.processes()?.is_empty(), "{runc}: something is left");
            let all = stasis.run_for_text(&["ps", "-eo", "comm="])?;
            ensure!(!all.contains("memcheck"), "{runc}: {all}");
        }
        holder.bundle = holder.bundle.through(RUNTIME);
        holder.bundle.restore("image")?;
        holder.goes_on()?;
    }
    holder.end()
}
