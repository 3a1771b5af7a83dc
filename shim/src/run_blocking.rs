//! Work beside the one thread that serves a pod: system calls that a user's path, a file system or
//! a cgroup may keep waiting. Programs are not started here: the kernel kills them with the thread
//! that starts them ([`crate::child::spawn`]).

use std::future::pending;
use std::panic::resume_unwind;

use tokio::task::spawn_blocking;

/// Runs `work` in a thread of its own, to its end, even if the caller stops waiting.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The shim ends.
            Err(_) => pending().await,
        },
    }
}
