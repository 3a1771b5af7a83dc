//! Children that a process with CUDA has forked and that never exec: they keep its device nodes and
//! have no CUDA, also if they share its memory.

use crate::by_pid::ByPid;
use anyhow::Result;
use stasis_gpu::cuda::{CudaError, CudaState};

use crate::nodes::{descriptors, holds_device, mappings};
use crate::workload::Workload;
use crate::{bring_back, driver, lock, put_away};

#[test]
fn they_have_no_cuda_and_keep_descriptors_and_mappings() -> Result<()> {
    let forker = Workload::forker(&["try"])?;
    assert_eq!(forker.ask()?, "101 201:3 301:3");
    let children = forker.children()?;
    assert_eq!(children.len(), 2);
    for child in children {
        let not_initialized = CudaError::NotInitialized;
        assert_eq!(driver().state(child), Err(not_initialized));
        assert_eq!(driver().restore_thread(child), Err(not_initialized));
        assert_eq!(lock(child), Err(not_initialized));
        assert_eq!(descriptors(child)?, descriptors(forker.pid())?);
        assert!(!mappings(child)?.is_empty());
    }
    assert_eq!(forker.ask()?, "102 202:3 302:3");
    Ok(())
}

#[test]
fn their_parent_is_checkpointed_and_restored_without_them() -> Result<()> {
    let forker = Workload::forker(&[])?;
    assert_eq!(forker.ask()?, "101 201 301");
    let (pid, children) = (forker.pid(), forker.children()?);
    put_away(pid)?;
    assert!(!holds_device(pid)?);
    for child in children {
        assert!(!descriptors(child)?.is_empty(), "CRIU could dump the child");
        assert!(!mappings(child)?.is_empty());
    }
    bring_back(pid)?;
    assert_eq!(forker.ask()?, "102 202 302");
    Ok(())
}

/// Before it execs, a child of vfork(2) shares its parent's memory; the driver's answers about the
/// child are not the parent's.
#[test]
fn who_has_the_memory_of_a_cuda_process_has_no_cuda() -> Result<()> {
    let workload = Workload::with_same_memory()?;
    let count = workload.ask()?;
    assert!(count.starts_with("101 "), "{count}");
    let (pid, children) = (workload.pid(), workload.children()?);
    let [child] = children[..] else {
        panic!("its children are {children:?}");
    };
    let has_no_cuda = || {
        let not_initialized = CudaError::NotInitialized;
        assert_eq!(driver().state(child), Err(not_initialized));
        assert_eq!(driver().restore_thread(child), Err(not_initialized));
        assert_eq!(lock(child), Err(not_initialized));
        assert_eq!(driver().unlock(child), Err(not_initialized));
    };
    has_no_cuda();
    put_away(pid)?;
    has_no_cuda();
    assert_eq!(driver().state(pid), Ok(CudaState::Checkpointed));
    assert!(!descriptors(child)?.is_empty(), "they are its own");
    bring_back(pid)?;
    has_no_cuda();
    let count = workload.ask()?;
    assert!(count.starts_with("102 "), "{count}");
    Ok(())
}
