//! Contents and engines, which pack an image's directory: contents apart from it are not packed.

use anyhow::{Result, ensure};
use stasis_integration::container::contents::Contents;
use stasis_integration::container::memory_container::names_in;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

use super::PORT;

const APART: [Contents; 2] = [Contents::OnDisk, Contents::InMemory];

#[test]
fn ctr_restores_again_and_again() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::sid_v2()?)?.through_the_shim()?;
    needs!(StandIn);
    let _containerd = stasis.containerd()?;
    for place in APART {
        stasis.set(&stasis.low_level, place.setting())?;
        let image = format!("memory:{place:?}").to_lowercase();
        stasis.ctr_run("memory", &[], &["/bin/memcheck", "64", "10000"])?;
        assert_eq!(stasis.ask_until_up(PORT)?, "ok 0");
        stasis.ctr_checkpoint("memory", &image)?;
        assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
        stasis.ctr_remove("memory")?;
        is_stored(stasis, place)?;
        for _ in 0..2 {
            stasis.ctr_restore("memory", &image)?;
            assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"), "{place:?}");
            stasis.ctr_remove("memory")?;
        }
    }
    Ok(())
}

#[test]
fn an_archive_of_podmans_has_none_of_them() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::sid_v2()?)?;
    needs!(StandIn);
    stasis.podman_load()?;
    for place in APART {
        stasis.set(&stasis.low_level, place.setting())?;
        let archive = "/images/exported.tar";
        stasis.podman_run("exported", &[], &["/bin/memcheck", "64", "10000"])?;
        assert_eq!(stasis.ask_until_up(PORT)?, "ok 0");
        let export = ["checkpoint", "--compress", "none", "--export", archive];
        stasis.podman_container(&export, "exported")?;
        stasis.podman_remove("exported")?;
        is_stored(stasis, place)?;
        let files = stasis.run_for_text(&["tar", "-tf", archive])?;
        ensure!(!files.contains(".pack"), "{files}");
        for name in ["imported", "again"] {
            stasis.podman(&["container", "restore", "--import", archive, "--name", name])?;
            assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"), "{place:?}");
            stasis.podman_remove(name)?;
        }
        stasis.run(&["rm", archive])?;
    }
    Ok(())
}

fn is_stored(stasis: &StasisHost, place: Contents) -> Result<()> {
    let stored = names_in(&stasis.path(place.directory().unwrap_or_default()))?;
    ensure!(stored.len() == 1, "{place:?}: {stored:?}");
    Ok(())
}
