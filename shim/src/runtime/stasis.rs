//! The calls of `stasis-runtime`, for all verbs that concern GPU state. For a container without it
//! `stasis-runtime` becomes the low-level runtime, for which the deadlines here are.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use containerd_shim::protos::shim::oci::CheckpointOptions;

use crate::bundle::Bundle;
use crate::error::Result;
use crate::runtime::call::RunningCall;
use crate::runtime::{LONG, OciRuntime, SHORT};
use crate::stdio::Streams;

impl OciRuntime {
    /// Freezes a container, unless `useless` returns why that is not needed any longer.
    pub(crate) async fn pause(
        &self,
        id: &str,
        useless: impl Future<Output = &'static str>,
    ) -> Result<()> {
        let call = self.stasis("pause").arg(id).within(SHORT).start()?;
        call.wait_unless(useless).await.map(drop)
    }

    /// Thaws a container, and gives back GPU state that a checkpoint left in host memory; unless
    /// `useless` returns why that is not needed any longer.
    pub(crate) async fn resume(
        &self,
        id: &str,
        useless: impl Future<Output = &'static str>,
    ) -> Result<()> {
        let call = self.stasis("resume").arg(id).within(SHORT).start()?;
        call.wait_unless(useless).await.map(drop)
    }

    /// Kills all processes of the container of a bundle, ends an operation on it, and removes it. A
    /// container of this id that was made from another bundle stays.
    pub(crate) async fn delete_by_force(&self, id: &str, bundle: &Bundle) -> Result<()> {
        if let Some(known) = self.bundle_of(id).await
            && file_number(&known) != file_number(bundle.path())
        {
            let known = known.display();
            log::warn!("{id} is the container of another bundle, {known}, and stays");
            return Ok(());
        }
        let call = self.stasis("delete").arg("--force").arg(id);
        call.within(LONG).run().await
    }

    /// Starts a checkpoint.
    pub(crate) fn start_checkpoint(
        &self,
        id: &str,
        image: &Path,
        work: &Path,
        options: &CheckpointOptions,
    ) -> Result<RunningCall> {
        let mode = Some(&options.cgroups_mode).filter(|mode| !mode.is_empty());
        let mut call = self
            .stasis("checkpoint")
            .option("--image-path", image)
            .option("--work-path", work)
            .switch("--tcp-established", options.open_tcp)
            .switch("--ext-unix-sk", options.external_unix_sockets)
            .switch("--shell-job", options.terminal)
            .switch("--file-locks", options.file_locks)
            .option_if("--manage-cgroups-mode", mode);
        for namespace in &options.empty_namespaces {
            call = call.option("--empty-ns", namespace);
        }
        call.switch("--leave-running", !options.exit)
            .arg(id)
            .start()
    }

    /// Starts a restore.
    pub(crate) fn start_restore(
        &self,
        id: &str,
        bundle: &Bundle,
        image: &Path,
        streams: Streams,
        console: Option<&Path>,
    ) -> Result<RunningCall> {
        let work = match self.options.criu_work_path.as_str() {
            "" => bundle.work(),
            path => PathBuf::from(path),
        };
        let call = self
            .stasis("restore")
            .option("--image-path", image)
            .option("--work-path", work)
            .arg("--detach");
        self.init_options(call, console, &bundle.init_pid_file())
            .arg("--no-subreaper")
            .option("--bundle", bundle.path())
            .arg(id)
            .start_with(streams)
    }
}

/// runc names a bundle by the path without links.
fn file_number(bundle: &Path) -> Option<(u64, u64)> {
    let metadata = bundle.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}
