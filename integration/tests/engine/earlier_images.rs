//! Images that earlier versions have made, stored in `earlier-images`: they restore, and the
//! container can be checkpointed again.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::earlier_images::{BUNDLE, ID, VERSIONS, archive};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

const PORT: u16 = 10000;

// They were made in a container without version 1 cgroups.
on_hosts!(each_version: trixie_v2, sid_v2);

fn each_version(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::of(kind)?;
    let pages = Bundle::laid_out(stasis, ID);
    unpack(stasis, BUNDLE, &pages.directory())?;
    for version in VERSIONS {
        restores(stasis, &pages, version).with_context(|| format!("version {version}"))?;
    }
    Ok(())
}

fn restores(stasis: &StasisHost, pages: &Bundle<'_>, version: u32) -> Result<()> {
    let name = version.to_string();
    unpack(stasis, &name, &pages.image(&name))?;
    assert_eq!(pages.manifest(&name)?["version"], version);
    pages.restore(&name)?;
    assert_eq!(stasis.ask_until_up(PORT)?, "ok 3");
    pages.checkpoint("again", &[])?;
    assert_eq!(pages.manifest("again")?["version"], 5);
    pages.restore("again")?;
    assert_eq!(stasis.ask_until_up(PORT)?, "ok 4");
    pages.delete()
}

fn unpack(stasis: &StasisHost, name: &str, directory: &str) -> Result<()> {
    stasis.host.run(&["mkdir", "-p", directory])?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(archive(name));
    let unpacked = tar.arg("-C").arg(stasis.host.path(directory)).status()?;
    ensure!(unpacked.success(), "tar: {unpacked}");
    Ok(())
}
