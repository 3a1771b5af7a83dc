//! Huge pages for CRIU alone, as stasis has them: a baseline without them would measure the pages.

use std::fs;

use anyhow::{Context, Result};
use stasis_integration::host::installed::StasisHost;

/// The machine's switch; benchmarks have the machine for themselves.
const SWITCH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// As long as this lives, the tmpfs and processes have huge pages.
pub(crate) struct HugePages<'l> {
    stasis: &'l StasisHost,
    tmpfs: &'static str,
    before: String,
}

impl<'l> HugePages<'l> {
    pub(crate) fn everywhere(stasis: &'l StasisHost, tmpfs: &'static str) -> Result<Self> {
        let text = fs::read_to_string(SWITCH)?;
        let chosen = text
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        let (before, _) = chosen.context("the switch for huge pages has no setting")?;
        let pages = Self {
            stasis,
            tmpfs,
            before: before.to_owned(),
        };
        fs::write(SWITCH, "always")?;
        pages.remount("always")?;
        Ok(pages)
    }

    fn remount(&self, huge: &str) -> Result<()> {
        let options = format!("remount,huge={huge}");
        self.stasis
            .host
            .run(&["mount", "-o", &options, self.tmpfs])?;
        Ok(())
    }
}

impl Drop for HugePages<'_> {
    fn drop(&mut self) {
        // Nothing can be done about a failure here.
        let _ = fs::write(SWITCH, &self.before);
        let _ = self.remount("never");
    }
}
