//! The steps that all cases share.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use anyhow::{Context, Result, ensure};
use stasis_engine::error::kind::Kind;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_memory_store::{ChunkLocation, Index};

use super::super::refused::INTO;
use super::super::registry::{BREAKING, tagged};
use super::super::{LARGE, SMALL, holds_its_memory, moved};
use super::{Arrives, HALF, LEAST, REPOSITORY, SHARING};

impl Arrives<'_> {
    pub(super) fn failed_for(&self, why: &str) -> Result<()> {
        let failure = self.job.failure()?.context("it does not say why")?;
        ensure!(failure.kind == Some(Kind::ImageDamaged), "{failure:?}");
        assert_contains(&failure.message, &[why]);
        ensure!(self.job.status()?.is_empty(), "something is left");
        Ok(())
    }

    pub(super) fn reference(&self) -> String {
        tagged(BREAKING, REPOSITORY, "second")
    }

    pub(super) fn marker(&self) -> PathBuf {
        self.stasis.path(format!("{INTO}/stasis-arriving"))
    }

    /// Pulls the image up to the middle of the large blob.
    pub(super) fn half_of_it(&self) -> Result<()> {
        self.proxy.hold_after(HALF);
        let begun = moved(
            self.stasis,
            &["pull", "--background", &self.reference(), INTO],
        )?;
        ensure!(begun["arriving"] == true, "{begun}");
        self.until_held()?;
        // The small blob is complete.
        wait_until_clear(|| {
            for entry in fs::read_dir(self.stasis.path(INTO))? {
                let entry = entry?;
                let is_pack = entry.file_name().to_string_lossy().ends_with(".pack");
                if is_pack && entry.metadata()?.len() < LEAST {
                    return Ok(Some(format!("{entry:?} is not there")));
                }
            }
            Ok(None)
        })
    }

    pub(super) fn until_held(&self) -> Result<()> {
        wait_until_clear(|| {
            let held = self.proxy.held();
            Ok((held == 0).then(|| "nothing is held".to_owned()))
        })
    }

    /// Waits until no fetcher is left: a start takes a dying one for one that works, and fails.
    pub(super) fn until_nobody_pulls(&self) -> Result<()> {
        wait_until_clear(|| {
            let mut find = self.stasis.host.command("pgrep");
            let found = find.args(["-x", "stasis-pull"]).output()?;
            Ok(found.status.success().then(|| "stasis-pull".to_owned()))
        })
    }

    pub(super) fn until_whole(&self) -> Result<()> {
        wait_until_clear(|| {
            let is_there = self.marker().exists();
            Ok(is_there.then(|| "it is still arriving".to_owned()))
        })
    }

    /// Begins a restore whose processes exist, and wait for their contents.
    pub(super) fn restored_by_criu(&self) -> Result<Child> {
        let restore = self.job.begin_restore_from(INTO)?;
        self.until_it_waits()?;
        ensure!(self.proxy.held() > 0, "all of it is there");
        Ok(restore)
    }

    /// Returns a place in the large blob that this image does not need.
    pub(super) fn unused(&self) -> Result<usize> {
        moved(self.stasis, &["pull", &self.reference(), INTO])?;
        let index = Index::read(&self.stasis.path(INTO))?.context("no index")?;
        self.stasis.run(&["rm", "-r", INTO])?;
        let large = index.packs.iter().max_by_key(|pack| pack.bytes);
        let large = large.context("no packs")?;
        let is_large = |place: &ChunkLocation| index.packs.get(place.pack as usize) == Some(large);
        let places = index.areas().flat_map(|area| &area.chunks);
        let places = places.map(|chunk| chunk.place).filter(is_large);
        let mut places: Vec<_> = places.map(|at| (at.offset, u64::from(at.bytes))).collect();
        places.sort_unstable();
        // Starts behind the header.
        let mut end = 4096;
        for (offset, bytes) in places {
            if offset > end {
                break;
            }
            end = offset + bytes;
        }
        ensure!(end < large.bytes, "this image needs all of {large:?}");
        Ok(usize::try_from(end - 4096)?)
    }

    /// Waits until CRIU is done: the driver waits for contents, or is called once they come.
    pub(super) fn until_it_waits(&self) -> Result<()> {
        wait_until_clear(|| {
            let (status, phase) = (self.job.status()?, self.phase());
            let waits = status == "running" && ["load", "gpu restore"].contains(&phase.as_str());
            Ok((!waits).then(|| format!("it is {status}, in {phase:?}")))
        })
    }

    pub(super) fn phase(&self) -> String {
        let text = fs::read(self.job.record().join("progress.json"));
        let progress = text.map(|text| serde_json::from_slice::<serde_json::Value>(&text));
        let Ok(Ok(progress)) = progress else {
            return String::new();
        };
        progress["phase"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn goes_on(&self) -> Result<()> {
        holds_its_memory(self.stasis, LARGE)?;
        holds_its_memory(self.stasis, SMALL)?;
        let shared = self.stasis.ask(SHARING)?;
        ensure!(shared.as_deref() == Some("102 102"), "{shared:?}");
        Ok(())
    }
}
