//! Docker's default network, a bridge, beside runc alone.

use anyhow::{Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

const BRIDGE: [&str; 2] = ["--network", "bridge"];

mod goes_on {
    stasis_integration::on_hosts!(super::goes_on: trixie_v2, trixie_hybrid);
}
mod fails_as_with_runc {
    stasis_integration::on_hosts!(super::fails_as_with_runc: sid_v2);
}

fn with_a_bridge(kind: HostKind, test: impl FnOnce(&StasisHost) -> Result<()>) -> Result<()> {
    let stasis = &StasisHost::of(kind)?;
    let no_bridge = ["sed", "-i", "/\"bridge\"/d", "/etc/docker/daemon.json"];
    stasis.run(&no_bridge)?;
    let _docker = stasis.docker()?;
    test(stasis)
}

/// The memory is that of the GPU, and the container has its address again.
fn goes_on(kind: HostKind) -> Result<()> {
    with_a_bridge(kind, |stasis| {
        stasis.docker_run("job", &BRIDGE, &["/bin/memcheck", "16", "10000"])?;
        ensure!(ask(stasis, "job")? == "ok 0");
        let before = address(stasis, "job")?;
        ensure!(before.starts_with("172."), "{before}");
        stasis.docker_checkpoint(&[], "job", "one")?;
        stasis.docker_wait_for("job", "exited")?;
        stasis.docker_restore("job", "one")?;
        ensure!(ask(stasis, "job")? == "ok 1");
        ensure!(address(stasis, "job")? == before);
        stasis.docker_remove("job")
    })
}

/// Docker 28 makes the network's namespace by the pid of a process that is not there yet.
fn fails_as_with_runc(kind: HostKind) -> Result<()> {
    with_a_bridge(kind, |stasis| {
        for runtime in ["runc", "stasis"] {
            let run = ["docker", "run", "-d", "--name", "job", "--runtime", runtime];
            let image = ["localhost/stasis-test:latest", "/bin/plain", "10000"];
            stasis.run(&[&run[..], &image].concat())?;
            ensure!(ask(stasis, "job")? == "ok 0");
            stasis.docker_checkpoint(&[], "job", "one")?;
            stasis.docker_wait_for("job", "exited")?;
            let start = ["start", "--checkpoint", "one", "job"];
            let said = stasis.host.command("docker").args(start).output()?;
            let said = String::from_utf8_lossy(&said.stderr).into_owned();
            assert_contains(&said, &["/proc/0/ns/net"]);
            stasis.docker_remove("job")?;
        }
        Ok(())
    })
}

fn inspect(stasis: &StasisHost, name: &str, what: &str) -> Result<String> {
    let inspect = ["docker", "inspect", "-f", what, name];
    stasis.run_for_text(&inspect)
}

fn address(stasis: &StasisHost, name: &str) -> Result<String> {
    let each = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
    inspect(stasis, name, each)
}

/// Returns the workload's answer, in the container's network.
fn ask(stasis: &StasisHost, name: &str) -> Result<String> {
    let pid = inspect(stasis, name, "{{.State.Pid}}")?;
    let ask = "for try in {1..100}; do exec 3<>/dev/udp/127.0.0.1/10000; echo x >&3 && \
               timeout 20 head -n 1 <&3 && break; sleep 0.1; done";
    let inside = ["nsenter", "-t", &pid, "-n", "bash", "-c", ask];
    stasis.run_for_text(&inside)
}
