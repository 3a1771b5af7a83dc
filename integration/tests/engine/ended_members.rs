//! CUDA processes that end, or change their parent, between the GPU checkpoint and the dump. The
//! image would lack them, or would have them without their GPU state. So the checkpoint fails
//! before CRIU ends the container, and the earlier image stays.

use anyhow::{Context, Result, ensure};
use stasis_engine::error::kind::{Kind, State};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

const PORT: u16 = 10000;
const EXEC_PORT: u16 = 10001;
/// Kills the first CUDA process of `tree`.
const KILL_ONE: &str = "kill -KILL $(pgrep -P $pid | head -n 1)";
/// The driver makes GPU contents memory of the processes.
const BY_DRIVER: &str = "gpu_checkpoint.path = \"driver\"\n";

on_hosts!(all_cases: trixie, sid_v2, crun_on_sid_v2);

type Case = fn(&StasisHost) -> Result<()>;

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let cases: [(&str, Case); 7] = [
        ("killed", one_that_ends_before_the_dump),
        ("stuck", one_that_is_killed_while_the_freezer_holds_it),
        ("unseen", one_that_ends_with_its_gpu_contents_in_memory),
        (
            "left",
            one_that_ends_before_a_dump_that_leaves_the_others_running,
        ),
        (
            "held",
            one_that_ends_during_the_gpu_checkpoint_of_the_others,
        ),
        ("adopted", one_that_comes_to_init_before_the_dump),
        (
            "alone",
            one_that_comes_to_init_of_others_with_contents_in_memory,
        ),
    ];
    for (name, case) in cases {
        case(stasis).context(name)?;
        stasis.inject("")?;
        stasis.set(&stasis.low_level, "")?;
    }
    Ok(())
}

/// Starts a container with three CUDA processes below its init, and makes an image of it.
fn tree<'l>(stasis: &'l StasisHost, id: &str) -> Result<Bundle<'l>> {
    let job = Bundle::make(stasis, id, &["/bin/tree", "10000"])?;
    job.suit_crun()?;
    job.run()?;
    stasis.ask_until_up(PORT)?;
    job.checkpoint("image", &["--leave-running"])?;
    Ok(job)
}

/// Makes a checkpoint into the earlier image's directory, which fails since a process is missing.
fn fails(job: &Bundle<'_>, options: &[&str]) -> Result<String> {
    let said = job.checkpoint_fails("image", options)?;
    let failure = job.failure()?.context("nothing was reported")?;
    assert_eq!(failure.kind, Some(Kind::ProcessEnded), "{said}");
    assert_eq!(failure.state, Some(State::Unharmed), "{said}");
    assert_eq!(job.status()?, "running", "{said}");
    Ok(said)
}

/// Checks that the other processes count on, and that the earlier image restores all.
fn earlier_image_restores(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    ensure!(stasis.ask(PORT)?.is_some(), "the others do not go on");
    stasis.set(&stasis.low_level, "")?;
    job.delete()?;
    job.restore("image")?;
    let answer = stasis.ask(PORT)?;
    assert_eq!(answer.as_deref(), Some("102 202 302 402 502 602 702 2"));
    job.delete()
}

fn one_that_ends_before_the_dump(stasis: &StasisHost) -> Result<()> {
    one_ends(stasis, "killed", "", &[])
}

/// The freezer of cgroup v1 lets a killed process end only once it is thawed: CRIU meets one that
/// is neither alive nor gone.
fn one_that_is_killed_while_the_freezer_holds_it(stasis: &StasisHost) -> Result<()> {
    let job = tree(stasis, "stuck")?;
    let freezer = "/sys/fs/cgroup/freezer$(sed -n 's/.*:freezer://p' /proc/$pid/cgroup)";
    let frozen = format!("echo FROZEN >{freezer}/freezer.state || true; {KILL_ONE}");
    job.before_criu(&frozen, "")?;
    let said = fails(&job, &[])?;
    assert_contains(&said, &["(exe)", "is not in the image", "with its GPU"]);
    earlier_image_restores(stasis, &job)
}

/// CRIU asks stasis before it ends the other processes.
fn one_that_ends_with_its_gpu_contents_in_memory(stasis: &StasisHost) -> Result<()> {
    one_ends(stasis, "unseen", BY_DRIVER, &[])
}

fn one_that_ends_before_a_dump_that_leaves_the_others_running(stasis: &StasisHost) -> Result<()> {
    one_ends(stasis, "left", "", &["--leave-running"])
}

fn one_ends(stasis: &StasisHost, id: &str, settings: &str, options: &[&str]) -> Result<()> {
    let job = tree(stasis, id)?;
    job.before_criu(KILL_ONE, settings)?;
    let said = fails(&job, options)?;
    assert_contains(&said, &["(exe)", "is not in the image", "with its GPU"]);
    earlier_image_restores(stasis, &job)
}

/// The engine checks the processes before it starts the low-level runtime.
fn one_that_ends_during_the_gpu_checkpoint_of_the_others(stasis: &StasisHost) -> Result<()> {
    let job = tree(stasis, "held")?;
    job.before_criu("echo started >/run/started", BY_DRIVER)?;
    stasis.hold_driver("checkpoint held-3", "third")?;
    let checkpoint = job.begin_checkpoint("image", &[])?;
    wait_until_clear(|| {
        let on_gpu = stasis.gpu_processes()?;
        Ok((on_gpu != 1).then(|| format!("{on_gpu} processes are on the GPU")))
    })?;
    // The engine has to find the process gone, which takes a while on a busy machine.
    let first = format!(
        "first=$(pgrep -P {} | head -n 1); kill -KILL $first; \
         while kill -0 $first 2>/dev/null; do sleep 0.01; done",
        job.pid()?
    );
    stasis.run(&["bash", "-c", &first])?;
    stasis.let_driver_go("third")?;
    let output = checkpoint.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "it succeeded");
    // The message is the same, whichever check finds it first.
    assert_contains(&said, &["(exe)", "it ended", "with its GPU"]);
    let failure = job.failure()?.context("nothing was reported")?;
    assert_eq!(failure.kind, Some(Kind::ProcessEnded), "{said}");
    assert_eq!(failure.state, Some(State::Unharmed), "{said}");
    assert!(!stasis.path("/run/started").exists(), "CRIU dumped it");
    earlier_image_restores(stasis, &job)
}

fn one_that_comes_to_init_before_the_dump(stasis: &StasisHost) -> Result<()> {
    one_comes_to_init(stasis, "adopted", "")
}

fn one_that_comes_to_init_of_others_with_contents_in_memory(stasis: &StasisHost) -> Result<()> {
    one_comes_to_init(stasis, "alone", BY_DRIVER)
}

/// A process whose parent ends becomes a child of the container's init.
fn one_comes_to_init(stasis: &StasisHost, id: &str, settings: &str) -> Result<()> {
    let job = tree(stasis, id)?;
    // CRIU refuses files of mounts that the container does not see.
    let script = "/bin/counter 10001 </dev/null >/dev/null 2>&1 & wait";
    let session = ["exec", "--detach", &job.id, "/bin/sh", "-c", script];
    ensure!(job.runtime(&session).status()?.success(), "exec failed");
    assert_eq!(stasis.ask_until_up(EXEC_PORT)?, "101");
    let kill = "kill -KILL $(ps -o ppid= -p $(pgrep -x counter))";
    job.before_criu(kill, settings)?;
    let said = fails(&job, &[])?;
    assert_contains(&said, &["(counter)", "started by exec", "with its GPU"]);
    assert_eq!(stasis.ask(EXEC_PORT)?.as_deref(), Some("102"));
    earlier_image_restores(stasis, &job)
}
