//! All processes of a container at once.

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::{CUDA_CHECKPOINT, StasisHost};

use super::{fails, stdout, succeeds};

pub(crate) fn a_container_is_toggled_as_a_whole(stasis: &StasisHost) -> Result<()> {
    let tree = Bundle::make(stasis, "tree", &["/bin/tree", "10201"])?;
    tree.run()?;
    let first = stasis.ask_until_up(10201)?;
    let container = ["--container", "tree", "--root", ROOT];
    let with = |target: &[&'static str], operation: &[&'static str]| [operation, target].concat();
    let states = |target: &[&str]| stdout(stasis, &[&["--get-state"], target].concat());
    let all = |state: &str| -> Result<()> {
        let stdout = states(&container)?;
        let words: Vec<&str> = stdout.split_whitespace().skip(1).step_by(2).collect();
        assert_eq!(words, [state; 3], "{stdout}");
        Ok(())
    };
    all("running")?;
    succeeds(stasis, &with(&container, &["--toggle"]))?;
    all("checkpointed")?;
    assert_eq!(stasis.gpu_descriptors()?, 0);
    succeeds(stasis, &with(&container, &["--toggle"]))?;
    all("running")?;
    // A process that fails takes none of the others along.
    stasis.inject("checkpoint tree-2 error:801")?;
    let parts = ["(801)", "all processes are as before, with their GPU"];
    fails(stasis, &with(&container, &["--toggle"]), &parts)?;
    stasis.inject("")?;
    all("running")?;
    for (step, state) in [
        ("lock", "locked"),
        ("checkpoint", "checkpointed"),
        ("restore", "locked"),
        ("unlock", "running"),
    ] {
        // No memory moves: nobody has to know how much there is.
        stasis.inject(if step == "unlock" { "nvml-hangs" } else { "" })?;
        succeeds(stasis, &with(&container, &["--action", step]))?;
        all(state)?;
    }
    stasis.inject("")?;
    // Processes in different states are not treated as if they had one.
    let stdout = states(&container)?;
    let member = stdout.split_whitespace().next().context("no member")?;
    succeeds(stasis, &["--action", "lock", "--pid", member])?;
    for operation in [["--toggle"].as_slice(), &["--action", "unlock"]] {
        let parts = [
            "not all processes of container tree",
            "is locked",
            "is running",
        ];
        fails(stasis, &with(&container, operation), &parts)?;
    }
    succeeds(stasis, &["--action", "unlock", "--pid", member])?;
    let (last, now) = (stasis.ask(10201)?, stasis.ask(10201)?);
    assert!(first.split_whitespace().count() == 8 && last.is_some() && now.is_some());
    tree.delete()?;
    let plain = Bundle::make(stasis, "plain", &["/bin/pause"])?;
    plain.run()?;
    let arguments = ["--get-state", "--container", "plain", "--root", ROOT];
    fails(
        stasis,
        &arguments,
        &["no process of container plain uses CUDA"],
    )?;
    plain.delete()
}

/// Ranks wait for each other inside CUDA calls: one alone never finishes its work. On a busy
/// machine they need longer to meet than a lock's default deadline.
pub(crate) fn ranks_are_locked_together_or_refused(stasis: &StasisHost) -> Result<()> {
    let container = ["--container", "ranks", "--root", ROOT];
    let toggle = [["--toggle"].as_slice(), &container].concat();
    stasis.set(&stasis.low_level, "deadlines.lock_ms = 60000\n")?;
    let ranks = Bundle::make(stasis, "ranks", &["/bin/ranks", "10202", "3"])?;
    ranks.run()?;
    stasis.ask_until_up(10202)?;
    for _ in 0..2 {
        succeeds(stasis, &toggle)?;
    }
    // A process that fails to come back, but does at the second attempt, is not left suspended.
    succeeds(stasis, &toggle)?;
    stasis.inject("restore ranks-0 error:999 1")?;
    let toggled = stasis.command(CUDA_CHECKPOINT).args(&toggle).output()?;
    let noted = String::from_utf8_lossy(&toggled.stderr);
    ensure!(toggled.status.success(), "{noted}");
    assert_contains(&noted, &["(999)", "the second try succeeded"]);
    assert_eq!(stasis.records()?, "");
    let answer = stasis.ask(10202)?.unwrap_or_default();
    assert!(answer.starts_with("ok "), "{answer}");
    ranks.delete()?;
    stasis.inject("gpus 2")?;
    let ranks = Bundle::make(stasis, "sharing", &["/bin/sharing", "10203", "512"])?;
    ranks.give(&[0, 1])?;
    ranks.run()?;
    let before = stasis.ask_until_up(10203)?;
    let toggle = ["--toggle", "--container", "sharing", "--root", ROOT];
    fails(
        stasis,
        &toggle,
        &[
            "nccl-p2p",
            "it has 1 allocations",
            "all processes are as before",
        ],
    )?;
    let answer = stasis.ask(10203)?.context("the workload is silent")?;
    assert_ne!(answer, before);
    stasis.inject("")?;
    ranks.delete()?;
    stasis.set(&stasis.low_level, "")
}
