//! Each command with its standard output closed before it answers: it ends as podman's do, by
//! SIGPIPE and without a word.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use stasis_integration::host::installed::{CUDA_CHECKPOINT, PROGRAM, StasisHost};

use super::json;

const TIMES: usize = 20;

/// The commands that answer, with `IMAGE` for an existing image.
const COMMANDS: [&str; 18] = [
    "doctor --self-test",
    "doctor --self-test --json",
    "check podman-job",
    "check podman-job --json",
    "ps",
    "ps --json",
    "log",
    "log --json",
    "log --timeline",
    "metrics",
    "images",
    "images --json",
    "verify IMAGE",
    "inspect --all IMAGE",
    "inspect --json IMAGE",
    "gc --keep 0",
    "recover",
    "checkpoint --dry-run podman-job",
];

pub(crate) fn a_closed_pipe_ends_them_quietly(stasis: &StasisHost) -> Result<()> {
    let (_, images) = json(stasis, &["images"])?;
    let image = images.first().and_then(|row| row["image"].as_str());
    let image = image.context("no image")?;
    for command in COMMANDS {
        let command = command.replace("IMAGE", image);
        for _ in 0..TIMES {
            is_quiet(stasis, PROGRAM, &command)?;
        }
    }
    is_quiet(
        stasis,
        CUDA_CHECKPOINT,
        "--get-state --container podman-job",
    )
}

fn is_quiet(stasis: &StasisHost, program: &str, arguments: &str) -> Result<()> {
    let (reader, writer) = io::pipe()?;
    drop(reader);
    let mut command = stasis.command(program);
    command.args(arguments.split(' ')).stdout(writer);
    let ended = command.stderr(Stdio::piped()).spawn()?.wait_with_output()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    let by_signal = ended.status.signal() == Some(Signal::SIGPIPE as i32);
    assert!(by_signal, "{arguments}: {:?}: {said}", ended.status);
    assert_eq!(said, "", "{arguments}");
    Ok(())
}
