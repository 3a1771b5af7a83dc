//! Scripts that run in a container's host right before the low-level runtime does its part.

use anyhow::Result;

use super::Bundle;

/// A low-level runtime that runs a script before it starts.
const HOOKED: &str = "/usr/local/bin/hooked-runtime";

impl Bundle<'_> {
    /// From now on a checkpoint runs this script after the engine's part and before CRIU is
    /// started, until [`StasisHost::set`](crate::host::installed::StasisHost::set) is called. In it
    /// `$pid` is the container's init process.
    pub fn before_criu(&self, script: &str, settings: &str) -> Result<()> {
        self.before("checkpoint", script, settings)
    }

    /// Runs it before another verb of the low-level runtime, also of a container that does not
    /// exist yet.
    pub fn before(&self, verb: &str, script: &str, settings: &str) -> Result<()> {
        let low_level = &self.stasis.low_level;
        let wrapper = format!(
            "#!/bin/bash\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\npid={}\n\
             case \" $* \" in *' {verb} '*) {script};; esac\nexec {low_level} \"$@\"\n",
            self.pid().unwrap_or_default()
        );
        self.stasis.script(HOOKED, &wrapper)?;
        let flavor = format!("runtime.flavor = \"{low_level}\"\n{settings}");
        self.stasis.set(HOOKED, &flavor)
    }
}
