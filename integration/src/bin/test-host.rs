//! A test host to try things in: `test-host trixie|sid hybrid|v2 [COMMAND...]`, a shell by default.
//!
//! containerd runs in it, and `/root/image.tar` holds a test image with the programs that
//! `STASIS_PROGRAMS` (paths, separated by colons) names.

use std::path::Path;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use stasis_integration::host::image::Image;
use stasis_integration::host::{Cgroups, Host, Suite};

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [suite, cgroups, command @ ..] = arguments.as_slice() else {
        bail!("usage: test-host trixie|sid hybrid|v2 [COMMAND...]");
    };
    let host = Host::start(suite_named(suite)?, cgroups_named(cgroups)?)?;
    let programs = std::env::var("STASIS_PROGRAMS").unwrap_or_default();
    let programs = programs.split(':').filter(|path| !path.is_empty());
    let image = programs
        .map(Path::new)
        .try_fold(Image::new(Image::DEFAULT_NAME)?, Image::program)?;
    image.write(&host.path("/root/image.tar"))?;
    let _containerd = host.containerd()?;
    let shell = ["bash".to_owned()];
    let (program, rest) = if command.is_empty() {
        &shell[..]
    } else {
        command
    }
    .split_first()
    .context("no command")?;
    let status = host
        .command(program)
        .args(rest)
        .stdin(Stdio::inherit())
        .status()?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn suite_named(name: &str) -> Result<Suite> {
    [Suite::Trixie, Suite::Sid]
        .into_iter()
        .find(|suite| suite.name() == name)
        .with_context(|| format!("there is no test host of the suite {name}"))
}

fn cgroups_named(name: &str) -> Result<Cgroups> {
    match name {
        "hybrid" => Ok(Cgroups::Hybrid),
        "v2" => Ok(Cgroups::V2),
        other => bail!("{other} is neither hybrid nor v2"),
    }
}
