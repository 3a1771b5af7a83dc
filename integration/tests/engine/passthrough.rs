//! Calls that are not ours are answered by the low-level runtime itself, byte for byte.

use std::os::unix::ffi::OsStrExt;
use std::process::Output;

use anyhow::Result;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};

const CALLS: [&[&str]; 12] = [
    &["--help"],
    &["--version"],
    &["features"],
    &["checkpoint", "--help"],
    &["restore", "--help"],
    &["restore", "--lsm-mount-context"],
    &["checkpoint"],
    &["checkpoint", "no-such-container"],
    &["restore", "--image-path", "/no/image", "no-such-container"],
    &["resume", "no-such-container"],
    &["--root", "/run/other", "delete", "no-such-container"],
    &["no-such-verb", "a b", "c"],
];

#[test]
fn runc() -> Result<()> {
    same_answers(&StasisHost::of(HostKind::sid_v2()?)?, "/usr/sbin/runc")
}

#[test]
fn crun() -> Result<()> {
    same_answers(
        &StasisHost::of(HostKind::crun_on_sid_v2()?)?,
        "/usr/bin/crun",
    )
}

fn same_answers(stasis: &StasisHost, low_level: &str) -> Result<()> {
    for call in CALLS {
        let answer =
            |program| -> Result<Output> { Ok(stasis.command(program).args(call).output()?) };
        let (ours, theirs) = (answer(RUNTIME)?, answer(low_level)?);
        assert_eq!(ours.status.code(), theirs.status.code(), "{call:?}");
        assert_eq!(
            without_time(&ours.stdout),
            without_time(&theirs.stdout),
            "{call:?}"
        );
        assert_eq!(
            without_time(&ours.stderr),
            without_time(&theirs.stderr),
            "{call:?}"
        );
    }
    Ok(())
}

/// Log lines begin with the time.
fn without_time(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().map(|line| match line.split_once("level=") {
        Some((_, rest)) => rest.to_owned(),
        // crun's lines: 2026-11-21T08:00:00.123456Z: text
        None => line
            .split_once("Z: ")
            .map_or(line, |(_, rest)| rest)
            .to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Arguments need not be UTF-8, and the exit code of a container is the runtime's.
#[test]
fn any_bytes_and_exit_codes() -> Result<()> {
    let stasis = StasisHost::with_containerd(HostKind::trixie_v2()?)?;
    let bundle = Bundle::make(&stasis, "code", &["/bin/sh", "-c", "exit 42"])?;
    let directory = bundle.directory();
    let status = bundle
        .runtime(&["run", "--bundle", &directory, &bundle.id])
        .status()?;
    assert_eq!(status.code(), Some(42));
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let answer = |program| {
        stasis
            .command(program)
            .args(["state".as_ref(), odd])
            .output()
    };
    let (ours, theirs) = (answer(RUNTIME)?, answer("/usr/sbin/runc")?);
    assert_eq!(ours.status.code(), theirs.status.code());
    assert_eq!(without_time(&ours.stderr), without_time(&theirs.stderr));
    Ok(())
}
