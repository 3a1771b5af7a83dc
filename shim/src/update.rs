//! Update: new limits for a task.

use crate::error::{Error, Result};
use crate::task::Task;

impl Task {
    /// Changes its limits.
    pub(crate) async fn update(&self, resources: &[u8]) -> Result<()> {
        let _turn = self.turn.lock().await;
        self.record().state.may_update()?;
        let file = tempfile::NamedTempFile::new_in(self.bundle.path())
            .map_err(Error::io("make a file for the new limits"))?;
        std::fs::write(file.path(), resources).map_err(Error::io("write the new limits"))?;
        Ok(self.runtime.update(&self.id, file.path()).await?)
    }
}
