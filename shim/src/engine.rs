//! What `stasis-runtime` is called for: all that concerns GPU state.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use containerd_shim::protos::shim::oci::CheckpointOptions;

use crate::bundle::Bundle;
use crate::call::Begun;
use crate::oci_runtime::{OciRuntime, RuntimeError};
use crate::stdio::Streams;

/// The engine's program.
pub(crate) const ENGINE: &str = "stasis-runtime";

/// Where it is: beside this shim, where both were installed, else on the PATH.
pub(crate) fn find() -> PathBuf {
    let beside = std::env::current_exe().map(|own| own.with_file_name(ENGINE));
    beside
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from(ENGINE))
}

/// Whether a caller has named the engine itself as the runtime.
pub(crate) fn is_engine(program: &Path) -> bool {
    program.file_name() == Some(OsStr::new(ENGINE))
}

impl OciRuntime {
    /// Freezes a container.
    pub(crate) async fn pause(&self, id: &str) -> Result<(), RuntimeError> {
        self.call_engine("pause").arg(id).run().await
    }

    /// Thaws a container, and gives GPU state back that a checkpoint left in host memory.
    pub(crate) async fn resume(&self, id: &str) -> Result<(), RuntimeError> {
        self.call_engine("resume").arg(id).run().await
    }

    /// Removes a container as [`OciRuntime::delete`] does, with what the engine knows of it.
    pub(crate) async fn delete_operated(&self, id: &str) -> Result<(), RuntimeError> {
        self.call_engine("delete").arg(id).run().await
    }

    /// Removes a container with everything that runs in it, and ends an operation on it.
    pub(crate) async fn delete_by_force(&self, id: &str) -> Result<(), RuntimeError> {
        self.call_engine("delete")
            .arg("--force")
            .arg(id)
            .run()
            .await
    }

    /// Begins a checkpoint.
    pub(crate) fn begin_checkpoint(
        &self,
        id: &str,
        image: &Path,
        work: &Path,
        options: &CheckpointOptions,
    ) -> Result<Begun, RuntimeError> {
        let mode = Some(&options.cgroups_mode).filter(|mode| !mode.is_empty());
        let mut call = self
            .call_engine("checkpoint")
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
            .begin()
    }

    /// Begins a restore.
    pub(crate) fn begin_restore(
        &self,
        id: &str,
        bundle: &Bundle,
        image: &Path,
        streams: Streams,
        console: Option<&Path>,
    ) -> Result<Begun, RuntimeError> {
        let work = match self.options().criu_work_path.as_str() {
            "" => bundle.work(),
            path => PathBuf::from(path),
        };
        let call = self
            .call_engine("restore")
            .option("--image-path", image)
            .option("--work-path", work)
            .arg("--detach");
        self.placed(call, console, &bundle.init_pid_file())
            .arg("--no-subreaper")
            .option("--bundle", bundle.path())
            .arg(id)
            .begin_with(streams)
    }
}
