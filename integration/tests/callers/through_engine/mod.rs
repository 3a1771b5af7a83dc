//! `stasis checkpoint` and `stasis restore`: containers of every engine, by name.

mod containerd;
mod cri;
mod crictl;
mod docker;
mod dry_run;
mod group;
mod other_runtime;
mod podman;
mod runtime;
mod terminal;

use anyhow::{Context, Result};
use serde_json::Value;
use stasis_integration::client::cri::on_a_node;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

use crate::commands::run;

mod of_podman {
    stasis_integration::on_hosts!(super::of_podman: trixie, crun_on_sid_hybrid);
}

fn of_podman(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::of(kind)?;
    stasis.podman_load()?;
    stasis.podman_run("job", &[], &["/bin/counter", "10000"])?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    dry_run::changes_nothing_and_names_what_is_in_the_way(stasis)?;
    podman::counter_is_checkpointed_by_its_name(stasis)?;
    podman::one_of_another_runtime_is_refused(stasis)?;
    stasis.nothing_to_put_right()
}

mod of_a_runtime {
    stasis_integration::on_hosts!(super::of_a_runtime: trixie, sid_v2);
}

fn of_a_runtime(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    runtime::counter_is_checkpointed_by_its_id(stasis)?;
    stasis.nothing_to_put_right()
}

mod of_docker {
    stasis_integration::on_hosts!(super::of_docker: trixie, sid_v2);
}

fn of_docker(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::of(kind)?;
    let _docker = stasis.docker()?;
    docker::counter_is_checkpointed_by_its_name(stasis)?;
    docker::one_of_another_runtime_is_refused(stasis)?;
    stasis.nothing_to_put_right()
}

mod of_containerd {
    stasis_integration::on_hosts!(super::of_containerd: trixie, sid_v2);
}

fn of_containerd(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::of(kind)?.through_the_shim()?;
    let _containerd = stasis.containerd()?;
    containerd::counter_is_checkpointed_by_its_id(stasis)?;
    stasis.nothing_to_put_right()
}

mod of_several {
    stasis_integration::on_hosts!(super::of_several: trixie, sid_v2);
}

fn of_several(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.podman_load()?;
    group::engines_see_what_has_ended(stasis)?;
    stasis.nothing_to_put_right()
}

#[test]
fn of_cri() -> Result<()> {
    needs!(StandIn);
    let kind = HostKind::sid()?;
    on_a_node(kind, &[cri::counter_is_checkpointed_by_its_name])
}

#[test]
fn of_crictl() -> Result<()> {
    needs!(StandIn);
    needs!(Crictl);
    let kind = HostKind::sid()?;
    on_a_node(kind, &[crictl::counter_is_checkpointed_and_restored])
}

/// Runs `stasis` with `--json`, which has to answer with an object. Returns its exit code and that.
fn object(stasis: &StasisHost, arguments: &[&str]) -> Result<(Option<i32>, Value)> {
    let (code, stdout, stderr) = run(stasis, &[arguments, &["--json"]].concat())?;
    let object = serde_json::from_str(&stdout);
    Ok((code, object.with_context(|| format!("{stdout}{stderr}"))?))
}
