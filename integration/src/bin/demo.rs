//! The demonstration: a counter in GPU memory is checkpointed, gone, restored, and counts on.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use stasis_integration::check::ended::ended;
use stasis_integration::host::c_build;
use stasis_integration::host::image::Image;
use stasis_integration::host::installed::{DEVICES, DRIVER, RUNTIME, StasisHost};
use stasis_integration::host::{Cgroups, Suite};

const PORT: u16 = 10000;
const STEPS: u8 = 4;

fn main() -> ExitCode {
    ended(show_all())
}

fn show_all() -> Result<()> {
    let mut screen = std::io::stdout().lock();
    let driver = if c_build::has_gpu() {
        "the GPU of this machine, with its own driver"
    } else {
        "no GPU here: a stand-in for the CUDA driver, everything else is real"
    };
    writeln!(screen, "driver: {driver}")?;
    writeln!(
        screen,
        "starting a test host with containerd (the first time it is built from Debian packages: minutes)"
    )?;
    let stasis = StasisHost::start(Suite::Sid, Cgroups::V2, "runc")?;
    let _containerd = stasis.containerd()?;
    writeln!(
        screen,
        "{}",
        stasis.run_for_text(&["containerd", "--version"])?
    )?;
    tell(&stasis, &mut screen)
}

fn tell(stasis: &StasisHost, screen: &mut impl Write) -> Result<()> {
    step(
        screen,
        1,
        "a container with a counter in GPU memory, 100 at the start:",
    )?;
    show(stasis, screen, &run_command())?;
    packet(stasis, screen, "101")?;
    on_gpu(stasis, screen, 1)?;

    let what = "a checkpoint; the container is killed and removed, its GPU is free:";
    step(screen, 2, what)?;
    show(
        stasis,
        screen,
        "ctr container checkpoint --task --image --rw counter demo:1",
    )?;
    show(stasis, screen, "ctr task kill --signal KILL counter")?;
    writeln!(
        screen,
        "  $ ctr task rm counter && ctr container rm counter"
    )?;
    stasis.ctr_remove("counter")?;
    on_gpu(stasis, screen, 0)?;
    ensure!(stasis.is_silent(PORT)?, "the counter still answers");

    step(screen, 3, "the restore:")?;
    show(
        stasis,
        screen,
        "ctr container restore --live --rw counter demo:1",
    )?;
    packet(stasis, screen, "102")?;
    on_gpu(stasis, screen, 1)?;

    step(screen, 4, "what took how long, each phase as a bar:")?;
    let timeline = "stasis log --timeline --container counter";
    writeln!(screen, "  $ {timeline}\n{}", run(stasis, timeline)?)?;
    stasis.ctr_remove("counter")?;
    writeln!(
        screen,
        "\nthe counter went on from 101 to 102 through a checkpoint and a restore"
    )?;
    Ok(())
}

fn run_command() -> String {
    let devices = DEVICES.map(|device| format!("--device {device}")).join(" ");
    format!(
        "ctr run -d --net-host --cpu-shares 0 --runc-binary {RUNTIME} {devices} \
         --mount type=bind,src={DRIVER},dst={DRIVER},options=rbind:ro \
         --env LD_LIBRARY_PATH={DRIVER}/lib64 {} counter /bin/counter",
        Image::DEFAULT_NAME
    )
}

/// Announces a step.
fn step(screen: &mut impl Write, number: u8, what: &str) -> Result<()> {
    Ok(writeln!(screen, "\n[{number}/{STEPS}] {what}")?)
}

/// Runs a command in the host as a person would, and shows it.
fn show(stasis: &StasisHost, screen: &mut impl Write, command: &str) -> Result<()> {
    writeln!(screen, "  $ {command}")?;
    run(stasis, command).map(drop)
}

fn run(stasis: &StasisHost, command: &str) -> Result<String> {
    let words: Vec<&str> = command.split(' ').collect();
    stasis.run_for_text(&words)
}

fn packet(stasis: &StasisHost, screen: &mut impl Write, expected: &str) -> Result<()> {
    let answer = stasis.ask_until_up(PORT)?;
    writeln!(screen, "  a packet to port {PORT} is answered: {answer}")?;
    ensure!(answer == expected, "the answer had to be {expected}");
    Ok(())
}

fn on_gpu(stasis: &StasisHost, screen: &mut impl Write, expected: usize) -> Result<()> {
    let processes = stasis.gpu_processes()?;
    writeln!(screen, "  processes with the GPU open: {processes}")?;
    ensure!(processes == expected, "that had to be {expected}");
    Ok(())
}
