//! checkpointctl reads archives that engines have made under stasis, before and after their way
//! through a registry.

use std::env;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::client::cri::{ContainerConfig, Cri};
use stasis_integration::host::installed::StasisHost;
use stasis_integration::host::{HostKind, Suite};

use super::{host_at, host_for_registry, moved, named, with_registry};

const PROGRAM: &str = "/usr/local/bin/checkpointctl";
const PODMANS: &str = "/images/podman.tar";
const KUBELETS: &str = "/images/cri.tar";

#[test]
#[ignore = "Debian has no checkpointctl; STASIS_CHECKPOINTCTL names one (internals/image-format.md)"]
fn checkpointctl_says_the_same_of_what_was_pushed_and_pulled() -> Result<()> {
    let program = env::var_os("STASIS_CHECKPOINTCTL").context("no STASIS_CHECKPOINTCTL")?;
    let registry = host_for_registry()?;
    let (network, _daemon) = with_registry(&registry)?;
    let stasis = &host_at(HostKind::sid()?, &registry, &network, 2)?;
    stasis.host.install(Path::new(&program), PROGRAM)?;
    podmans_archive(stasis)?;
    kubelets_archive(stasis)?;
    for (archive, engine, name) in [(PODMANS, "Podman", "job"), (KUBELETS, "containerd", "pod")] {
        moved(stasis, &["push", &named(name), archive])?;
        let pulled = ["tar", "tar.zst"].map(|ending| format!("/images/pulled-{name}.{ending}"));
        for copy in &pulled {
            moved(stasis, &["pull", &named(name), copy])?;
        }
        for one in [archive, &pulled[0], &pulled[1]] {
            understood(stasis, one, engine).context(one.to_owned())?;
            same(stasis, archive, one).context(one.to_owned())?;
        }
    }
    Ok(())
}

fn podmans_archive(stasis: &StasisHost) -> Result<()> {
    stasis.podman_load()?;
    let said = ["--env", "SAID=once"];
    stasis.podman_run("job", &said, &["/bin/memcheck", "6", "10000"])?;
    assert_eq!(stasis.ask_until_up(10000)?, "ok 0");
    stasis.podman_container(&["checkpoint", "--export", PODMANS], "job")
}

fn kubelets_archive(stasis: &StasisHost) -> Result<()> {
    let _node = stasis.node(Suite::Sid)?;
    let cri = Cri::connect(&stasis.host)?;
    cri.pull()?;
    let pod = cri.pod("pod")?;
    let job = ContainerConfig::new("job", &["/bin/memcheck", "6", "10001"]).with_gpu("job");
    let container = pod.run(&job)?;
    assert_eq!(stasis.ask_until_up(10001)?, "ok 0");
    cri.checkpoint(&container.id, KUBELETS)?;
    Ok(pod.remove()?)
}

fn said(stasis: &StasisHost, arguments: &[&str]) -> Result<String> {
    let said = stasis.run_for_text(&[&[PROGRAM], arguments].concat())?;
    println!("$ checkpointctl {}\n{said}\n", arguments.join(" "));
    Ok(said)
}

fn understood(stasis: &StasisHost, archive: &str, engine: &str) -> Result<()> {
    assert_contains(&said(stasis, &["show", archive])?, &["job", engine]);
    let all = ["inspect", "--all"];
    let tree = said(stasis, &[&all[..], &[archive]].concat())?;
    assert_contains(
        &tree,
        &[
            "Process tree",
            "/bin/memcheck 6",
            "Open sockets",
            "Checkpoint size",
        ],
    );
    let text = said(stasis, &[&all[..], &["--format", "json", archive]].concat())?;
    let inspected: Value = serde_json::from_str(&text)?;
    ensure!(
        inspected[0]["process_tree"]["command"] == "memcheck",
        "{text}"
    );
    assert_contains(&said(stasis, &["memparse", archive])?, &["memcheck"]);
    let pages = [
        "memparse",
        "--search",
        "/bin/memcheck",
        "--pid",
        "1",
        archive,
    ];
    assert_contains(&said(stasis, &pages)?, &["/bin/memcheck"]);
    Ok(())
}

fn same(stasis: &StasisHost, one: &str, other: &str) -> Result<()> {
    let compare = [
        "diff",
        "--files",
        "--sockets",
        "--ps-tree-cmd",
        "--ps-tree-env",
    ];
    let text = said(
        stasis,
        &[&compare[..], &["--format", "json", one, other]].concat(),
    )?;
    let differs = text.contains("\"added\"") || text.contains("\"removed\"");
    ensure!(!differs && !text.contains("\"modified\""), "{text}");
    Ok(())
}
