//! Processes that talk with a registry are held in the middle of it: no thread of them has more
//! capabilities than its work needs, nor gets any.

use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::breaking_proxy::BreakingProxy;
use stasis_integration::host::docker_registry::PORT;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::needs;

use super::holds_its_memory;
use super::registry::{BREAKING, tagged, with_credentials};

const SETTINGS: &str = "restore.at_create = \"/images\"\nrestore.keep_at_stop = 1\n\
    restore.registry = \"localhost:5444/jobs\"\n";
const COMMAND: [&str; 3] = ["/bin/memcheck", "24", "10000"];
const JOB: u16 = 10000;
const THEIRS: &str = "/images/theirs";
/// More bytes than documents have, and fewer than an image.
const DOCUMENTS: u64 = 1 << 20;
/// Lines of `/proc/PID/task/TID/status`, each once for all threads.
const SETS: &str = "grep -hE '^(Cap|NoNewPrivs)' \
    $(for process in $(pgrep -x \"$0\"); do echo /proc/$process/task/*/status; done) | sort -u";
const NONE: &str = "0000000000000000";
/// CAP_DAC_OVERRIDE and CAP_FOWNER.
const OF_FILES: &str = "000000000000000a";

/// A registry, and the proxy in front of it.
struct Held<'a> {
    stasis: &'a StasisHost,
    proxy: &'a BreakingProxy,
}

#[test]
fn who_talks_with_a_registry_has_few_capabilities() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid()?)?;
    let _registry = with_credentials(stasis, SETTINGS)?;
    let proxy = &BreakingProxy::start(&stasis.host, BREAKING, PORT, u64::MAX, 0)?;
    let held = Held { stasis, proxy };
    let job = &Bundle::make(stasis, "job", &COMMAND)?;
    job.annotate("io.stasis.checkpoint", "on-term")?;
    job.annotate("io.stasis.checkpoint.key", "saved")?;
    job.begin_with("latest:saved")?;
    held.a_create_asks(job).context("create")?;
    held.a_stop_pushes(job).context("stop")?;
    held.commands_do().context("commands")?;
    stasis.nothing_to_put_right()
}

impl Held<'_> {
    fn a_create_asks(&self, job: &Bundle<'_>) -> Result<()> {
        self.hold_after(0)?;
        let create = job.begin_create()?;
        self.are_left("stasis-newest")?;
        self.goes_on(create)?;
        job.start()?;
        self.stasis.ask_until_up(JOB)?;
        holds_its_memory(self.stasis, JOB)
    }

    /// The process that pushes is killed, and another one pushes again.
    fn a_stop_pushes(&self, job: &Bundle<'_>) -> Result<()> {
        self.hold_after(0)?;
        job.kill("TERM")?;
        self.are_left("stasis-push")?;
        let kill = ["pkill", "-KILL", "-x", "stasis-push"];
        self.stasis.run(&kill)?;
        self.hold_after(0)?;
        // The end of the stop starts the other one.
        self.are_left("stasis-push")?;
        self.proxy.let_go();
        wait_until_clear(|| {
            let left = ["find", "/images/.to-push", "-type", "f"];
            let left = self.stasis.run_for_text(&left)?;
            Ok((!left.is_empty()).then_some(left))
        })?;
        self.stasis.nobody_is_stopped()?;
        job.delete()
    }

    fn commands_do(&self) -> Result<()> {
        let image = self.stasis.run_for_text(&["ls", "/images/saved"])?;
        let image = format!("/images/saved/{image}");
        let reference = tagged(BREAKING, "jobs/one", "1");
        // Another user's, whom root may write to all the same.
        let theirs = ["install", "-d", "-o", "1000", "-m", "0700", THEIRS];
        self.stasis.run(&theirs)?;
        let (into, later) = (format!("{THEIRS}/now"), format!("{THEIRS}/later"));
        for (arguments, bytes, process) in [
            (&["push", &reference, &image][..], 0, "stasis"),
            (&["inspect", &reference], 0, "stasis"),
            (&["pull", &reference, &into], DOCUMENTS, "stasis"),
            (
                &["pull", "--background", &reference, &later],
                DOCUMENTS,
                "stasis-pull",
            ),
        ] {
            self.hold_after(bytes)?;
            let mut command = self.stasis.command(PROGRAM);
            let command = command.args(arguments).stdout(Stdio::null()).spawn()?;
            let checked = self.are_left(process);
            self.goes_on(command).with_context(|| arguments.join(" "))?;
            checked.with_context(|| arguments.join(" "))?;
        }
        self.stasis.run(&[PROGRAM, "verify", &into]).map(drop)
    }

    /// Holds answers of the registry from now on, and none of before.
    fn hold_after(&self, bytes: u64) -> Result<()> {
        self.proxy.let_go();
        wait_until_clear(|| {
            let held = self.proxy.held();
            Ok((held > 0).then(|| format!("{held} are held")))
        })?;
        self.proxy.hold_after(bytes);
        Ok(())
    }

    /// Waits until a process of this name is held, which has [`OF_FILES`] and nothing else.
    fn are_left(&self, process: &str) -> Result<()> {
        wait_until_clear(|| {
            let held = self.proxy.held();
            Ok((held == 0).then(|| "nothing is held".to_owned()))
        })?;
        let sets = ["sh", "-c", SETS, process];
        let found = self.stasis.run_for_text(&sets)?;
        let expected = [
            ("CapAmb", NONE),
            ("CapBnd", OF_FILES),
            ("CapEff", OF_FILES),
            ("CapInh", NONE),
            ("CapPrm", OF_FILES),
            ("NoNewPrivs", "1"),
        ];
        let expected = expected.map(|(name, value)| format!("{name}:\t{value}"));
        ensure!(found == expected.join("\n"), "{process} has\n{found}");
        Ok(())
    }

    fn goes_on(&self, mut process: Child) -> Result<()> {
        self.proxy.let_go();
        let status = process.wait()?;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}
