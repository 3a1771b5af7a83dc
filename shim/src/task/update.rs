//! Update: new limits for a task.

use crate::error::{Error, Result};
use crate::task::Task;

impl Task {
    /// Changes the limits of its cgroup.
    pub(crate) async fn update(&self, resources: &[u8]) -> Result<()> {
        let _lock = self.verb_lock.lock().await;
        self.record().state.may_update()?;
        let file = tempfile::NamedTempFile::new_in(self.bundle.path())
            .map_err(Error::cannot("make a file for the new limits"))?;
        std::fs::write(file.path(), resources).map_err(Error::cannot("write the new limits"))?;
        self.runtime.update(&self.id, file.path()).await
    }
}
