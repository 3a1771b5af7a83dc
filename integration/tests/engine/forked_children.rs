//! Children that were forked by a CUDA process and never exec'd: they hold NVIDIA devices that they
//! cannot use and CRIU cannot dump.

use anyhow::Result;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{CUDA_CHECKPOINT, StasisHost};
use stasis_integration::on_hosts;

on_hosts!(all_cases: trixie, sid_v2);

/// The parent opens its devices anew when it gets its GPU back, so the children share none with it.
fn suspended_and_woken(stasis: &StasisHost) -> Result<()> {
    let forker = Bundle::make(stasis, "woken", &["/bin/forker", "10002"])?;
    forker.comes_up(10002, "101 201 301")?;
    let toggle = [
        CUDA_CHECKPOINT,
        "--toggle",
        "--container",
        "woken",
        "--root",
        ROOT,
    ];
    stasis.run(&toggle)?;
    stasis.run(&toggle)?;
    assert_eq!(stasis.ask(10002)?.as_deref(), Some("102 202 302"));
    forker.checkpoint("image", &[])?;
    forker.restore("image")?;
    assert_eq!(stasis.ask(10002)?.as_deref(), Some("103 203 303"));
    forker.delete()
}

/// The parent counts on the GPU, each child in its own memory.
fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let forker = Bundle::make(stasis, "forker", &["/bin/forker", "10000"])?;
    forker.comes_up(10000, "101 201 301")?;
    assert_eq!(stasis.gpu_processes()?, 3, "the children inherited devices");

    stasis.inject("lock forker error:304")?;
    forker.checkpoint_fails("refused", &[])?;
    stasis.inject("")?;
    assert_eq!(
        stasis.gpu_processes()?,
        3,
        "nobody gives up anything before the job is saved"
    );
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102 202 302"));

    forker.checkpoint("first", &["--leave-running"])?;
    let notes = stasis.operation("checkpoint")?["notes"].to_string();
    assert_eq!(notes.matches("gave up").count(), 2, "{notes}");
    assert_eq!(stasis.gpu_processes()?, 1, "only the parent has devices");
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103 203 303"));

    forker.checkpoint("second", &[])?;
    assert_eq!(stasis.operation("checkpoint")?["notes"].as_array(), None);
    forker.restore("second")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("104 204 304"));
    forker.delete()?;
    forker.restore("first")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103 203 303"));
    assert_eq!(stasis.gpu_processes()?, 1);
    forker.delete()?;
    suspended_and_woken(stasis)?;
    devices_of_its_own_are_nobodys_to_take(stasis)
}

/// A process that is just starting CUDA has devices open, too, and no CUDA state yet. A shell
/// stands for it here.
fn devices_of_its_own_are_nobodys_to_take(stasis: &StasisHost) -> Result<()> {
    let script = "/bin/counter 10001 & exec 7</dev/nvidia0; wait";
    let own = Bundle::make(stasis, "own", &["/bin/sh", "-c", script])?;
    own.comes_up(10001, "101")?;
    stasis.set("runc", "preflight.allow = [\"nvidia-device\"]\n")?;
    let message = own.checkpoint_fails("own", &[])?;
    assert!(message.contains("runs on as before"), "{message}");
    stasis.set("runc", "")?;
    let notes = stasis.operation("checkpoint")?["notes"].to_string();
    assert!(!notes.contains("gave up"), "{notes}");
    let descriptor = stasis.path(format!("/proc/{}/fd/7", own.pid()?));
    assert_eq!(std::fs::read_link(descriptor)?.as_os_str(), "/dev/nvidia0");
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("102"));
    own.delete()
}
