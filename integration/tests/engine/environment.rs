//! The engine makes the environment of its children: a caller's variables reach neither runc nor
//! CRIU where they could make these run another program.

use std::fs;

use anyhow::{Result, ensure};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::on_hosts;

const PORT: u16 = 10000;
/// A runc that records its environment.
const RECORDING: &str = "/usr/local/bin/recording-runtime";
/// The caller, with variables that another user has chosen.
const CALLER: &str = "/usr/local/bin/caller";
const TRACE: &str = "/root/trace";

on_hosts!(a_callers_environment_is_not_handed_on: trixie_v2, sid);

fn a_callers_environment_is_not_handed_on(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let script = "#!/bin/bash\nfor verb in checkpoint restore state; do\n\
                  [[ \" $* \" = *\" $verb \"* ]] && /usr/bin/tr '\\0' '\\n' </proc/$$/environ >/root/$verb\n\
                  done\nexec /usr/sbin/runc \"$@\"\n";
    stasis.script(RECORDING, script)?;
    stasis.script(
        "/root/script",
        &format!("#!/bin/sh\n/usr/bin/touch {TRACE}\n"),
    )?;
    stasis.run(&["mkdir", "-p", "/root/home/.criu"])?;
    for configuration in ["/root/criu.conf", "/root/home/.criu/default.conf"] {
        stasis.write(configuration, "action-script /root/script\n")?;
    }
    let caller = format!(
        "#!/bin/sh\nexport HOME=/root/home CRIU_CONFIG_FILE=/root/criu.conf CRIU_LIBS_DIR=/root \
         GODEBUG=x=1 LD_LIBRARY_PATH=/root SECRET=1 XDG_RUNTIME_DIR=/run NOTIFY_SOCKET=/run/none\n\
         exec {RUNTIME} \"$@\"\n"
    );
    stasis.script(CALLER, &caller)?;
    stasis.set(RECORDING, "runtime.flavor = \"runc\"\n")?;

    let job = Bundle::make(stasis, "job", &["/bin/memcheck", "48", "10000"])?.through(CALLER);
    job.comes_up(PORT, "ok 0")?;
    job.checkpoint("image", &[])?;
    job.restore("image")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    assert_eq!(job.status()?, "running");
    job.delete()?;
    for verb in ["checkpoint", "restore"] {
        let environment = recorded(stasis, verb)?;
        for theirs in ["HOME=", "/root", "GODEBUG=", "LD_", "SECRET="] {
            ensure!(!environment.contains(theirs), "{verb}: {environment}");
        }
        for kept in [
            "XDG_RUNTIME_DIR=/run\n",
            "NOTIFY_SOCKET=/run/none\n",
            "PATH=/",
        ] {
            ensure!(environment.contains(kept), "{verb}: {environment}");
        }
    }
    ensure!(!stasis.path(TRACE).exists(), "CRIU ran a caller's script");
    // A call that is passed on has all variables but these.
    let environment = recorded(stasis, "state")?;
    for kept in ["HOME=/root/home\n", "GODEBUG=x=1\n", "SECRET=1\n"] {
        ensure!(environment.contains(kept), "{environment}");
    }
    ensure!(
        !environment.contains("CRIU_") && !environment.contains("LD_"),
        "{environment}"
    );
    Ok(())
}

fn recorded(stasis: &StasisHost, verb: &str) -> Result<String> {
    Ok(fs::read_to_string(stasis.path(format!("/root/{verb}")))?)
}
