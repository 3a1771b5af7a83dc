//! What only a node shows: systemd, another kernel, version 2 cgroups with all controllers, and a
//! power failure.

use anyhow::{Result, ensure};
use stasis_integration::host::image::Image;
use stasis_integration::host::installed::{DEVICES, DRIVER, RUNTIME};
use stasis_integration::node::Node;

/// One boot for all, in the order in which they need it.
#[test]
fn on_a_node() -> Result<()> {
    let mut node = Node::boot()?;
    node.run_job("job", 10000)?;
    suspended_job_outlives_a_reload_of_systemd(&mut node)?;
    image_outlives_a_power_failure(node)
}

fn suspended_job_outlives_a_reload_of_systemd(node: &mut Node) -> Result<()> {
    let toggle = "cuda-checkpoint --toggle --container $(podman inspect --format '{{.Id}}' job)";
    node.run(toggle)?;
    node.run("systemctl daemon-reload")?;
    node.run(toggle)?;
    assert_eq!(node.ask(10000)?, "ok 1");
    Ok(())
}

/// The image is on the disk when the checkpoint says that it is done, also where the container goes
/// on: at the end of one, podman's unmounting would bring it there.
fn image_outlives_a_power_failure(mut node: Node) -> Result<()> {
    // From now on nothing reaches the disk before somebody asks for it.
    node.run("sync; sysctl vm.dirty_writeback_centisecs=0 vm.dirty_expire_centisecs=360000")?;
    node.run("podman container checkpoint --leave-running job")?;
    assert_eq!(node.ask(10000)?, "ok 2");
    let mut node = node.lose_power()?;
    unit_has_run_at_boot(&mut node)?;
    node.run("podman container restore job")?;
    assert_eq!(node.ask(10000)?, "ok 2");
    Ok(())
}

fn unit_has_run_at_boot(node: &mut Node) -> Result<()> {
    node.run("until [ $(systemctl is-system-running) != starting ]; do sleep 1; done")?;
    let result =
        node.run("systemctl show --property=Result,ExecMainExitTimestampMonotonic stasis-recover")?;
    ensure!(
        result.contains("Result=success") && !result.contains("Monotonic=0"),
        "{result}"
    );
    Ok(())
}

trait Jobs {
    fn run_job(&mut self, name: &str, port: u16) -> Result<()>;
    fn ask(&mut self, port: u16) -> Result<String>;
}

impl Jobs for Node {
    /// Starts a container with GPU memory under podman, in a cgroup of systemd's.
    fn run_job(&mut self, name: &str, port: u16) -> Result<()> {
        let devices: String = DEVICES.map(|device| format!("--device={device} ")).concat();
        self.run(&format!(
            "podman --runtime {RUNTIME} run -d --name {name} --network host {devices} \
             --volume={DRIVER}:{DRIVER}:ro --env=LD_LIBRARY_PATH={DRIVER}/lib64 \
             --env=STASIS_TAG={name} {} /bin/memcheck 16 {port}",
            Image::DEFAULT_NAME
        ))?;
        let first = self.ask(port)?;
        ensure!(first == "ok 0", "{name} answers {first:?}");
        Ok(())
    }

    /// Asks until there is an answer, for at most a minute.
    fn ask(&mut self, port: u16) -> Result<String> {
        self.run(&format!(
            "for try in {{1..60}}; do
                exec 3<>/dev/udp/127.0.0.1/{port}
                echo x >&3 && timeout 5 head -n 1 <&3 && exit
                sleep 1
             done 2>/dev/null; exit 1"
        ))
    }
}
