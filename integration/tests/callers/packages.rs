//! The Debian package: installed, replaced under a running container, refused to be removed while
//! one needs its shim, removed and purged.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use stasis_integration::client::ctr::gpu_options;
use stasis_integration::host::HostKind;
use stasis_integration::host::c_build;
use stasis_integration::host::installed::{SETTINGS, StasisHost};
use stasis_integration::on_hosts;
use tempfile::TempDir;

const FIRST: &str = "/root/stasis_0.1.0_amd64.deb";
const SECOND: &str = "/root/stasis_0.1.1_amd64.deb";
const ID: &str = "packaged";
const SHIM: &str = "/usr/bin/containerd-shim-stasis-v2";
const BUNDLE: &str = "/run/containerd/io.containerd.runtime.v2.task/default/packaged";
/// The files of the package other than programs.
pub(crate) const FILES: [&str; 11] = [
    "/usr/lib/stasis/libstasis_memory.so",
    "/usr/lib/systemd/system/stasis-recover.service",
    "/usr/lib/systemd/system/multi-user.target.wants/stasis-recover.service",
    "/usr/lib/systemd/system/stasis-metrics.service",
    "/usr/lib/systemd/system/stasis-metrics.timer",
    "/usr/lib/tmpfiles.d/stasis.conf",
    "/usr/share/stasis/monitoring/alerts.yml",
    "/usr/share/stasis/monitoring/grafana.json",
    "/usr/share/man/man1/stasis-gc.1.gz",
    "/usr/share/bash-completion/completions/stasis.bash",
    "/usr/share/zsh/vendor-completions/_cuda-checkpoint",
];

on_hosts!(installed_upgraded_removed: trixie, sid_v2);

fn installed_upgraded_removed(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    without_make_install(&stasis)?;
    package(&stasis)?;
    stasis.run(&["dpkg", "-i", FIRST])?;
    stasis.set(kind.low_level, "")?;
    is_whole(&stasis)?;

    let _containerd = stasis.containerd()?;
    let gpu = gpu_options(ID);
    let mut options = vec!["-d"];
    options.extend(gpu.iter().map(String::as_str));
    stasis.shim_run(ID, &options, &["/bin/counter", "10000"])?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");

    // The settings were changed here and are the same in both packages: dpkg asks no question.
    stasis.run(&["dpkg", "-i", SECOND])?;
    is_told_of_the_new_version(&stasis)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    stasis.ctr_checkpoint(ID, "example.com/packaged:1")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103"));

    let refused = stasis.fails(&["dpkg", "-r", "stasis"])?;
    assert!(refused.contains(&format!("{BUNDLE}\n")), "{refused}");
    // The running program is the old one, whose file is gone.
    assert!(refused.contains("it runs: process"), "{refused}");
    is_told_of_the_new_version(&stasis)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("104"));

    stasis.ctr_remove(ID)?;
    stasis.until_no_shim_runs()?;
    is_removed(&stasis)
}

/// Removes the programs and settings that `make install` has put into the host.
pub(crate) fn without_make_install(stasis: &StasisHost) -> Result<()> {
    let script = "rm -r /usr/local/bin/stasis* /usr/local/bin/cuda-checkpoint \
                  /usr/local/lib/stasis /etc/stasis";
    stasis.run(&["sh", "-ec", script]).map(drop)
}

/// Makes the packages of the programs under test, with this CRIU for `stasis-criu`.
pub(crate) fn assembled(criu: Option<&Path>) -> Result<TempDir> {
    let out = tempfile::tempdir()?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(repository.join("config/package/assemble.sh"))
        .env("DEBFULLNAME", "A/B & C")
        .env("DEBEMAIL", "a@example.com")
        .arg("0.1.0")
        .args([c_build::programs()?.as_path(), out.path()])
        .args(criu)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    Ok(out)
}

/// Makes a package of the programs under test, and an identical one of a later version.
pub(crate) fn package(stasis: &StasisHost) -> Result<()> {
    let out = assembled(None)?;
    let built = out.path().join("stasis_0.1.0_amd64.deb");
    stasis.host.install(&built, FIRST)?;
    let later = "dpkg-deb -R \"$0\" /root/later
                 sed -i 's/^Version: .*/Version: 0.1.1/' /root/later/DEBIAN/control
                 dpkg-deb -Znone -b /root/later \"$1\"";
    let script = ["sh", "-ec", later, FIRST, SECOND];
    stasis.run(&script).map(drop)
}

/// Checks that each file is in the package's list (hosts leave manual pages out), and that the
/// plugin in use is the package's.
fn is_whole(stasis: &StasisHost) -> Result<()> {
    let asked = ["dpkg-query", "-W", "-f", "${Maintainer}", "stasis"];
    let maintainer = stasis.run_for_text(&asked)?;
    assert_eq!(maintainer, "A/B & C <a@example.com>");
    let list = stasis.run_for_text(&["dpkg", "-L", "stasis"])?;
    for file in FILES {
        assert!(list.lines().any(|line| line == file), "{file}: {list}");
    }
    let plugin = format!("criu-plugin: {}\n", FILES[0]);
    let doctor = stasis.command("stasis").arg("doctor").output()?;
    let doctor = String::from_utf8_lossy(&doctor.stdout);
    assert!(doctor.contains(&plugin), "{doctor}");
    for (service, command) in [(FILES[1], "recover"), (FILES[3], "metrics")] {
        let unit = fs::read_to_string(stasis.path(service))?;
        let start = format!("ExecStart=/usr/bin/stasis {command}");
        assert!(unit.contains(&start), "{unit}");
        assert!(!unit.contains("/usr/local"), "{unit}");
    }
    Ok(())
}

fn is_told_of_the_new_version(stasis: &StasisHost) -> Result<()> {
    let asked = [
        "dpkg-query",
        "-W",
        "-f",
        "${db:Status-Status} ${Version}",
        "stasis",
    ];
    let said = stasis.run_for_text(&asked)?;
    assert_eq!(said, "installed 0.1.1");
    Ok(())
}

fn is_removed(stasis: &StasisHost) -> Result<()> {
    stasis.run(&["dpkg", "-r", "stasis"])?;
    let left = stasis.run_for_text(&["dpkg", "-L", "stasis"])?;
    assert_eq!(left, format!("/etc\n/etc/stasis\n{SETTINGS}"));
    let programs = ["/usr/bin/stasis", "/usr/bin/cuda-checkpoint", SHIM];
    for file in programs.iter().chain(&FILES) {
        // A dangling link counts as existing.
        let path = stasis.path(file);
        assert!(fs::symlink_metadata(path).is_err(), "{file}");
    }
    assert!(stasis.path(SETTINGS).exists());
    stasis.run(&["dpkg", "-P", "stasis"])?;
    for directory in ["/etc/stasis", "/var/log/stasis", "/var/lib/stasis"] {
        assert!(!stasis.path(directory).exists(), "{directory}");
    }
    Ok(())
}
