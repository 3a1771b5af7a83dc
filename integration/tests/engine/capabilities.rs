//! Each capability of the machine taken away in turn: `stasis check --machine` tells, a container
//! with GPU memory is checkpointed and restored all the same, and the note names the fall-back.
//!
//! What cannot be taken away here: the kernel's page size (`bulk_memory/plugin.rs` has that), and
//! a version of cgroups but by the kind of host. The node has a kernel that lacks PAGEMAP_SCAN.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::c_build;
use stasis_integration::host::installed::{PROGRAM, RUNTIME, StasisHost};
use stasis_integration::{needs, on_hosts};

const PORT: u16 = 10000;
/// `PAGEMAP_SCAN` (linux/fs.h).
const PAGEMAP_SCAN: &str = "c0606610";
/// A program that becomes another one, for which the kernel lacks an ioctl.
const DENY: &str = "/usr/local/bin/deny";
const OLD_RUNTIME: &str = "/usr/local/bin/old-runtime";
const OLD_PROGRAM: &str = "/usr/local/bin/old-stasis";
/// The first CRIU in the runtime's PATH.
const CRIU: &str = "/usr/local/sbin/criu";
/// CRIU's record of what the kernel can do (criu/kerndat.c).
const KERNEL_DATA: &str = "/run/criu.kdat";

on_hosts!(each_is_taken_away: trixie_hybrid, trixie_v2, sid_v2);

/// Who moves GPU contents without a capability.
enum Left {
    /// We do. What `stasis check --machine` says of other memory; `None` if nothing is done in
    /// another way.
    Ours(Option<&'static str>),
    /// CRIU does. What the note says.
    Criu(&'static str),
}

/// A capability, how it is taken away, and what is left.
type Case = (&'static str, fn(&StasisHost) -> Result<()>, Left);

const CASES: [Case; 6] = [
    ("nothing", |_| Ok(()), Left::Ours(None)),
    (
        "PAGEMAP_SCAN",
        without_pagemap_scan,
        Left::Ours(Some("the kernel has no PAGEMAP_SCAN")),
    ),
    (
        "userfaultfd",
        without_userfaultfd,
        Left::Ours(Some("the kernel has no userfaultfd")),
    ),
    (
        "the plugin",
        without_plugin,
        Left::Criu("there is no plugin /nowhere.so"),
    ),
    (
        "a known CRIU",
        with_an_unknown_criu,
        Left::Criu("CRIU does not report its version"),
    ),
    (
        "a new CRIU",
        with_an_old_criu,
        Left::Criu("CRIU 3.19 is too old for the plugin"),
    ),
];

fn each_is_taken_away(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::of(kind)?;
    let _containerd = stasis.containerd()?;
    stasis
        .host
        .install(&c_build::build()?.join("bin/deny"), DENY)?;
    let job = Bundle::make(stasis, "job", &["/bin/memcheck", "24", "10000"])?;
    job.run()?;
    ensure!(stasis.ask_until_up(PORT)? == "ok 0");
    let job = job.through(OLD_RUNTIME);
    for (number, (name, take_away, left)) in CASES.into_iter().enumerate() {
        usual(stasis)?;
        take_away(stasis).context(name)?;
        let asked = number * 2;
        one(stasis, &job, asked, &left).with_context(|| format!("without {name}"))?;
    }
    job.delete()
}

/// Everything is there.
fn usual(stasis: &StasisHost) -> Result<()> {
    stasis.set(&stasis.low_level, "")?;
    script(stasis, OLD_RUNTIME, &format!("exec {RUNTIME} \"$@\""))?;
    script(stasis, OLD_PROGRAM, &format!("exec {PROGRAM} \"$@\""))?;
    let shown = "! mountpoint -q /proc/sys/vm || umount /proc/sys/vm";
    stasis.host.run(&["bash", "-c", shown])?;
    stasis.host.run(&["rm", "-f", CRIU, KERNEL_DATA]).map(drop)
}

fn script(stasis: &StasisHost, path: &str, command: &str) -> Result<()> {
    stasis
        .host
        .write(path, &format!("#!/bin/sh\n{command}\n"))?;
    stasis.host.run(&["chmod", "755", path]).map(drop)
}

fn one(stasis: &StasisHost, job: &Bundle<'_>, asked: usize, left: &Left) -> Result<()> {
    let check = [OLD_PROGRAM, "check", "--machine", "--json"];
    let machine: Value = serde_json::from_str(&stasis.host.run_for_text(&check)?)?;
    let lines = machine["fall_backs"].as_array().context("no list")?;
    match left {
        Left::Ours(None) => ensure!(lines.is_empty(), "{machine}"),
        Left::Ours(Some(says)) => assert_contains(
            &machine["fall_backs"].to_string(),
            &["CRIU alone moves heaps", says],
        ),
        Left::Criu(says) => assert_contains(
            &machine["fall_backs"].to_string(),
            &["CRIU alone moves GPU contents", says],
        ),
    }
    for options in [&["--leave-running"][..], &[]] {
        job.checkpoint("image", options)?;
        let line = stasis.operation("checkpoint")?;
        let by_us = line["bulk_memory"]["bytes"].as_u64().unwrap_or(0);
        match left {
            Left::Ours(_) => {
                ensure!(by_us >= 24 << 20, "{line}");
                ensure!(line["notes"].is_null(), "{line}");
            }
            Left::Criu(says) => {
                assert_contains(
                    &line["notes"].to_string(),
                    &["CRIU alone moves the memory", says],
                );
                ensure!(by_us == 0, "{line}");
            }
        }
        let now = match options {
            [] => {
                stasis.host.run(&["rm", "-f", KERNEL_DATA])?;
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

fn without_pagemap_scan(stasis: &StasisHost) -> Result<()> {
    for (path, program) in [
        (OLD_RUNTIME, RUNTIME),
        (OLD_PROGRAM, PROGRAM),
        (CRIU, "/usr/sbin/criu"),
    ] {
        script(
            stasis,
            path,
            &format!("exec {DENY} {PAGEMAP_SCAN} {program} \"$@\""),
        )?;
    }
    Ok(())
}

/// The kernel does not show the switch for it. CRIU reads others there.
fn without_userfaultfd(stasis: &StasisHost) -> Result<()> {
    let script = "mkdir -p /run/vm; cp /proc/sys/vm/* /run/vm 2>/dev/null; \
                  rm /run/vm/unprivileged_userfaultfd && mount --bind /run/vm /proc/sys/vm";
    stasis.host.run(&["bash", "-c", script]).map(drop)
}

fn without_plugin(stasis: &StasisHost) -> Result<()> {
    stasis.set(&stasis.low_level, "bulk_memory.plugin = \"/nowhere.so\"\n")
}

/// One that somebody has built, which says nothing of its version.
fn with_an_unknown_criu(stasis: &StasisHost) -> Result<()> {
    says_of_itself(stasis, "exit 1")
}

fn with_an_old_criu(stasis: &StasisHost) -> Result<()> {
    says_of_itself(stasis, "echo Version: 3.19; exit 0")
}

fn says_of_itself(stasis: &StasisHost, answer: &str) -> Result<()> {
    let command = format!("[ \"$1\" = --version ] && {{ {answer}; }}\nexec /usr/sbin/criu \"$@\"");
    script(stasis, CRIU, &command)
}
