//! Requests that are odd, or cannot be carried out: they harm no other container of the shim.

use anyhow::Result;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::{
    Code, Containerd, INIT, Mount, RuntimeOptions, State, Streams, code, to_any,
};
use stasis_integration::client::shim::{Shim, in_host};
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(in_host [
    names_of_tomorrow_are_the_runtimes,
    missing_layers_leave_the_shim_alone,
    missing_runtime_is_named_in_quotes,
]: trixie, sid_v2);

/// A specification with an unknown capability, which runc ignores with a warning.
const ODD: &str = r#"
mkdir -p /opt/odd/rootfs && cd /opt/odd
ctr image mount localhost/stasis-test:latest rootfs >/dev/null
runc spec
sed -i 's/"terminal": true/"terminal": false/; s|"sh"|"/bin/pause"|
    s|"path": "rootfs"|"path": "/opt/odd/rootfs"|
    s/"CAP_KILL",/"CAP_KILL", "CAP_OF_TOMORROW",/' config.json
grep -q TOMORROW config.json
ctr c create --runtime "$0" --config config.json odd
"#;

fn names_of_tomorrow_are_the_runtimes(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let runtime = Shim::under_test().runtime();
    stasis.run(&["sh", "-ec", ODD, runtime])?;
    client.create_on(Vec::new(), "odd", &Streams::default(), None)?;
    client.start("odd", INIT)?;
    assert_eq!(client.state("odd", INIT)?.status(), State::Running);
    stasis.ctr_remove("odd")?;
    stasis.run(&["umount", "/opt/odd/rootfs"])?;
    stasis.nothing_left_of(&["odd"])
}

/// With so many layers the crate changes the directory, and ends the shim if it cannot.
fn missing_layers_leave_the_shim_alone(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let (first, second) = ("whole", "layered");
    let group = ["--annotation", "io.containerd.runc.v2.group=whole"];
    let pid = stasis.start_container(client, first, &group, &["/bin/pause"])?;
    stasis.create_container(second, &group, &["/bin/pause"])?;
    let layers: Vec<_> = (0..500)
        .map(|number| format!("/nonexistent/{number}/fs"))
        .collect();
    let overlay = Mount {
        r#type: "overlay".to_owned(),
        source: "overlay".to_owned(),
        options: vec![format!("lowerdir={}", layers.join(":"))],
        ..Mount::default()
    };
    let refused = client.create_on(vec![overlay], second, &Streams::default(), None);
    assert_eq!(code(&refused), Code::Unknown, "{refused:?}");
    let message = format!("{refused:?}");
    assert!(message.contains("/nonexistent"), "{message}");
    assert_eq!(client.state(first, INIT)?.status(), State::Running);
    assert!(stasis.lives(pid));
    stasis.ctr_remove(second)?;
    stasis.ctr_remove(first)?;
    stasis.nothing_left_of(&[first, second])
}

/// containerd's own tests look for the quotes.
fn missing_runtime_is_named_in_quotes(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "without-runtime";
    stasis.create_container(id, &[], &["/bin/pause"])?;
    let options = RuntimeOptions {
        binary_name: "no-runc".to_owned(),
        ..RuntimeOptions::default()
    };
    let refused = client.create(id, &Streams::default(), Some(to_any(&options)?));
    let message = refused.err().map(|status| status.message().to_owned());
    let message = message.unwrap_or_default();
    assert!(message.contains("\"no-runc\""), "{message}");
    stasis.ctr_remove(id)?;
    wait_until_clear(|| {
        Ok(stasis
            .nothing_left_of(&[id])
            .err()
            .map(|left| left.to_string()))
    })
}
