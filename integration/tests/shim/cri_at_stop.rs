//! Pods whose annotations ask for a checkpoint at the stop, and for the latest image at the start:
//! containerd passes them on to their containers.

use anyhow::Result;
use stasis_integration::client::cri::{ContainerConfig, Cri, Pod, on_a_node};
use stasis_integration::container::saved_at_stop::{ANNOTATIONS, SETTINGS};
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(on_a_node [the_next_container_goes_on]: trixie, sid);

/// The images, in the directory of the pods' namespace.
const IMAGES: &str = "/images/default/saved";
/// Far more seconds than a stop takes.
const GRACE_SECONDS: i64 = 60;

/// In the same pod, and in the next one.
fn the_next_container_goes_on(stasis: &StasisHost, cri: &Cri) -> Result<()> {
    stasis.set("runc", SETTINGS)?;
    let mut ids = Vec::new();
    let pod = cri.annotated_pod("first", &ANNOTATIONS)?;
    for (answer, kept) in [("101", 1), ("102", 2)] {
        ids.push(is_stopped_after(stasis, cri, &pod, answer)?);
        stasis.was_saved_at_stop(IMAGES, kept)?;
    }
    pod.remove()?;
    let pod = cri.annotated_pod("second", &ANNOTATIONS)?;
    ids.push(is_stopped_after(stasis, cri, &pod, "103")?);
    stasis.was_saved_at_stop(IMAGES, 2)?;
    pod.remove()?;
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    stasis.nothing_left_of(&ids)
}

/// Runs a container until it has given this answer, and stops it. Returns its id.
fn is_stopped_after(stasis: &StasisHost, cri: &Cri, pod: &Pod<'_>, answer: &str) -> Result<String> {
    let counter = ContainerConfig::new("counter", &["/bin/counter", "10000"]).with_gpu("counter");
    let container = pod.run(&counter)?;
    assert_eq!(stasis.ask_until_up(10000)?, answer);
    cri.stop(&container.id, GRACE_SECONDS)?;
    assert_eq!(cri.status(&container.id)?.exit_code, 137);
    cri.remove(&container.id)?;
    Ok(container.id)
}
