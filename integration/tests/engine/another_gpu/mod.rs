//! Restores to other GPUs than at the checkpoint: chosen or asked for, with only their device nodes
//! in the container.

mod driver_files;
mod mapping;

use anyhow::{Context, Result};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

on_hosts!(all_cases: sid_v2, crun_on_sid_v2, trixie);

fn all_cases(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.inject("gpus 4")?;
    let cases: [(&str, Case); 7] = [
        ("mapped", driver_files::libraries_in_use_cannot_change),
        ("moved", mapping::the_gpu_that_is_given_takes_the_place),
        ("several", mapping::all_gpus_of_a_process_are_mapped),
        (
            "hidden",
            mapping::gpus_that_nobody_sees_are_mapped_when_the_driver_asks,
        ),
        ("asked", mapping::a_map_can_be_asked_for),
        ("numbers", driver_files::stale_device_numbers_are_corrected),
        (
            "libraries",
            driver_files::libraries_of_another_patch_version_are_exchanged,
        ),
    ];
    for (port, (id, case)) in (10000..).zip(cases) {
        let memory = Bundle::make(stasis, id, &["/bin/memcheck", "32", &port.to_string()])?;
        memory.suit_crun()?;
        case(stasis, &memory, port).context(id)?;
        memory.delete()?;
        stasis.set(&stasis.low_level, "")?;
    }
    Ok(())
}

type Case = fn(&StasisHost, &Bundle<'_>, u16) -> Result<()>;

/// Starts the container with these GPUs and checkpoints it.
fn begin(memory: &Bundle<'_>, port: u16, gpus: &[usize]) -> Result<()> {
    memory.give(gpus)?;
    memory.comes_up(port, "ok 0")?;
    memory.checkpoint("first", &[])
}

fn notes(stasis: &StasisHost) -> Result<String> {
    Ok(stasis.operation("restore")?["notes"].to_string())
}
