//! A file system whose server is stopped, with a file that a container has mapped: it stands for
//! any network file system that does not answer.

use anyhow::Result;
use serde_json::json;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::host::HostKind;
use stasis_integration::host::c_build::build;
use stasis_integration::host::installed::{DRIVER, StasisHost};
use stasis_integration::needs;

use super::trial::{Harm, Outcome, Trial};

const MOUNT: &str = "/silent";

#[test]
fn a_mapped_file_whose_file_system_does_not_answer() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let server = Server::start(stasis)?;
    let given = |spec: &mut serde_json::Value| {
        let mount = json!({
            "destination": "/elsewhere", "source": MOUNT, "type": "bind", "options": ["bind"]
        });
        if let Some(mounts) = spec["mounts"].as_array_mut() {
            mounts.push(mount);
        }
    };
    let trial = Trial::start_with(stasis, "mapped-elsewhere", Harm::ToOthers, given)?;
    server.signal("STOP")?;
    trial.is_looked_at()?;
    trial.checkpoint("goes-on", &["--leave-running"])?;
    let suspended = trial.suspend()?;
    server.signal("CONT")?;
    if let Outcome::Done = suspended {
        trial.resume()?;
    }
    trial.goes_on()?;
    trial.end()
}

/// The server of [`MOUNT`]; dropping it ends the server and the mount.
struct Server<'l> {
    stasis: &'l StasisHost,
}

impl<'l> Server<'l> {
    fn start(stasis: &'l StasisHost) -> Result<Self> {
        const PROGRAM: &str = "/usr/local/bin/silent";
        let built = build()?;
        stasis.host.install(&built.join("bin/silent"), PROGRAM)?;
        // A child of the host's first process: a parent that waits for it would stop with it.
        let script = format!(
            "mkdir -p {MOUNT}; test -e /dev/fuse || mknod /dev/fuse c 10 229; \
             setsid --fork {PROGRAM} {MOUNT} {DRIVER}/lib64/libcuda.so.1 </dev/null >/dev/null 2>&1"
        );
        stasis.run(&["sh", "-c", &script])?;
        let file = stasis.path(MOUNT).join("libcuda.so.2");
        wait_until_clear(|| Ok((!file.exists()).then(|| "not mounted".to_owned())))?;
        Ok(Self { stasis })
    }

    fn signal(&self, name: &str) -> Result<()> {
        let signal = format!("-{name}");
        self.stasis.run(&["pkill", &signal, "-x", "silent"])?;
        Ok(())
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.signal("KILL");
        let _ = self.stasis.run(&["umount", "--lazy", MOUNT]);
    }
}
