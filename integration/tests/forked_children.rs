//! Children that were forked by a CUDA process and never exec'd: they hold NVIDIA devices that they cannot use and CRIU cannot
//! dump.

use anyhow::Result;
use stasis_integration::bundle::Bundle;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;

#[test]
fn on_hybrid_cgroups() -> Result<()> {
    all_cases(&Lab::start(Suite::Trixie, Cgroups::oldest()?, "runc")?)
}

#[test]
fn on_cgroups_v2() -> Result<()> {
    all_cases(&Lab::start(Suite::Sid, Cgroups::V2, "runc")?)
}

/// The parent counts on the GPU, each child in its own memory.
fn all_cases(lab: &Lab) -> Result<()> {
    let _containerd = lab.containerd()?;
    let forker = Bundle::make(lab, "forker", &["/bin/forker", "10000"])?;
    forker.run()?;
    assert_eq!(lab.ask_until_up(10000)?, "101 201 301");
    assert_eq!(lab.gpu_processes()?, 3, "the children inherited devices");

    lab.order("lock forker error:304")?;
    forker.checkpoint_fails("refused", &[])?;
    lab.order("")?;
    assert_eq!(
        lab.gpu_processes()?,
        3,
        "nobody gives up anything before the job is saved"
    );
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102 202 302"));

    forker.checkpoint("first", &["--leave-running"])?;
    let notes = lab.operation("checkpoint")?["notes"].to_string();
    assert_eq!(notes.matches("gave up").count(), 2, "{notes}");
    assert_eq!(lab.gpu_processes()?, 1, "only the parent has devices");
    assert_eq!(lab.ask(10000)?.as_deref(), Some("103 203 303"));

    forker.checkpoint("second", &[])?;
    assert_eq!(lab.operation("checkpoint")?["notes"].as_array(), None);
    forker.restore("second")?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("104 204 304"));
    forker.delete()?;
    forker.restore("first")?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("103 203 303"));
    assert_eq!(lab.gpu_processes()?, 1);
    forker.delete()?;
    devices_of_its_own_are_nobodys_to_take(lab)
}

/// A process that is only just starting CUDA has devices open, too, and no CUDA state yet. Here a shell is in its place.
fn devices_of_its_own_are_nobodys_to_take(lab: &Lab) -> Result<()> {
    let script = "/bin/counter 10001 & exec 7</dev/nvidia0; wait";
    let own = Bundle::make(lab, "own", &["/bin/sh", "-c", script])?;
    own.run()?;
    assert_eq!(lab.ask_until_up(10001)?, "101");
    lab.set("runc", "preflight.allow = [\"nvidia-device\"]\n")?;
    let said = own.checkpoint_fails("own", &[])?;
    assert!(said.contains("runs on as before"), "{said}");
    lab.set("runc", "")?;
    let notes = lab.operation("checkpoint")?["notes"].to_string();
    assert!(!notes.contains("gave up"), "{notes}");
    let descriptor = lab.host.path(format!("/proc/{}/fd/7", own.pid()?));
    assert_eq!(std::fs::read_link(descriptor)?.as_os_str(), "/dev/nvidia0");
    assert_eq!(lab.ask(10001)?.as_deref(), Some("102"));
    own.delete()
}
