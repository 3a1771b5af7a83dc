//! Images that are restored while they arrive: the registry's answer is held in the middle of a
//! blob and released, or its reader or its fetcher is killed, or the registry lies.

mod steps;

use std::fs;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use serde_json::json;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::process_tree::descendant;
use stasis_integration::client::answer::listed;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::breaking_proxy::BreakingProxy;
use stasis_integration::host::docker_registry::{BLOBS, PORT};
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::needs;

use super::refused::{INTO, STAGING, fails};
use super::registry::{BREAKING, tagged, with_credentials};
use super::{LARGE, SMALL, holds_its_memory, moved};

const REPOSITORY: &str = "jobs/one";
/// As in the other tests, with more memory on the GPU than anything else of the image has, and
/// beside two processes that share theirs.
const COMMAND: &str = "/bin/sharing 10002 & /bin/memcheck 96 10000 & exec /bin/memcheck 4 10001";
const SHARING: u16 = 10002;
/// Less than the large blob has, and more than all others.
const HALF: u64 = 64 << 20;
/// The least size of a blob, with the header of its pack.
const LEAST: u64 = (4 << 20) + 4096;
const SETTINGS: &str = "restore.at_create = \"/images\"
restore.registry = \"localhost:5444/jobs\"
preflight.allow = [\"shared-gpu\"]
";

/// A registry with an image, and the proxy in front of it.
struct Arrives<'a> {
    stasis: &'a StasisHost,
    job: &'a Bundle<'a>,
    proxy: &'a BreakingProxy,
}

#[test]
fn a_restore_goes_on_with_what_arrives() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid()?)?;
    let _registry = with_credentials(stasis, SETTINGS)?;
    let job = &Bundle::make(stasis, "job", &["/bin/sh", "-c", COMMAND])?;
    job.run()?;
    stasis.ask_until_up(LARGE)?;
    stasis.ask_until_up(SMALL)?;
    ensure!(stasis.ask_until_up(SHARING)? == "101 101");
    let push = |name: &str| {
        let pushed = moved(
            stasis,
            &["push", &tagged(PORT, REPOSITORY, name), &job.image(name)],
        );
        stasis.run(&["rm", "-r", &job.image(name)])?;
        pushed
    };
    holds_its_memory(stasis, SMALL)?;
    job.checkpoint("first", &["--leave-running"])?;
    push("first")?;
    holds_its_memory(stasis, SMALL)?;
    job.checkpoint("second", &[])?;
    let pushed = push("second")?;
    // Two of memory and two of CRIU's files.
    ensure!(pushed["blobs"] == 4, "{pushed}");
    let proxy = &BreakingProxy::start(&stasis.host, BREAKING, PORT, u64::MAX, 0)?;
    let arrives = Arrives { stasis, job, proxy };
    let cases: [(&str, &dyn Fn() -> Result<()>); 6] = [
        ("goes on", &|| arrives.a_restore_waits_for_its_part()),
        ("created", &|| arrives.a_start_waits_for_its_part()),
        ("fetcher", &|| {
            arrives.a_fetcher_that_is_killed_ends_the_restore()
        }),
        ("early", &|| {
            arrives.a_fetcher_that_is_killed_early_leaves_nothing()
        }),
        ("restore", &|| {
            arrives.a_restore_that_is_killed_leaves_it_arriving()
        }),
        ("lies", &|| {
            arrives.what_its_digest_does_not_say_is_never_unlocked()
        }),
    ];
    for (name, case) in cases {
        case().context(name)?;
        stasis.nothing_to_put_right().context(name)?;
        stasis.run(&["rm", "-rf", INTO, STAGING, "/images/.pulled"])?;
    }
    Ok(())
}

impl Arrives<'_> {
    fn a_restore_waits_for_its_part(&self) -> Result<()> {
        self.half_of_it()?;
        self.others_are_told()?;
        let mut restore = self.restored_by_criu()?;
        self.proxy.let_go();
        ensure!(restore.wait()?.success(), "{:?}", self.job.message()?);
        self.goes_on()?;
        ensure!(!self.marker().exists(), "it is still arriving");
        self.stasis.run(&[PROGRAM, "verify", INTO])?;
        self.job.delete()
    }

    /// Commands that do not wait report the arriving image, and leave it alone.
    fn others_are_told(&self) -> Result<()> {
        let reference = tagged(PORT, "jobs/other", "second");
        let (kind, error) = fails(self.stasis, &["push", &reference, INTO])?;
        ensure!(kind == "image-arriving", "{kind}: {error}");
        let (kind, error) = fails(self.stasis, &["pull", &self.reference(), INTO])?;
        ensure!(kind == "image-directory", "{kind}: {error}");
        for (verb, restorable) in [("images", true), ("verify", false)] {
            let mut command = self.stasis.command(PROGRAM);
            let output = command.args([verb, INTO, "--json"]).output()?;
            let row = listed(&output.stdout)?.remove(0);
            ensure!(row["restorable"] == restorable, "{verb}: {row}");
            assert_contains(&row.to_string(), &["arriving"]);
        }
        Ok(())
    }

    fn a_start_waits_for_its_part(&self) -> Result<()> {
        let Self { job, proxy, .. } = self;
        proxy.hold_after(HALF);
        job.begin_with(&self.reference())?;
        job.create()?;
        ensure!(job.warnings()?.is_empty(), "{}", job.warnings()?);
        ensure!(job.status()? == "created", "{}", job.status()?);
        self.until_held()?;
        // The fetcher is gone: the start has another one go on.
        self.stasis.run(&["pkill", "-KILL", "-x", "stasis-pull"])?;
        self.until_nobody_pulls()?;
        proxy.hold_after(LEAST);
        let mut start = job.operation(&["start", &job.id])?.spawn()?;
        self.until_it_waits()?;
        ensure!(start.try_wait()?.is_none() && proxy.held() > 0);
        proxy.let_go();
        ensure!(start.wait()?.success(), "{:?}", job.message()?);
        self.goes_on()?;
        job.delete()?;
        job.change(|spec| spec["annotations"] = json!({}))
    }

    fn a_fetcher_that_is_killed_ends_the_restore(&self) -> Result<()> {
        let Self { stasis, job, proxy } = self;
        self.half_of_it()?;
        let mut restore = self.restored_by_criu()?;
        stasis.run(&["pkill", "-KILL", "-x", "stasis-pull"])?;
        ensure!(
            !restore.wait()?.success(),
            "it is restored without its contents"
        );
        self.failed_for("nobody fetches the rest")?;
        ensure!(!job.begin_restore_from(INTO)?.wait()?.success());
        self.failed_for("pull it again")?;
        proxy.let_go();
        let pulled = moved(stasis, &["pull", &self.reference(), INTO])?;
        ensure!(pulled["moved_blobs"] == 1, "{pulled}");
        // A part of that blob had arrived before.
        let [moved, all] = ["moved_bytes", "bytes"].map(|name| pulled[name].as_u64());
        ensure!(moved < all.map(|all| all - HALF / 2), "{pulled}");
        stasis.run(&[PROGRAM, "verify", INTO])?;
        let mut restore = job.begin_restore_from(INTO)?;
        ensure!(restore.wait()?.success(), "{:?}", job.message()?);
        self.goes_on()?;
        job.delete()
    }

    fn a_fetcher_that_is_killed_early_leaves_nothing(&self) -> Result<()> {
        self.proxy.hold_after(0);
        let mut command = self.stasis.command(PROGRAM);
        command.args(["pull", "--background", &self.reference(), INTO, "--json"]);
        let pull = command.stdout(std::process::Stdio::piped()).spawn()?;
        self.until_held()?;
        self.stasis.run(&["pkill", "-KILL", "-x", "stasis-pull"])?;
        let output = pull.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.code() == Some(2), "{said}");
        assert_contains(&said, &["registry", "killed"]);
        ensure!(!self.stasis.path(INTO).exists());
        self.proxy.let_go();
        moved(
            self.stasis,
            &["pull", "--background", &self.reference(), INTO],
        )?;
        self.until_whole()?;
        self.stasis.run(&[PROGRAM, "verify", INTO]).map(drop)
    }

    fn a_restore_that_is_killed_leaves_it_arriving(&self) -> Result<()> {
        self.half_of_it()?;
        let mut restore = self.restored_by_criu()?;
        let runtime = descendant(&restore, "stasis-runtime")?.context("it is over")?;
        kill(runtime, Signal::SIGKILL)?;
        restore.wait()?;
        self.stasis.nothing_to_put_right()?;
        ensure!(self.job.status()?.is_empty(), "something is left");
        ensure!(self.marker().exists(), "it arrives no more");
        self.proxy.let_go();
        self.until_whole()?;
        self.stasis.run(&[PROGRAM, "verify", INTO]).map(drop)
    }

    /// Changes a byte into one that no contents of this image have: the small process had it when
    /// the first image was made. Only the blob's digest shows it.
    fn what_its_digest_does_not_say_is_never_unlocked(&self) -> Result<()> {
        let stasis = self.stasis;
        let of_memory = "find $1 -name data -size +60M";
        let large = ["bash", "-c", of_memory, "find", BLOBS];
        let large = stasis.run_for_text(&large)?;
        let path = stasis.path(large.trim());
        let good = fs::read(&path)?;
        let mut forged = good.clone();
        forged[self.unused()?] ^= 1;
        fs::write(&path, forged)?;
        self.half_of_it()?;
        let mut restore = self.restored_by_criu()?;
        self.proxy.let_go();
        ensure!(!restore.wait()?.success(), "what is forged runs");
        self.failed_for("another digest")?;
        fs::write(&path, good)?;
        let pulled = moved(stasis, &["pull", &self.reference(), INTO])?;
        ensure!(pulled["moved_blobs"] == 1, "{pulled}");
        stasis.run(&[PROGRAM, "verify", INTO]).map(drop)
    }
}
