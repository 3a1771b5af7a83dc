//! Containers with GPU memory on a node, and operations on them that are held half-way.

use anyhow::{Result, ensure};
use stasis_integration::host::image::Image;
use stasis_integration::host::installed::{DEVICES, DRIVER, RUNTIME};
use stasis_integration::node::Node;

/// The file that holds driver calls as long as it exists.
const GATE: &str = "/run/stasis-standin/gate";
/// The orders of the stand-in.
const ORDERS: &str = "/run/stasis-standin/faults";

pub(crate) trait Jobs {
    fn run_job(&mut self, name: &str, port: u16, options: &str) -> Result<()>;
    fn answers(&mut self, port: u16, expected: &str) -> Result<()>;
    fn toggle(&mut self, name: &str) -> Result<String>;
    fn begin(&mut self, command: &str) -> Result<()>;
    fn hold(&mut self, call: &str) -> Result<()>;
    fn until_held(&mut self) -> Result<()>;
    fn let_go(&mut self) -> Result<()>;
    fn nothing_is_left(&mut self) -> Result<()>;
    fn unit_has_run_at_boot(&mut self) -> Result<()>;
}

impl Jobs for Node {
    /// Starts a container with GPU memory under podman, in a cgroup of systemd's.
    fn run_job(&mut self, name: &str, port: u16, options: &str) -> Result<()> {
        let devices: String = DEVICES.map(|device| format!("--device={device} ")).concat();
        self.run(&format!(
            "podman --runtime {RUNTIME} run -d --name {name} --network host {devices} {options} \
             --volume={DRIVER}:{DRIVER}:ro --env=LD_LIBRARY_PATH={DRIVER}/lib64 \
             --env=STASIS_TAG={name} {} /bin/memcheck 4 {port}",
            Image::DEFAULT_NAME
        ))?;
        self.answers(port, "ok 0")
    }

    /// Sends a packet every second until the workload listens, for at most a minute, and waits for
    /// the answer: a second packet would be counted.
    fn answers(&mut self, port: u16, expected: &str) -> Result<()> {
        let answer = self.run(&format!(
            "for try in {{1..60}}; do
                exec 3<>/dev/udp/127.0.0.1/{port}
                echo x >&3 && timeout 120 head -n 1 <&3 && exit
                sleep 1
             done 2>/dev/null; exit 1"
        ))?;
        ensure!(
            answer == expected,
            "port {port}: {answer:?}, not {expected:?}"
        );
        Ok(())
    }

    /// Has a container give up its GPUs, or take them again.
    fn toggle(&mut self, name: &str) -> Result<String> {
        self.run(&format!(
            "cuda-checkpoint --toggle --container $(podman inspect --format '{{{{.Id}}}}' {name})"
        ))
    }

    /// Begins an operation in a unit of its own, `caller.service`, and does not wait for it.
    fn begin(&mut self, command: &str) -> Result<()> {
        let kill = "--property=KillSignal=SIGKILL";
        let unit = format!("systemd-run -q --collect --unit=caller {kill} {command}");
        self.run(&unit).map(drop)
    }

    /// Holds the next of these driver calls ("checkpoint TAG").
    fn hold(&mut self, call: &str) -> Result<()> {
        self.run(&format!("touch {GATE}; echo {call} hold:gate 1 >{ORDERS}"))?;
        Ok(())
    }

    /// Waits until the held call was made.
    fn until_held(&mut self) -> Result<()> {
        self.run(&format!("while grep -q ' 1$' {ORDERS}; do sleep 0.2; done"))?;
        Ok(())
    }

    fn let_go(&mut self) -> Result<()> {
        self.run(&format!("rm {GATE}; : >{ORDERS}"))?;
        Ok(())
    }

    /// Waits until no operation is under way, nor a keeper; there must be nothing to recover.
    fn nothing_is_left(&mut self) -> Result<()> {
        self.run("while pgrep -x 'stasis-runtime|stasis-keeper'; do sleep 0.2; done")?;
        let left = self.run("stasis recover --json")?;
        let words: String = left.split_whitespace().collect();
        ensure!(words == r#"{"schema":1,"containers":[]}"#, "{left}");
        Ok(())
    }

    fn unit_has_run_at_boot(&mut self) -> Result<()> {
        self.run("until [ $(systemctl is-system-running) != starting ]; do sleep 1; done")?;
        let properties = "--property=Result,ExecMainExitTimestampMonotonic";
        let result = self.run(&format!("systemctl show {properties} stasis-recover"))?;
        let has_run = result.contains("Result=success") && !result.contains("Monotonic=0");
        ensure!(has_run, "{result}");
        Ok(())
    }
}
