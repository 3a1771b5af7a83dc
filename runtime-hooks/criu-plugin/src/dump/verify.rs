//! Verifies, once the tree is stopped, that CRIU dumps the CUDA processes whose GPU state the
//! engine has recorded, and none of the others.
//!
//! Here nothing has been changed yet, so that the dump can still be refused. After a dump that ends
//! the container its image would be all that is left, and would not restore.

use stasis_memory_store::{CudaPids, TreeMismatch};

use crate::error::Error;
use crate::tasks::tree::Task;

/// # Errors
/// [`Error::Tree`].
pub(crate) fn verify(dumped: &[Task], cuda: &CudaPids) -> Result<(), Error> {
    let is_dumped = |pid: &i32| dumped.iter().any(|task| task.pid_inside == *pid);
    if let Some(pid) = cuda.recorded.iter().find(|pid| !is_dumped(pid)) {
        return Err(Error::Tree(TreeMismatch::Ended(*pid)));
    }
    match cuda.exec.iter().find(|pid| is_dumped(pid)) {
        Some(pid) => Err(Error::Tree(TreeMismatch::Adopted(*pid))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_processes_are_dumped_and_those_of_exec_are_not() {
        let dumped = [1, 7].map(|pid_inside| Task {
            pid: 1000 + pid_inside,
            pid_inside,
        });
        let mismatch = |recorded: &[i32], exec: &[i32]| {
            let cuda = CudaPids {
                recorded: recorded.to_vec(),
                exec: exec.to_vec(),
            };
            match verify(&dumped, &cuda) {
                Err(Error::Tree(mismatch)) => Some(mismatch),
                other => {
                    other.unwrap();
                    None
                }
            }
        };
        assert_eq!(mismatch(&[], &[]), None);
        assert_eq!(mismatch(&[7, 1], &[9]), None);
        assert_eq!(mismatch(&[1, 9], &[]), Some(TreeMismatch::Ended(9)));
        assert_eq!(mismatch(&[1], &[9, 7]), Some(TreeMismatch::Adopted(7)));
    }
}
