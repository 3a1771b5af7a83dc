//! `stasis doctor` on a host that is broken on purpose, in one way after the other.

mod cases;
mod of_containers;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, SETTINGS, StasisHost};
use stasis_integration::{needs, on_hosts};

use cases::{
    ANOTHER_LIBCUDA, Case, OF_ENGINES, OF_LIBCUDA, OF_OPERATIONS, OF_ROOM, OF_THE_GPUS, OF_THE_NODE,
};
use of_containers::OF_CONTAINERS;

/// The name of a held driver call.
const HELD: &str = "held";
/// A new user's machine lacks or has something: one line tells it.
const ALONE: [&str; 4] = [
    "criu-missing",
    "low-level-runtime",
    "driver-version",
    "rootless",
];
/// In front of a command that a user calls.
const AS_USER: &str = "setpriv --reuid 1000 --regid 1000 --clear-groups \
                       env HOME=/home/user XDG_RUNTIME_DIR=/run/user/1000";
/// Keeps copies of the files that are broken; `MEND` puts them back after a case.
const KEEP: &str = "mkdir -p /root/kept && cp -a /etc/stasis/stasis.toml /etc/docker/daemon.json \
                    /etc/containers/containers.conf /etc/containerd/config.toml /root/kept";
const MEND: &str = "cp -a /root/kept/stasis.toml /etc/stasis; cp -a /root/kept/daemon.json \
                    /etc/docker; cp -a /root/kept/containers.conf /etc/containers; cp -a \
                    /root/kept/config.toml /etc/containerd; : >/run/stasis-standin/faults";

on_hosts!(each_fault_is_found: sid_v2);

fn each_fault_is_found(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::of(kind)?;
    needs!(StandIn);
    stasis.install_shim()?;
    stasis.install_image()?;
    shell(stasis, KEEP)?;
    is_sound(stasis)?;
    a_user_is_told_in_one_line(stasis)?;
    for case in OF_THE_NODE.iter().chain(&OF_THE_GPUS).chain(&OF_ENGINES) {
        is_found(stasis, *case).with_context(|| case.0)?;
    }
    while_a_container_runs(stasis)?;
    let text = stasis.run_for_text(&[PROGRAM, "doctor"])?;
    ensure!(text.ends_with("\nfaults: 0, warnings: 0"), "{text}");
    Ok(())
}

fn a_user_is_told_in_one_line(stasis: &StasisHost) -> Result<()> {
    let as_user: Vec<&str> = AS_USER.split(' ').collect();
    let said = stasis.fails(&[&as_user[..], &[PROGRAM, "doctor"]].concat())?;
    let is_one_line = said.lines().count() == 1;
    ensure!(is_one_line && said.contains("needs root"), "{said}");
    ensure!(said.ends_with("[not-root]\n"), "{said}");
    Ok(())
}

fn while_a_container_runs(stasis: &StasisHost) -> Result<()> {
    let _containerd = stasis.containerd()?;
    let memory = Bundle::make(stasis, "memory", &["/bin/memcheck", "32", "10240"])?;
    let run = || {
        memory.run()?;
        stasis.ask_until_up(10240)
    };
    ensure!(run()? == "ok 0");
    for case in OF_ROOM {
        is_found(stasis, case).with_context(|| case.0)?;
    }
    let roots = "ln -s /run/bundles /run/stasis-crio";
    shell(stasis, roots)?;
    for case in OF_CONTAINERS {
        is_found(stasis, case).with_context(|| case.0)?;
    }
    shell(stasis, "rm /run/stasis-crio")?;
    of_an_operation(stasis, &memory)?;
    memory.delete()?;
    shell(stasis, ANOTHER_LIBCUDA)?;
    ensure!(run()? == "ok 0");
    is_found(stasis, OF_LIBCUDA).context(OF_LIBCUDA.0)?;
    memory.delete()
}

/// A running operation is no fault; one that was killed with its keeper is.
fn of_an_operation(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    stasis.hold_driver("checkpoint memory", HELD)?;
    let mut checkpoint = memory.begin_checkpoint("held", &["--leave-running"])?;
    stasis.until_driver_is_called()?;
    is_sound(stasis)?;
    stasis.kill_keepers()?;
    shell(stasis, "pkill -KILL -x stasis-runtime")?;
    checkpoint.wait()?;
    stasis.let_driver_go(HELD)?;
    is_found(stasis, OF_OPERATIONS).context(OF_OPERATIONS.0)?;
    stasis.nothing_to_put_right()
}

fn is_sound(stasis: &StasisHost) -> Result<()> {
    let found = found(stasis, 0)?;
    let is_ok = |finding: &Value| finding["verdict"] == "ok";
    ensure!(found.iter().all(is_ok), "{found:?}");
    // What is fine is told, too.
    for (id, evidence) in [
        ("stasis", env!("CARGO_PKG_VERSION")),
        ("driver", "580.0.0-standin, GPUs: "),
        ("criu", "4."),
        ("low-level-runtime", "runc 1."),
        ("docker", "uses stasis"),
        ("podman", ", uses stasis"),
        ("containerd", ", does not use stasis"),
        ("host-memory", " free in host memory"),
    ] {
        let found = found.iter().find(|finding| finding["id"] == id);
        let found = found.with_context(|| format!("{id} is missing"))?;
        let told = found["evidence"].as_str().unwrap_or_default();
        ensure!(told.contains(evidence), "{found}");
    }
    Ok(())
}

/// Breaks the host, checks the finding's verdict, evidence and remedy, and mends the host.
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
    let evidence = it["evidence"].as_str().unwrap_or_default();
    ensure!(!evidence.contains('\n'), "it is one line: {it}");
    let is_alone = !ALONE.contains(&id) || wrong.len() == 1;
    ensure!(is_alone, "more than one line: {wrong:?}");
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
    let named = format!(
        "S={SETTINGS} O=/run/stasis-standin/faults B={bundle}; \
         P=$(pgrep -x memcheck || true); as_user() {{ {AS_USER} \"$@\"; }}; {script}"
    );
    stasis.run(&["bash", "-ec", &named]).map(drop)
}
