//! containerd 1.7 ignores unknown keys in silence, 2.1 warns of them, and both look at runtime
//! options only when a pod is started. So the settings that containerd has read are taken from
//! `containerd config dump`, and options are compared with the ones in its default configuration.

use anyhow::{Context, Result, bail, ensure};
use stasis_integration::client::cri::settings;
use stasis_integration::host::{Cgroups, Host, Suite};
use toml::{Table, Value};

/// A snippet's section, and the series of containerd that it is for.
struct Series {
    suite: Suite,
    section: &'static str,
    plugins: &'static [&'static str],
}

const ONE: Series = Series {
    suite: Suite::Trixie,
    section: "io.containerd.grpc.v1.cri",
    plugins: &["io.containerd.grpc.v1 cri"],
};

const TWO: Series = Series {
    suite: Suite::Sid,
    section: "io.containerd.cri.v1.runtime",
    plugins: &["io.containerd.cri.v1 runtime", "io.containerd.grpc.v1 cri"],
};

#[test]
fn of_containerd_1() -> Result<()> {
    loads_and_is_checked(&ONE)
}

#[test]
fn of_containerd_2() -> Result<()> {
    loads_and_is_checked(&TWO)
}

fn loads_and_is_checked(series: &Series) -> Result<()> {
    let host = Host::start(series.suite, Cgroups::V2)?;
    let shipped = settings::shipped(series.suite);
    let everything = with_all_suggestions(shipped);
    ensure!(everything.contains("\n    SystemdCgroup = true\n"));
    for snippet in [shipped, &everything] {
        settings::write(&host, series.suite, snippet)?;
        is_understood(&host, series, snippet)?;
        is_loaded(&host, series)?;
    }
    // The purpose of the test: a mistake in a snippet is found.
    for (right, wrong) in [
        ("runtime_path", "runtime_pth"),
        ("BinaryName", "BinName"),
        ("SystemdCgroup = true", "SystemdCgroup = \"yes\""),
        ("runtimes.stasis.options", "runtimes.stasis.option"),
        (".containerd.runtimes.", ".runtimes."),
    ] {
        let snippet = everything.replace(right, wrong);
        assert_ne!(snippet, everything, "{right} is not in the snippet");
        settings::write(&host, series.suite, &snippet)?;
        let found = is_understood(&host, series, &snippet);
        assert!(found.is_err(), "{wrong} instead of {right} was not noticed");
    }
    Ok(())
}

/// Returns the snippet with the lines in force that begin with "#" and no space.
fn with_all_suggestions(snippet: &str) -> String {
    let lines = snippet.lines().map(|line| {
        let suggestion = line.trim_start().strip_prefix('#');
        match suggestion.filter(|rest| rest.starts_with(|first: char| !first.is_whitespace())) {
            Some(rest) => line.replacen(&format!("#{rest}"), rest, 1),
            None => line.to_owned(),
        }
    });
    lines.map(|line| line + "\n").collect()
}

/// Checks that containerd has read every setting of the snippet.
fn is_understood(host: &Host, series: &Series, snippet: &str) -> Result<()> {
    let dump = host.run(&["containerd", "config", "dump"])?;
    let stderr = String::from_utf8_lossy(&dump.stderr);
    ensure!(stderr.is_empty(), "containerd complains: {stderr}");
    let dump: Table = toml::from_str(&String::from_utf8(dump.stdout)?)?;
    let snippet: Table = toml::from_str(snippet)?;
    let ours = runtimes(&snippet, series)?;
    holds_all(runtimes(&dump, series)?, ours)?;
    let default = host.run_for_text(&["containerd", "config", "default"])?;
    let default: Table = toml::from_str(&default)?;
    let known = options(runtimes(&default, series)?, "runc")?;
    for runtime in ours.keys() {
        // A variant without options is one that must have none.
        let Ok(options) = options(ours, runtime) else {
            continue;
        };
        for (name, value) in options {
            let model = known.get(name);
            let model = model.with_context(|| format!("runc has no option {name}"))?;
            ensure!(
                model.same_type(value),
                "option {name} is of type {}, not {}",
                model.type_str(),
                value.type_str()
            );
        }
    }
    Ok(())
}

fn runtimes<'t>(config: &'t Table, series: &Series) -> Result<&'t Table> {
    let mut table = config;
    for key in ["plugins", series.section, "containerd", "runtimes"] {
        let inner = table.get(key).and_then(Value::as_table);
        table = inner.with_context(|| format!("no table {key}"))?;
    }
    Ok(table)
}

fn options<'t>(runtimes: &'t Table, name: &str) -> Result<&'t Table> {
    let runtime = runtimes.get(name).context("no such runtime")?;
    let options = runtime.get("options").and_then(Value::as_table);
    options.with_context(|| format!("the runtime {name} has no options"))
}

fn holds_all(read: &Table, written: &Table) -> Result<()> {
    for (key, value) in written {
        match (read.get(key), value) {
            (Some(Value::Table(read)), Value::Table(written)) => holds_all(read, written)?,
            (Some(read), _) if read == value => {}
            // containerd 2.x leaves empty tables out.
            (None, Value::Table(written)) if written.is_empty() => {}
            (read, _) => bail!("{key} is {read:?} to containerd, not {value:?}"),
        }
    }
    Ok(())
}

/// The daemon runs with it: its CRI plugins are up.
fn is_loaded(host: &Host, series: &Series) -> Result<()> {
    let daemon = host.containerd()?;
    let list = host.run_for_text(&["ctr", "plugins", "ls"])?;
    for plugin in series.plugins {
        let mut lines = list.lines().map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.join(" ")
        });
        let line = lines.find(|line| line.starts_with(plugin));
        ensure!(
            line.as_ref().is_some_and(|line| line.ends_with(" ok")),
            "{plugin} is not up: {line:?}; the daemon's log:\n{}",
            daemon.log()?
        );
    }
    let log = daemon.log()?;
    ensure!(!log.contains("Ignoring unknown key"), "{log}");
    ensure!(log.contains("io.containerd.runc.v2"), "{log}");
    daemon.kill()
}
