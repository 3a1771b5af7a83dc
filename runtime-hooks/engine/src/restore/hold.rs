//! A restore in the place of `create`: CRIU restores the processes, and our plugin freezes their
//! cgroup before CRIU resumes them. So the container has its pid, and none of its processes runs
//! before its `start`.

use std::path::{Path, PathBuf};

use stasis_config::Flavor;
use stasis_linux::cgroup::{Cgroup, FreezerState, Hierarchies};
use stasis_memory_store::{Holes, RestoreRequest as PluginRequest};

use crate::bulk_memory::plugin::PluginsForRestore;
use crate::bulk_memory::request::RequestFiles;
use crate::companions::Companions;
use crate::container::Container;
use crate::container::restored_cgroup;
use crate::context::Context;
use crate::error::Failure;
use crate::error::hold::HoldError;
use crate::low_level;
use crate::operation::Operation;
use crate::request::RestoreRequest;
use crate::restore::as_specified::adapt;

/// The usual place of the unified hierarchy, or of those of version 1.
const USUAL_PLACE: &str = "/sys/fs/cgroup";

/// The goal of a restore.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal<'m> {
    /// A running container.
    Running,
    /// A container that waits for its start.
    Created,
    /// A container that waits for others.
    Together(&'m dyn Companions),
}

/// Processes that are held once they are restored.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The directory of the cgroup with the freezer.
    cgroup: PathBuf,
    files: RequestFiles,
}

impl Hold {
    /// Checks that processes can be held: the cgroup has to be known before it has processes, and
    /// the plugin has to be usable. crun puts processes into their cgroup only after CRIU has
    /// resumed them (src/libcrun/container.c, `libcrun_container_restore`).
    pub(crate) fn prepare(
        context: &Context,
        options: &RestoreRequest,
        operation: &Operation,
        plugins: &PluginsForRestore,
    ) -> Result<Self, HoldError> {
        let flavor = context.low_level.flavor;
        if flavor == Flavor::Crun {
            return Err(HoldError::LowLevel(low_level::name(&context.low_level)));
        }
        if let Err(why) = &plugins.ours {
            return Err(HoldError::NoPlugin(why.to_string()));
        }
        let path = restored_cgroup::vacant(flavor, &options.bundle, &options.id);
        let cgroup = path.and_then(|path| freezer_of_runc(&Hierarchies::read().ok()?, &path));
        Ok(Self {
            cgroup: cgroup.ok_or(HoldError::Cgroup)?.directory().to_owned(),
            files: RequestFiles::of(operation.directory()),
        })
    }

    /// The cgroup to freeze.
    pub(crate) fn cgroup(&self) -> &Path {
        &self.cgroup
    }

    /// The file of the request to the plugin.
    pub(crate) fn request_file(&self) -> &Path {
        &self.files.request
    }

    /// Writes a request to freeze alone.
    pub(crate) fn request(&self) -> Result<(), Failure> {
        let request = PluginRequest {
            image_id: None,
            holes: Holes::Engine,
            freeze: Some(self.cgroup.clone()),
        };
        Ok(self.files.write(&request)?)
    }

    /// After CRIU: checks that the processes are held, and adapts them to the new container.
    pub(crate) fn succeeded(
        &self,
        container: Option<&Container>,
        bundle: &Path,
    ) -> Result<(), HoldError> {
        let container = container.ok_or(HoldError::NotHeld)?;
        let cgroup = container.cgroup();
        let is_held = matches!(cgroup.freezer_state(), Ok(FreezerState::Frozen))
            && matches!(cgroup.is_frozen_or_freezing(), Ok(true));
        if !is_held {
            return Err(HoldError::NotHeld);
        }
        adapt(container, bundle)
    }
}

/// Returns the cgroup that runc freezes: in the unified hierarchy if that is at the usual place,
/// whatever else is mounted elsewhere (cgroups `utils.go`, `IsCgroup2UnifiedMode`).
fn freezer_of_runc(hierarchies: &Hierarchies, path: &Path) -> Option<Cgroup> {
    let mut roots = hierarchies.everywhere(Path::new("/")).into_iter();
    if roots.any(|root| root == Path::new(USUAL_PLACE)) {
        let inside = path.strip_prefix("/").ok()?;
        return Some(Cgroup::v2(Path::new(USUAL_PLACE).join(inside)));
    }
    hierarchies.cgroup("freezer", path)
}
