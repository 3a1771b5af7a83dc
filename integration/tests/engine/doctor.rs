//! `stasis doctor` on a host that is broken on purpose, in one way after the other.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, SETTINGS, StasisHost};
use stasis_integration::{needs, on_hosts};

/// What is kept of files that are broken, and how a case leaves the host.
const KEEP: &str = "mkdir -p /root/kept && cp -a /etc/stasis/stasis.toml /etc/docker/daemon.json \
                    /etc/containers/containers.conf /etc/containerd/config.toml /root/kept";
const MEND: &str = "cp -a /root/kept/stasis.toml /etc/stasis; cp -a /root/kept/daemon.json \
                    /etc/docker; cp -a /root/kept/containers.conf /etc/containers; cp -a \
                    /root/kept/config.toml /etc/containerd; : >/run/stasis-standin/faults";

/// The id of what is found, its verdict, how the host is broken, and what mends it beyond [`MEND`].
type Case = (&'static str, &'static str, &'static str, &'static str);

const OF_THE_NODE: [Case; 9] = [
    ("settings", "fault", "echo nonsense >>$S", ""),
    (
        "low-level-runtime",
        "fault",
        "sed -i '/^runtime/d' $S; sed -i '1iruntime.path = \"nil\"' $S",
        "",
    ),
    (
        "criu-missing",
        "fault",
        "mv /usr/sbin/criu /root",
        "mv /root/criu /usr/sbin",
    ),
    (
        "criu-version",
        "warning",
        "mv /usr/sbin/criu /root; printf '#!/bin/sh\necho Version: 3.17.1\n' >/usr/sbin/criu; \
         chmod 755 /usr/sbin/criu",
        "mv /root/criu /usr/sbin",
    ),
    (
        "criu-configuration",
        "warning",
        "mkdir -p /etc/criu; echo 'libdir /opt/plugins' >/etc/criu/default.conf",
        "rm /etc/criu/default.conf",
    ),
    (
        "criu-plugin",
        "warning",
        "mv /usr/local/lib/stasis/libstasis_memory.so /root",
        "mv /root/libstasis_memory.so /usr/local/lib/stasis",
    ),
    (
        "two-installations",
        "warning",
        ": >/usr/bin/stasis-runtime",
        "rm /usr/bin/stasis-runtime",
    ),
    (
        "runc-CVE-2024-21626",
        "warning",
        "printf '#!/bin/sh\necho runc version 1.1.0\n' >/root/runc; chmod 755 /root/runc; \
         sed -i '/^runtime/d' $S; sed -i '1iruntime.path = \"/root/runc\"' $S",
        "rm /root/runc",
    ),
    (
        "copying",
        "warning",
        "echo 'gpu_checkpoint.path = \"driver\"' >>$S",
        "",
    ),
];

const OF_THE_GPUS: [Case; 9] = [
    (
        "driver",
        "fault",
        "sed -i 's,^driver.nvml.*,driver.nvml = \"/nil\",' $S",
        "",
    ),
    ("driver-version", "fault", "echo driver 565.57.01 >$O", ""),
    ("driver-maps", "warning", "echo driver 570.124.06 >$O", ""),
    ("driver-known", "warning", "echo driver 595.71.05 >$O", ""),
    ("lost-gpu", "fault", "printf 'gpus 2\nlost 1\n' >$O", ""),
    ("no-persistence", "fault", "echo persistence-off 0 >$O", ""),
    ("mig", "warning", "echo mig 0 >$O", ""),
    (
        "fabric-manager",
        "fault",
        ": >/dev/nvidia-nvswitch0",
        "rm /dev/nvidia-nvswitch0",
    ),
    (
        "fabric-manager",
        "fault",
        ": >/dev/nvidia-nvswitch0; mkdir -p /run/nvidia-fabricmanager; \
         echo 4194300 >/run/nvidia-fabricmanager/nv-fabricmanager.pid",
        "rm -r /dev/nvidia-nvswitch0 /run/nvidia-fabricmanager",
    ),
];

/// While GPU memory is in use.
const OF_ROOM: [Case; 2] = [
    (
        "host-memory",
        "warning",
        "echo 'MemAvailable: 1 kB' >/root/meminfo; \
         mount --bind /root/meminfo /proc/meminfo",
        "umount /proc/meminfo",
    ),
    (
        "no-space",
        "warning",
        "echo 'bulk_memory.tier = \"disk\"' >>$S; \
         mkdir -p /var/lib/stasis/memory; mount -t tmpfs -o size=4k none /var/lib/stasis/memory",
        "umount /var/lib/stasis/memory",
    ),
];

const OF_ENGINES: [Case; 10] = [
    (
        "docker-settings",
        "fault",
        "echo '{' >/etc/docker/daemon.json",
        "",
    ),
    (
        "docker-runtime",
        "fault",
        "sed -i 's,/usr/local/bin/stasis-runtime,/nil,' /etc/docker/daemon.json",
        "",
    ),
    (
        "docker-experimental",
        "warning",
        "sed -i '/experimental/d' /etc/docker/daemon.json",
        "",
    ),
    (
        "podman-settings",
        "fault",
        "echo '[[[' >>/etc/containers/containers.conf",
        "",
    ),
    (
        "podman-runtime",
        "fault",
        "sed -i 's,/usr/local/bin/stasis-runtime,/nil,' /etc/containers/containers.conf",
        "",
    ),
    (
        "containerd-settings",
        "fault",
        "echo '[[[' >>/etc/containerd/config.toml",
        "",
    ),
    (
        "containerd-runtime",
        "fault",
        "stasis setup containerd >/dev/null; mv /usr/local/bin/containerd-shim-stasis-v2 /root",
        "mv /root/containerd-shim-stasis-v2 /usr/local/bin; rm -rf /etc/containerd/conf.d",
    ),
    (
        "containerd-restores",
        "warning",
        "printf '[plugins.\"io.containerd.cri.v1.runtime\"]\n\
         enable_experimental_restore_via_create = true\n' >>/etc/containerd/config.toml",
        "",
    ),
    (
        "shim-link",
        "fault",
        "ln -s nil /usr/local/bin/containerd-shim-runc-v2",
        "rm /usr/local/bin/containerd-shim-runc-v2",
    ),
    (
        "shim-gone",
        "fault",
        "mkdir -p $B; printf /nil/containerd-shim-stasis-v2 >$B/shim-binary-path",
        "rm -r $B",
    ),
];

on_hosts!(each_fault_is_found: sid_v2);

fn each_fault_is_found(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::of(kind)?;
    needs!(StandIn);
    stasis.install_shim()?;
    shell(stasis, KEEP)?;
    ensure!(
        found(stasis, 0)?
            .iter()
            .all(|finding| finding["verdict"] == "ok")
    );
    for case in OF_THE_NODE.iter().chain(&OF_THE_GPUS).chain(&OF_ENGINES) {
        is_found(stasis, *case).with_context(|| case.0)?;
    }
    let _containerd = stasis.containerd()?;
    let memory = Bundle::make(stasis, "memory", &["/bin/memcheck", "32", "10240"])?;
    memory.run()?;
    assert_eq!(stasis.ask_until_up(10240)?, "ok 0");
    for case in OF_ROOM {
        is_found(stasis, case).with_context(|| case.0)?;
    }
    memory.delete()?;
    let text = stasis.host.run_for_text(&[PROGRAM, "doctor"])?;
    ensure!(text.ends_with("\nfaults: 0, warnings: 0"), "{text}");
    Ok(())
}

/// Alone: nothing else is taken for broken with it.
fn is_found(stasis: &StasisHost, (id, verdict, broken, mended): Case) -> Result<()> {
    shell(stasis, broken)?;
    let code = i32::from(verdict == "fault");
    let found = found(stasis, code)?;
    let wrong: Vec<_> = found
        .iter()
        .filter(|finding| finding["verdict"] != "ok")
        .collect();
    let it = wrong.iter().find(|finding| finding["id"] == id);
    let it = it.with_context(|| format!("{found:?}"))?;
    ensure!(it["verdict"] == verdict, "{it}");
    ensure!(it["remedy"] != "" && it["evidence"] != "", "{it}");
    shell(stasis, MEND)?;
    shell(stasis, mended)
}

fn found(stasis: &StasisHost, code: i32) -> Result<Vec<Value>> {
    let mut command = stasis.command(PROGRAM);
    let output = command.args(["doctor", "--json"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.code() == Some(code),
        "{:?}: {text}",
        output.status
    );
    let report: Value = serde_json::from_str(&text)?;
    Ok(report["findings"]
        .as_array()
        .context("no findings")?
        .clone())
}

fn shell(stasis: &StasisHost, script: &str) -> Result<()> {
    let bundle = "/run/containerd/io.containerd.runtime.v2.task/default/job";
    let named = format!("S={SETTINGS} O=/run/stasis-standin/faults B={bundle}; {script}");
    stasis.host.run(&["bash", "-ec", &named]).map(drop)
}
