//! By default GPU contents go through our files, and the memory of programs through CRIU.

use std::fs;

use anyhow::{Context, Result, ensure};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::memory_container::names_in;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{OPERATIONS_LOG, StasisHost};
use stasis_integration::{needs, on_hosts};

/// On the GPU. The kernel merges its copy in host memory with the 16 MiB that the program has as
/// well, as both are mapped side by side.
const MIB: u64 = 48;
/// The stand-in's own GPU memory is below this.
const SMALL: u64 = 1 << 20;

on_hosts!(gpu_contents_alone_are_moved: sid, crun_on_trixie_v2);

fn gpu_contents_alone_are_moved(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.inject("gpus 2")?;
    let job = Bundle::make(stasis, "job", &["/bin/memcheck", &MIB.to_string()])?;
    job.suit_crun()?;
    job.give(&[0])?;
    job.comes_up(10000, "ok 0")?;

    job.checkpoint("running", &["--leave-running"])?;
    are_moved_alone(stasis, &job, "running")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));

    job.checkpoint("ended", &[])?;
    are_moved_alone(stasis, &job, "ended")?;
    job.restore("ended")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 2"));

    job.delete()?;
    job.give(&[1])?;
    job.restore("running")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    assert_eq!(job.open_gpus()?, ["/dev/nvidia1"]);
    job.delete()?;
    a_program_without_cuda_is_left_to_criu(stasis)
}

fn are_moved_alone(stasis: &StasisHost, job: &Bundle<'_>, image: &str) -> Result<()> {
    let line = stasis.operation("checkpoint")?;
    let report = &line["bulk_memory"];
    let bytes = report["bytes"].as_u64().context("nothing was moved")?;
    let gpu = MIB << 20;
    ensure!((gpu..gpu + SMALL).contains(&bytes), "{report}");
    let by_criu = with_criu(job, image)?;
    // The memory of a program and its libraries.
    let heap = 16 << 20;
    ensure!((heap..2 * heap).contains(&by_criu), "{by_criu} bytes");
    Ok(())
}

/// Returns the bytes in CRIU's images of memory.
pub(crate) fn with_criu(job: &Bundle<'_>, image: &str) -> Result<u64> {
    let directory = job.image_path(image);
    let names = names_in(&directory)?.into_iter();
    let pages = names.filter(|name| name.starts_with("pages-"));
    let sizes = pages.map(|name| Ok(fs::metadata(directory.join(name))?.len()));
    sizes.sum()
}

/// The program has the GPU, and may start CUDA at any time.
fn a_program_without_cuda_is_left_to_criu(stasis: &StasisHost) -> Result<()> {
    let job = Bundle::make(stasis, "plain", &["/bin/plain", "10001", "48"])?;
    job.suit_crun()?;
    job.run()?;
    stasis.ask_until_up(10001)?;
    fs::remove_file(stasis.path(OPERATIONS_LOG))?;
    job.checkpoint("image", &["--leave-running"])?;
    job.checkpoint("image", &[])?;
    ensure!(with_criu(&job, "image")? >= 48 << 20, "it is elsewhere");
    ensure!(!stasis.path(OPERATIONS_LOG).exists(), "it is news");
    job.restore("image")?;
    let answer = stasis.ask(10001)?.context("it does not answer")?;
    ensure!(answer.starts_with("ok "), "{answer}");
    job.delete()
}
