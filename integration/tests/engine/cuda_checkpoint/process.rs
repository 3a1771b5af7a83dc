//! One process: toggled, taken through the steps, refused.

use anyhow::{Result, ensure};
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::StasisHost;

use super::{counts_on, fails, pid, stdout, succeeds};

pub(crate) fn a_toggle_frees_the_gpu_and_gives_it_back(
    stasis: &StasisHost,
    counter: &Bundle<'_>,
) -> Result<()> {
    let pid = pid(counter)?;
    succeeds(stasis, &["--toggle", "--pid", &pid])?;
    assert_eq!(
        stdout(stasis, &["--get-state", "--pid", &pid])?,
        "checkpointed\n"
    );
    assert_eq!(stasis.gpu_descriptors()?, 0);
    succeeds(stasis, &["--pid", &pid, "--toggle"])?;
    assert_ne!(stasis.gpu_descriptors()?, 0);
    counts_on(stasis)
}

pub(crate) fn each_step_says_nothing_and_wrong_ones_say_why(
    stasis: &StasisHost,
    counter: &Bundle<'_>,
) -> Result<()> {
    let pid = pid(counter)?;
    let step = |action| succeeds(stasis, &["--action", action, "--pid", &pid]);
    let refused = |action, parts: &[&str]| fails(stasis, &["--action", action, "-p", &pid], parts);
    refused(
        "unlock",
        &["(401)", "it is running now", "only a locked process"],
    )?;
    succeeds(
        stasis,
        &["--action", "lock", "--pid", &pid, "--timeout", "1000"],
    )?;
    assert_eq!(stdout(stasis, &["--get-state", "--pid", &pid])?, "locked\n");
    fails(
        stasis,
        &["--toggle", "-p", &pid],
        &["locked", "--action unlock"],
    )?;
    refused("restore", &["(401)", "it is locked now"])?;
    step("checkpoint")?;
    refused("checkpoint", &["(401)", "it is checkpointed now"])?;
    step("restore")?;
    step("unlock")?;
    counts_on(stasis)?;
    stasis.inject("lock counter busy")?;
    let arguments = ["--action", "lock", "-p", &pid, "-t", "200"];
    fails(
        stasis,
        &arguments,
        &["(600)", "it is running now", "--container"],
    )?;
    stasis.inject("")?;
    fails(
        stasis,
        &["--toggle", "--pid", "4194303"],
        &["no process 4194303"],
    )?;
    for asked in [
        ["--get-state"].as_slice(),
        &["--get-restore-tid"],
        &["--toggle"],
    ] {
        let arguments = [asked, &["--pid", "1"]].concat();
        fails(
            stasis,
            &arguments,
            &["process 1", "has no CUDA state", "(3)"],
        )?;
    }
    fails(
        stasis,
        &["--container", "counter", "--toggle"],
        &["no running container has the id or name counter"],
    )
}

pub(crate) fn a_toggle_that_fails_lets_the_process_go_on(
    stasis: &StasisHost,
    counter: &Bundle<'_>,
) -> Result<()> {
    stasis.inject("checkpoint counter error:801")?;
    let pid = pid(counter)?;
    let parts = ["(801)", "cudaMallocManaged", "it is running now"];
    fails(stasis, &["--toggle", "--pid", &pid], &parts)?;
    counts_on(stasis)?;
    // A single step leaves the process as NVIDIA's program does, and says so.
    succeeds(stasis, &["--action", "lock", "--pid", &pid])?;
    let parts = ["(801)", "it is locked now", "--action unlock"];
    fails(stasis, &["--action", "checkpoint", "--pid", &pid], &parts)?;
    succeeds(stasis, &["--action", "unlock", "--pid", &pid])?;
    stasis.inject("")?;
    counts_on(stasis)
}

pub(crate) fn what_cannot_answer_is_refused_at_once(
    stasis: &StasisHost,
    counter: &Bundle<'_>,
) -> Result<()> {
    let pid = pid(counter)?;
    let all: [&[&str]; 5] = [
        &["--get-state", "--pid", &pid],
        &["--toggle", "--pid", &pid],
        &["--action", "lock", "--pid", &pid],
        &["--toggle", "--container", "counter", "--root", ROOT],
        &["--get-state", "--container", "counter", "--root", ROOT],
    ];
    stasis.host.stop(&pid)?;
    for arguments in all {
        fails(
            stasis,
            arguments,
            &["is stopped by a signal", "nothing was done"],
        )?;
    }
    stasis.run(&["kill", "-CONT", &pid])?;
    counter.pause()?;
    for arguments in all {
        fails(
            stasis,
            arguments,
            &["is in a frozen cgroup", "nothing was done"],
        )?;
    }
    ensure!(counter.runtime(&["resume", "counter"]).status()?.success());
    counts_on(stasis)
}
