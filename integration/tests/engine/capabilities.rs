//! Each capability of the machine is taken away in turn: `stasis doctor` reports it, a container
//! with GPU memory is still checkpointed and restored, with the fall-back in a note; or refused,
//! without a CRIU that stasis uses.
//!
//! Not taken away here: the kernel's page size (`bulk_memory/plugin.rs` has that), and the version
//! of cgroups, which the kind of host decides.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};

const PORT: u16 = 10000;
/// The first CRIU in the runtime's PATH.
const CRIU: &str = "/usr/local/sbin/criu";
/// CRIU's record of what the kernel can do (criu/kerndat.c).
const KERNEL_DATA: &str = "/run/criu.kdat";

on_hosts!(each_is_taken_away: trixie_hybrid, trixie_v2, sid_v2);

/// The mover of GPU contents without a capability.
enum Left {
    /// stasis.
    Ours,
    /// The driver and CRIU, with this note.
    Criu(&'static str),
    /// None: checkpoints are refused with this message.
    Nobody(&'static str),
}

/// The finding of `stasis doctor` without a capability, if any, the function that takes it away,
/// and the mover that is left.
type Case = (Option<&'static str>, fn(&StasisHost) -> Result<()>, Left);

const CASES: [Case; 4] = [
    (None, |_| Ok(()), Left::Ours),
    (
        Some("criu-plugin"),
        without_plugin,
        Left::Criu("there is no plugin /nowhere.so"),
    ),
    (
        Some("criu-unknown"),
        with_an_unknown_criu,
        Left::Nobody("CRIU does not report its version"),
    ),
    (
        Some("criu-version"),
        with_an_old_criu,
        Left::Nobody("CRIU 3.19 is too old; install 4.0 or newer"),
    ),
];

fn each_is_taken_away(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let job = Bundle::make(stasis, "job", &["/bin/memcheck", "24", "10000"])?;
    job.run()?;
    ensure!(stasis.ask_until_up(PORT)? == "ok 0");
    for (number, (found, take_away, left)) in CASES.into_iter().enumerate() {
        let name = || format!("{found:?}");
        usual(stasis)?;
        take_away(stasis).with_context(name)?;
        is_found(stasis, found).with_context(name)?;
        match left {
            Left::Nobody(says) => refused(&job, says).with_context(name)?,
            left => one(stasis, &job, number * 2, &left).with_context(name)?,
        }
    }
    usual(stasis)?;
    job.delete()
}

/// Puts all capabilities back.
fn usual(stasis: &StasisHost) -> Result<()> {
    stasis.set(&stasis.low_level, "")?;
    stasis.run(&["rm", "-f", CRIU, KERNEL_DATA]).map(drop)
}

/// Checks that `stasis doctor` misses this capability, and no other one.
fn is_found(stasis: &StasisHost, id: Option<&str>) -> Result<()> {
    let mut command = stasis.command(PROGRAM);
    let output = command.args(["doctor", "--json"]).output()?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let findings = report["findings"].as_array().context("no findings")?;
    let wrong = findings.iter().filter(|finding| finding["verdict"] != "ok");
    let wrong: Vec<_> = wrong.filter_map(|finding| finding["id"].as_str()).collect();
    for one in CASES.iter().filter_map(|(found, ..)| *found) {
        ensure!(wrong.contains(&one) == (id == Some(one)), "{one}: {report}");
    }
    Ok(())
}

fn one(stasis: &StasisHost, job: &Bundle<'_>, asked: usize, left: &Left) -> Result<()> {
    for options in [&["--leave-running"][..], &[]] {
        job.checkpoint("image", options)?;
        let line = stasis.operation("checkpoint")?;
        let by_us = line["bulk_memory"]["bytes"].as_u64().unwrap_or(0);
        match left {
            Left::Ours => {
                ensure!(by_us >= 24 << 20, "{line}");
                ensure!(line["notes"].is_null(), "{line}");
            }
            Left::Criu(says) | Left::Nobody(says) => {
                assert_contains(
                    &line["notes"].to_string(),
                    &["the driver and CRIU move", says],
                );
                ensure!(by_us == 0, "{line}");
            }
        }
        let now = match options {
            [] => {
                stasis.run(&["rm", "-f", KERNEL_DATA])?;
                job.restore("image")?;
                asked + 2
            }
            _ => asked + 1,
        };
        ensure!(
            stasis.ask(PORT)? == Some(format!("ok {now}")),
            "{options:?}"
        );
    }
    Ok(())
}

fn refused(job: &Bundle<'_>, says: &str) -> Result<()> {
    let said = job.checkpoint_fails("image", &["--leave-running"])?;
    assert_contains(&said, &["refused [criu]", says, "nothing was changed"]);
    Ok(())
}

fn without_plugin(stasis: &StasisHost) -> Result<()> {
    stasis.set(&stasis.low_level, "gpu_contents.plugin = \"/nowhere.so\"\n")
}

/// A CRIU that does not report its version, such as a home-built one.
fn with_an_unknown_criu(stasis: &StasisHost) -> Result<()> {
    says_of_itself(stasis, "exit 1")
}

fn with_an_old_criu(stasis: &StasisHost) -> Result<()> {
    says_of_itself(stasis, "echo Version: 3.19; exit 0")
}

fn says_of_itself(stasis: &StasisHost, answer: &str) -> Result<()> {
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ {answer}; }}\nexec /usr/sbin/criu \"$@\"\n"
    );
    stasis.script(CRIU, &script)
}
