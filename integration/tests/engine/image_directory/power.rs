//! Power that fails at the end of a checkpoint: after the boot there is the earlier image or the
//! new one, whole, and it restores.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use stasis_integration::container::memory_container::{MemoryContainer, names_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::disk::FileSystemKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};

const DISK: &str = "/images";
/// Copies the disk's present state, after another program has synced a file of its own.
const CUT: (&str, &str) = (
    "/usr/local/bin/cut-power",
    "#!/bin/sh -e\ndd if=/dev/null of=/images/others conv=fsync status=none\n\
     exec cp --sparse=always /run/disk--images /run/cut-$1\n",
);
/// A runc with power failures before and after its checkpoint.
const CUTTING: (&str, &str) = (
    "/usr/local/bin/cutting",
    "#!/bin/sh -e\ncase \" $* \" in *\" checkpoint \"*) ;; *) exec runc \"$@\";; esac\n\
     cut-power begun\nrunc \"$@\"\ncut-power written\n",
);
/// Changes the boot id.
const BOOT_ID: &str = "mount --bind /run/another-boot /proc/sys/kernel/random/boot_id";

#[test]
fn power_fails_at_the_end_of_a_checkpoint() -> Result<()> {
    let host = StasisHost::with_containerd(HostKind::sid()?)?;
    for (path, script) in [CUT, CUTTING] {
        host.script(path, script)?;
    }
    host.host.mount_new(FileSystemKind::Ext4, DISK)?;
    let job = MemoryContainer::start(&host, "job", "exec /bin/memcheck 24 10000", 10000)?;
    let cuts = cuts(&host, &job)?;
    job.end()?;
    host.run(&["umount", DISK])?;

    host.write("/run/another-boot", "another")?;
    host.run(&["sh", "-c", BOOT_ID])?;
    for (name, counted) in cuts {
        let disk = format!("/run/cut-{name}");
        host.host.mount_file(&disk, DISK)?;
        comes_back(&host, &job, counted).context(name)?;
        host.run(&["umount", DISK])?;
    }
    Ok(())
}

/// Returns each power failure, with the job's next count after a restore from there.
fn cuts(host: &StasisHost, job: &MemoryContainer<'_>) -> Result<[(&'static str, u64); 4]> {
    let checkpoint = || -> Result<u64> {
        job.bundle.checkpoint("same", &["--leave-running"])?;
        let next = job.next();
        job.goes_on().map(|()| next)
    };
    let earlier = checkpoint()?;
    host.set(CUTTING.0, "runtime.flavor = \"runc\"\n")?;
    let later = checkpoint()?;
    host.set("runc", "")?;
    host.run(&[CUT.0, "reported"])?;
    // A reader prevents the image from being moved up.
    let image = job.bundle.image("same");
    let mut reader = host.command("flock");
    reader.args(["--shared", &image, "cat"]);
    let mut reader = reader.stdin(Stdio::piped()).spawn()?;
    host.host.until_a_process_is("cat")?;
    let last = checkpoint()?;
    let waits = names_in(&job.bundle.image_path("same"))?;
    ensure!(waits.contains(&".stasis-complete".to_owned()), "{waits:?}");
    host.run(&[CUT.0, "committed"])?;
    drop(reader.stdin.take());
    ensure!(reader.wait()?.success(), "the reader");
    Ok([
        ("begun", earlier),
        // No process has waited for the disk yet: the disk has the names of the files.
        ("written", earlier),
        ("reported", later),
        ("committed", last),
    ])
}

fn comes_back(host: &StasisHost, job: &MemoryContainer<'_>, counted: u64) -> Result<()> {
    let image = job.bundle.image("same");
    host.run(&[PROGRAM, "verify", "--here", &image])?;
    job.bundle.restore("same")?;
    job.is_back_at(counted);
    job.goes_on()?;
    job.bundle.checkpoint("same", &[])?;
    let left = names_in(&job.bundle.image_path("same"))?;
    let waits = left.iter().find(|name| name.starts_with(".stasis"));
    ensure!(waits.is_none(), "{left:?}");
    job.end()
}
