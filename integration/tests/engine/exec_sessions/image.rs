//! Images of a container with exec sessions.

use anyhow::Result;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::host::installed::StasisHost;

use super::{EXEC_PORT, PORT, answers, counters, exec, notes, start};

pub(crate) fn what_was_exec_d_with_cuda_is_in_no_image(stasis: &StasisHost) -> Result<()> {
    let job = counters(stasis, "cuda")?;
    job.checkpoint("ended", &[])?;
    let manifest = job.manifest("ended")?;
    assert_eq!(manifest["processes"].as_array().map(Vec::len), Some(1));
    assert_eq!(manifest["processes"][0]["pid"], 1);
    assert_contains(&notes(stasis)?, &["(counter) was started by exec", "ends"]);
    wait_until_clear(|| Ok((stasis.gpu_processes()? > 0).then(|| "on the GPU".to_owned())))?;
    for _ in 0..2 {
        job.restore("ended")?;
        answers(stasis, "102", None)?;
        job.delete()?;
    }
    Ok(())
}

pub(crate) fn what_was_exec_d_with_memory_is_in_no_image(stasis: &StasisHost) -> Result<()> {
    let job = start(stasis, "memory", &["/bin/counter", "10000"])?;
    exec(stasis, &job, &["/bin/plain", "10001", "32"])?;
    job.checkpoint("left", &["--leave-running"])?;
    assert_contains(&stasis.ask(EXEC_PORT)?.unwrap_or_default(), &["ok "]);
    job.checkpoint("ended", &[])?;
    assert_contains(&notes(stasis)?, &["(plain) was started by exec"]);
    job.restore("ended")?;
    answers(stasis, "102", None)?;
    job.delete()
}

pub(crate) fn a_container_without_cuda_restores(stasis: &StasisHost) -> Result<()> {
    let job = start(stasis, "plain", &["/bin/plain", "10000", "32"])?;
    exec(stasis, &job, &["/bin/plain", "10001", "32"])?;
    job.checkpoint("ended", &[])?;

    job.restore("ended")?;
    assert_contains(&stasis.ask(PORT)?.unwrap_or_default(), &["ok "]);
    assert!(stasis.is_silent(EXEC_PORT)?);
    job.delete()
}

/// No process of the image is on a GPU then.
pub(crate) fn cuda_in_the_exec_session_alone(stasis: &StasisHost) -> Result<()> {
    for (id, memory) in [("small", "4"), ("large", "32")] {
        let job = start(stasis, id, &["/bin/plain", "10000", memory])?;
        assert_eq!(exec(stasis, &job, &["/bin/counter", "10001"])?, "101");
        job.checkpoint("left", &["--leave-running"])?;
        assert_eq!(stasis.ask(EXEC_PORT)?.as_deref(), Some("102"));
        job.checkpoint("ended", &[])?;
        for image in ["left", "ended"] {
            job.restore(image)?;
            assert_contains(&stasis.ask(PORT)?.unwrap_or_default(), &["ok "]);
            job.delete()?;
        }
    }
    Ok(())
}
