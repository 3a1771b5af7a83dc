//! Containers that begin with an image, through the shim: created and held, and started after that.

use anyhow::Result;
use serde_json::Value;
use stasis_integration::client::containerd::{CheckpointOptions, Containerd, INIT, State, Streams};
use stasis_integration::container::gpu_task::{in_host, into};
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(in_host [it_goes_on_at_its_start]: trixie, sid_v2);

const COUNTER: [&str; 2] = ["/bin/counter", "10000"];
const SIGKILL: u32 = 9;

fn it_goes_on_at_its_start(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    stasis.set(&stasis.low_level, "restore.at_create = \"/images\"\n")?;
    stasis.start_counter(client, "origin", &[])?;
    let options = CheckpointOptions {
        exit: true,
        ..into("/images/job/1")
    };
    client.checkpoint("origin", &options)?;
    client.wait("origin", INIT)?;
    client.delete("origin")?;
    let image = ["--annotation", "io.stasis.restore=latest:job"];
    stasis.create_gpu_container("next", &image, &COUNTER)?;
    for end in ["delete", "kill", "start"] {
        let pid = client.create("next", &Streams::default(), None)?;
        let state = client.state("next", INIT)?.status();
        assert_eq!(state, State::Created, "{end}");
        assert_eq!(stasis.operation("create")?["notes"], Value::Null, "{end}");
        assert!(stasis.is_silent(10000)?, "{end}");
        if end == "start" {
            assert_eq!(client.start("next", INIT)?, pid);
            // The question sent before the start was 102.
            assert_eq!(stasis.ask_until_up(10000)?, "103");
        }
        if end != "delete" {
            client.kill("next", INIT, SIGKILL)?;
            assert_eq!(client.wait("next", INIT)?.status, 137, "{end}");
        }
        client.delete("next")?;
        assert!(!stasis.lives(pid), "{end}");
    }
    stasis.nothing_to_put_right()
}
