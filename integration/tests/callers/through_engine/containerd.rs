//! Containers of containerd.

use anyhow::Result;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::image_files;
use stasis_integration::host::installed::StasisHost;

use super::{object, terminal};

pub(super) fn counter_is_checkpointed_by_its_id(stasis: &StasisHost) -> Result<()> {
    stasis.ctr_run("job", &[], &["/bin/counter", "10000"])?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    terminal::ctrl_c_takes_a_checkpoint_back(stasis, ("job", 10000), &["-R"])?;
    let (code, outcome) = object(stasis, &["checkpoint", "job", "-R"])?;
    assert_eq!((code, &outcome["result"]), (Some(0), &"done".into()));
    let image = outcome["image"].as_str().unwrap_or_default();
    assert!(image.starts_with("stasis.local/job:"), "{outcome}");
    assert_eq!(stasis.ctr_status("job")?, "RUNNING");
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("104"));

    what_ctr_cannot_do_is_refused(stasis)?;
    let directory = "/images/job";
    let into = ["checkpoint", "job", "--image", directory];
    let (code, outcome) = object(stasis, &into)?;
    assert_eq!((code, &outcome["image"]), (Some(0), &directory.into()));
    stasis.ctr_wait_for("job", "STOPPED")?;
    let manifest = image_files::manifest(&stasis.path(directory))?;
    assert_eq!(manifest["container"], "job");

    // ctr makes a new container.
    let (code, outcome) = object(stasis, &["restore", "job"])?;
    assert_eq!((code, &outcome["kind"]), (Some(1), &"engine".into()));
    let error = outcome["error"].as_str().unwrap_or_default();
    assert_contains(error, &["ctr --namespace default containers rm job"]);
    stasis.ctr_remove("job")?;
    let (code, outcome) = object(stasis, &["restore", "job", "--image", directory])?;
    assert_eq!((code, &outcome["kind"]), (Some(2), &"no-container".into()));
    let (code, outcome) = object(stasis, &["restore", "job"])?;
    assert_eq!((code, &outcome["image"]), (Some(0), &image.into()));
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("104"));
    assert_eq!(stasis.ctr_status("job")?, "RUNNING");
    stasis.ctr_remove("job")
}

/// ctr has no command that ends a container with an image that it can restore.
fn what_ctr_cannot_do_is_refused(stasis: &StasisHost) -> Result<()> {
    let (code, outcome) = object(stasis, &["checkpoint", "job"])?;
    assert_eq!((code, &outcome["kind"]), (Some(1), &"engine".into()));
    assert_eq!(outcome["state"], "unharmed");
    let error = outcome["error"].as_str().unwrap_or_default();
    assert_contains(error, &["--image=DIRECTORY", "--leave-running"]);
    Ok(())
}
