//! A process with peer access between two GPUs, and an allocation too large for it, is refused once
//! it is locked. Where that cannot be known, a process that may have both is refused before, unless
//! the container's annotation rules peer access out.

use anyhow::Result;
use serde_json::{Value, json};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{CUDA_CHECKPOINT, PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};

/// An allocation that the driver does not restore with peer access.
const LARGE: &str = "512";
/// Enough to be refused where nothing is known, with a context of any size.
const GUESSED: &str = "1024";
/// An allocation that the driver was seen to restore.
const SMALL: &str = "256";

on_hosts!(all_cases: trixie_v2, crun_on_sid_v2);

fn all_cases(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.inject("gpus 2")?;
    it_is_refused_and_goes_on(stasis)?;
    small_memory_or_no_access_is_no_reason(stasis)?;
    the_settings_let_it_through(stasis)?;
    where_nothing_is_known_it_is_guessed(stasis)?;
    the_annotation_lets_it_through(stasis)
}

fn start<'l>(stasis: &'l StasisHost, id: &str, port: u16, options: &[&str]) -> Result<Bundle<'l>> {
    let port_text = port.to_string();
    let command = [&["/bin/peers", &port_text], options].concat();
    let bundle = Bundle::make(stasis, id, &command)?;
    bundle.suit_crun()?;
    bundle.give(&[0, 1])?;
    Ok(bundle)
}

fn it_is_refused_and_goes_on(stasis: &StasisHost) -> Result<()> {
    let peers = start(stasis, "large", 10000, &[LARGE])?;
    peers.comes_up(10000, "101 201")?;
    let message = peers.checkpoint_fails("refused", &[])?;
    assert_contains(
        &message,
        &[
            "peer-access: ",
            "(peers): its GPU 0 has peer access to its GPU 1, and it has an allocation of 512 MiB",
            "cudaDeviceDisablePeerAccess",
            "CUDA_VISIBLE_DEVICES",
        ],
    );
    let toggle = ["--toggle", "--container", "large", "--root", ROOT];
    let toggle = [&[CUDA_CHECKPOINT][..], &toggle].concat();
    assert_contains(&stasis.fails(&toggle)?, &["peer-access: "]);
    let check = stasis
        .command(PROGRAM)
        .args(["check", "--json", "--root", ROOT, "large"])
        .output()?;
    let report: Value = serde_json::from_slice(&check.stdout)?;
    assert_eq!(report["checkpointable"], true);
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102 202"));
    peers.delete()
}

fn small_memory_or_no_access_is_no_reason(stasis: &StasisHost) -> Result<()> {
    for (id, options) in [("small", &[SMALL][..]), ("none", &[GUESSED, "disabled"])] {
        let peers = start(stasis, id, 10001, options)?;
        peers.comes_up(10001, "101 201")?;
        peers.checkpoint("image", &[])?;
        peers.restore("image")?;
        assert_eq!(stasis.ask(10001)?.as_deref(), Some("102 202"));
        peers.delete()?;
    }
    Ok(())
}

fn where_nothing_is_known_it_is_guessed(stasis: &StasisHost) -> Result<()> {
    stasis.surveys_have_failed()?;
    let peers = start(stasis, "guessed", 10004, &[GUESSED, "disabled"])?;
    peers.comes_up(10004, "101 201")?;
    let message = peers.checkpoint_fails("refused", &[])?;
    let parts = [
        "peer-access: ",
        "(peers): it holds ",
        "io.stasis.peer-access=none",
    ];
    assert_contains(&message, &[&parts[..], &["nothing was changed"]].concat());
    assert_eq!(stasis.ask(10004)?.as_deref(), Some("102 202"));
    peers.delete()
}

/// The harm that the refusal prevents: the driver saves the process and cannot restore it.
fn the_settings_let_it_through(stasis: &StasisHost) -> Result<()> {
    stasis.set(&stasis.low_level, "preflight.allow = [\"peer-access\"]\n")?;
    let peers = start(stasis, "lost", 10002, &[LARGE])?;
    peers.comes_up(10002, "101 201")?;
    let message = peers.checkpoint_fails("lost", &["--leave-running"])?;
    assert_contains(&message, &["CUDA_ERROR_INVALID_VALUE"]);
    assert!(stasis.is_silent(10002)?);
    stasis.set(&stasis.low_level, "")?;
    peers.delete()
}

fn the_annotation_lets_it_through(stasis: &StasisHost) -> Result<()> {
    let peers = start(stasis, "declared", 10003, &[GUESSED, "disabled"])?;
    peers.change(|spec| spec["annotations"] = json!({"io.stasis.peer-access": "none"}))?;
    peers.comes_up(10003, "101 201")?;
    peers.checkpoint("image", &[])?;
    peers.restore("image")?;
    assert_eq!(stasis.ask(10003)?.as_deref(), Some("102 202"));
    peers.delete()
}
