//! A report on a host in which a workload does not answer: enough to tell a stopped process, a
//! frozen cgroup and a GPU that is not given back from one another.

use super::installed::{OPERATIONS_LOG, StasisHost};

/// Lists processes with their states and where they sleep, frozen cgroups, stasis's records, and
/// its last operations.
const SCRIPT: &str = r#"
    echo '-- processes: pid, parent, state, tracer, channel, name'
    for process in /proc/[0-9]*; do
        set -- $(awk '/^(PPid|State|TracerPid):/ { print $2 }' $process/status)
        echo "${process#/proc/} $2 $1 $3 $(cat $process/wchan) $(cat $process/comm)"
    done
    echo '-- frozen cgroups'
    grep -rlsx 'frozen 1' /sys/fs/cgroup --include=cgroup.events
    grep -rlsx FROZEN /sys/fs/cgroup --include=freezer.state
    echo '-- records'
    find /run/stasis/containers -type f
    echo '-- operations'
    tail -n 6 "$0" | cut -c 1-1500
"#;

impl StasisHost {
    /// Returns the report as text.
    pub(crate) fn why_no_answer(&self) -> String {
        let mut command = self.host.command("bash");
        command.args(["-c", SCRIPT, OPERATIONS_LOG]);
        match command.output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(error) => format!("and the host cannot be looked at: {error}"),
        }
    }
}
