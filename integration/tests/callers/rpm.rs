//! The RPM package, by rpm in a host of Debian, since no registry here has Fedora or Rocky: what it
//! asks for, installed, refused to be removed while a container needs its shim, removed. Debian's
//! packages are none to rpm, so that dependencies are not resolved.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::client::ctr::gpu_options;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{SETTINGS, StasisHost};

use crate::packages::{FILES, assembled, without_make_install};

const ID: &str = "packaged";
const PACKAGE: &str = "stasis-0.1.0-1.x86_64.rpm";
const INSIDE: &str = "/root/stasis.rpm";
/// This machine's rpm in the host, and its libraries but for those of the host's own glibc.
const RPM: &str = "/root/rpm";
const LIBRARIES: &str = "/root/libraries";
const OF_GLIBC: [&str; 5] = [
    "libc.so",
    "libm.so",
    "libdl.so",
    "libpthread.so",
    "ld-linux",
];

#[test]
fn installed_refused_removed() -> Result<()> {
    let kind = HostKind::sid()?;
    let stasis = &StasisHost::of(kind)?;
    let out = assembled(None)?;
    let package = out.path().join(PACKAGE);
    asks_for_what_it_needs(&package)?;
    without_make_install(stasis)?;
    has_rpm(stasis)?;
    stasis.host.install(&package, INSIDE)?;
    // The host's shell and libraries are of no package that rpm knows.
    stasis.run(&["rpm", "-i", "--nodeps", INSIDE])?;
    stasis.set(kind.low_level, "")?;
    has_all_files(stasis)?;

    let _containerd = stasis.containerd()?;
    let gpu = gpu_options(ID);
    let mut options = vec!["-d"];
    options.extend(gpu.iter().map(String::as_str));
    stasis.shim_run(ID, &options, &["/bin/counter", "10000"])?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    stasis.ctr_checkpoint(ID, "example.com/packaged:1")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    let refused = stasis.fails(&["rpm", "-e", "stasis"])?;
    ensure!(refused.contains("it runs: process"), "{refused}");
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103"));

    stasis.ctr_remove(ID)?;
    stasis.until_no_shim_runs()?;
    stasis.run(&["rpm", "-e", "stasis"])?;
    for file in ["/usr/bin/stasis", "/usr/bin/cuda-checkpoint", FILES[0]] {
        let path = stasis.path(file);
        ensure!(fs::symlink_metadata(path).is_err(), "{file} is there");
    }
    // The changed settings are kept.
    let kept = stasis.path(format!("{SETTINGS}.rpmsave"));
    ensure!(kept.exists(), "no {}", kept.display());
    Ok(())
}

/// Checks that its files are there, and that the plugin in use is the package's.
fn has_all_files(stasis: &StasisHost) -> Result<()> {
    for file in FILES {
        let file = file.replace("vendor-completions", "site-functions");
        ensure!(stasis.path(&file).exists(), "no {file}");
    }
    let doctor = stasis.command("stasis").arg("doctor").output()?;
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let plugin = format!("criu-plugin: {}\n", FILES[0]);
    ensure!(doctor.contains(&plugin), "{doctor}");
    Ok(())
}

/// Puts this machine's rpm into the host. From outside it would have to be told the host's root,
/// whose path in /proc is a link to `/` for whoever reads it as text.
fn has_rpm(stasis: &StasisHost) -> Result<()> {
    let program = Path::new("/usr/bin/rpm");
    let linked = Command::new("ldd").arg(program).output()?;
    succeeds(&linked)?;
    stasis.host.install(program, RPM)?;
    stasis
        .host
        .install_dir(Path::new("/usr/lib/rpm"), "/usr/lib/rpm")?;
    for line in String::from_utf8(linked.stdout)?.lines() {
        let Some(library) = line.split_whitespace().find(|word| word.starts_with('/')) else {
            continue;
        };
        let name = library.rsplit('/').next().unwrap_or_default();
        if !OF_GLIBC.iter().any(|of_glibc| name.starts_with(of_glibc)) {
            let inside = format!("{LIBRARIES}/{name}");
            stasis.host.install(Path::new(library), &inside)?;
        }
    }
    let found = "/usr/local/bin/rpm";
    let script = format!("#!/bin/sh\nLD_LIBRARY_PATH={LIBRARIES} exec {RPM} \"$@\"\n");
    stasis.script(found, &script)
}

/// It has no directory of the system, whose mode other distributions choose, and asks for the
/// libraries that it is linked with.
fn asks_for_what_it_needs(package: &Path) -> Result<()> {
    let asked = |what: &str| -> Result<String> {
        let output = Command::new("rpm")
            .args(["-qp", what])
            .arg(package)
            .output()?;
        succeeds(&output)?;
        Ok(String::from_utf8(output.stdout)?)
    };
    let requires = asked("--requires")?;
    for library in ["/bin/sh", "libc.so.6(GLIBC_2.", "libgcc_s.so.1"] {
        ensure!(requires.contains(library), "{requires}");
    }
    let recommends = asked("--recommends")?;
    assert_contains(&recommends, &["(criu >= 4.0 or stasis-criu)"]);
    let files = asked("-l")?;
    for directory in ["/usr", "/usr/bin", "/usr/lib", "/usr/share", "/etc"] {
        ensure!(files.lines().all(|file| file != directory), "{files}");
    }
    let scripts = asked("--scripts")?;
    assert_contains(&scripts, &["/usr/lib/stasis/shim-in-use /usr/bin"]);
    assert_eq!(asked("-c")?.trim(), SETTINGS);
    Ok(())
}

fn succeeds(output: &Output) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    Ok(())
}
