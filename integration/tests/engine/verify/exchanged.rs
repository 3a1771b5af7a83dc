//! With `restore.images` no image is changed, or reaches runc, before it was checked; runc restores
//! the checked image, whatever becomes of the path.

use anyhow::{Context, Result, ensure};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

const PORT: u16 = 10000;

on_hosts!(only_what_was_looked_at_is_restored: sid_v2);

fn only_what_was_looked_at_is_restored(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let job = Bundle::make(stasis, "exchanged", &["/bin/counter", "10000"])?;
    job.comes_up(PORT, "101")?;
    // As the owner of a directory may do that holds a link of the caller's path.
    let link = job.image("link");
    let exchange = format!("ln -sfn /nowhere {link}");
    let allowed = format!("restore.images = [\"{}\"]\n", job.image("image"));
    job.before("restore", &exchange, &allowed)?;
    job.checkpoint("image", &[])?;
    stasis.run(&["ln", "-s", &job.image("image"), &link])?;
    job.restore("link")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("102"));
    job.delete()?;

    let nothing = job.image("nothing");
    stasis.run(&["mkdir", &nothing])?;
    let allowed = format!("restore.images = [\"{nothing}\"]\n");
    stasis.set("runc", &allowed)?;
    refused(&job, "nothing", "image-directory")?;

    // A checkpoint into it was cut off; its files are moved only if the image is allowed.
    let half = format!("{nothing}/.stasis-complete/inventory.img");
    stasis.write(&half, "x")?;
    stasis.set("runc", "restore.images = [\"/root\"]\n")?;
    refused(&job, "nothing", "image-not-allowed")?;
    ensure!(
        stasis.path(&half).exists(),
        "an image elsewhere was changed"
    );
    Ok(())
}

fn refused(job: &Bundle<'_>, image: &str, kind: &str) -> Result<()> {
    job.restore_fails(image)?;
    let failure = job.failure()?.context("it reports nothing")?;
    let found = failure.kind.map(|kind| kind.name());
    ensure!(found == Some(kind), "{failure:?}");
    Ok(())
}
