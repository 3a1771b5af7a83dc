//! Containers of a low-level runtime that was called without an engine.

use anyhow::Result;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::StasisHost;

use super::{object, terminal};

pub(super) fn counter_is_checkpointed_by_its_id(stasis: &StasisHost) -> Result<()> {
    let job = Bundle::make(stasis, "job", &["/bin/counter", "10000"])?;
    job.comes_up(10000, "101")?;
    let checkpoint = ["checkpoint", "job", "--root", ROOT];
    let (code, outcome) = object(stasis, &checkpoint)?;
    assert_eq!(
        (code, &outcome["kind"]),
        (Some(1), &"image-directory".into())
    );
    let image = job.image("own");
    let into = [&checkpoint[..], &["--image", &image]].concat();
    let more = ["--root", ROOT, "--image", &image];
    terminal::ctrl_c_takes_a_checkpoint_back(stasis, ("job", 10000), &more)?;
    let (code, outcome) = object(stasis, &[&into[..], &["-R"]].concat())?;
    assert_eq!((code, &outcome["image"]), (Some(0), &image.clone().into()));
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("104"));
    let (code, outcome) = object(stasis, &into)?;
    assert_eq!((code, &outcome["result"]), (Some(0), &"done".into()));
    assert_eq!(job.manifest("own")?["container"], "job");
    assert!(stasis.is_silent(10000)?);
    let bundle = job.directory();
    let restore = ["restore", "job", "--bundle", &bundle, "--root", ROOT];
    let (code, answer) = object(stasis, &[&restore[..], &["--dry-run"]].concat())?;
    assert_eq!((code, &answer["begins"]), (Some(0), &true.into()));
    assert_eq!(job.status()?, "");
    terminal::ctrl_c_takes_a_restore_back(stasis, "job", &restore[2..])?;
    assert_eq!(job.status()?, "");
    // The restore takes the last image in the log.
    let (code, outcome) = object(stasis, &restore)?;
    assert_eq!((code, &outcome["image"]), (Some(0), &image.clone().into()));
    assert_eq!(job.status()?, "running");
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("105"));
    job.delete()?;
    terminal::ctrl_c_may_come_too_late(stasis, "job", &restore[2..])?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("105"));
    job.delete()
}
