use super::*;
use crate::cuda::GpuUuid;

#[test]
fn the_pid_of_a_process_that_has_ended_is_not_used() {
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let process = ProcessRef::open(pid).unwrap().unwrap();
    assert_eq!(pid_of(&process), Ok(pid));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(pid_of(&process), Err(CudaError::Ended));
}

#[test]
fn the_lock_timeout_is_never_the_zero_that_waits_for_ever() {
    assert_eq!(Arguments::lock(Duration::ZERO).0[..4], 1u32.to_ne_bytes());
    assert_eq!(
        Arguments::lock(Duration::from_millis(200)).0[..4],
        200u32.to_ne_bytes()
    );
    assert_eq!(
        Arguments::lock(Duration::MAX).0[..4],
        u32::MAX.to_ne_bytes()
    );
}

#[test]
fn restore_arguments_follow_cuda_13() {
    assert_eq!(Arguments::restore(&[]).0, [0; 64]);
    let uuid = *GpuUuid::from_bytes([7; 16]).as_bytes();
    let pairs = [GpuPair {
        old: uuid,
        new: uuid,
    }];
    let arguments = Arguments::restore(&pairs);
    assert_eq!(arguments.0[..8], (pairs.as_ptr() as usize).to_ne_bytes());
    assert_eq!(arguments.0[8..12], 1u32.to_ne_bytes());
    assert_eq!(arguments.0[12..], [0; 52]);
}

#[test]
fn a_library_without_the_calls_is_named_with_what_it_is() {
    // libc is a real library that lacks the calls.
    let error = CudaDriver::open(Some(Path::new("libc.so.6"))).unwrap_err();
    assert!(matches!(
        error,
        OpenError::TooOld {
            symbol: "cuCheckpointProcessGetRestoreThreadId",
            ..
        }
    ));
}

#[test]
fn a_missing_library_is_named() {
    let path = Path::new("/nonexistent/libcuda.so.1");
    let error = CudaDriver::open(Some(path)).unwrap_err();
    assert!(matches!(error, OpenError::Load { path: named, .. } if named == path));
}
