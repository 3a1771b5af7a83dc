//! A client that speaks as containerd 2.3 and newer do: the parameters of `start` as a message on
//! standard input, and version 3 of the task service over ttrpc.

use std::fs;

use anyhow::{Context, Result};
use containerd_shim_protos::api::{
    CloseIORequest, CreateTaskRequest, DeleteRequest, ExecProcessRequest, KillRequest,
    ShutdownRequest, StartRequest, StateRequest, WaitRequest,
};
use containerd_shim_protos::bootstrap_api::{BootstrapParams, BootstrapResult};
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::protobuf::{Message, MessageField};
use containerd_shim_protos::ttrpc::context::{Context as Call, with_timeout};
use containerd_shim_protos::ttrpc::{Code, Error, Request};
use containerd_shim_protos::{Client, TaskClient};
use stasis_integration::client::containerd::{Containerd, Input, process};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

/// A script that makes a bundle with the fifo for the log, as containerd makes one.
const BUNDLE: &str = r#"
mkdir -p /run/bundles/$0/rootfs && cd /run/bundles/$0
ctr image mount localhost/stasis-test:latest rootfs >/dev/null
runc spec
sed -i 's/"terminal": true/"terminal": false/; s|"sh"|"/bin/pause"|
    s|"ociVersion"|"annotations": {"io.kubernetes.cri.sandbox-id": "pod"},\n"ociVersion"|' config.json
mkfifo log
"#;
const START: &str = r#"
cd /run/bundles/$0
export TTRPC_ADDRESS=/run/containerd/containerd.sock.ttrpc
containerd-shim-stasis-v2 -namespace default -address /run/containerd/containerd.sock \
    -publish-binary /usr/bin/containerd -id $0 start < params > answer
"#;

on_hosts!(newest_containerd_is_understood: trixie, sid_v2);

fn newest_containerd_is_understood(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    stasis.install_shim()?;
    let _containerd = stasis.containerd()?;
    let events = Containerd::connect(&stasis.host)?;
    let mut events = events.events()?;
    let address = start(&stasis, "pod")?;
    assert_eq!(start(&stasis, "second")?, address, "one shim for a pod");
    // Up to 2.2: flags, no parameters, and the address alone, which 2.0 takes for version 2.
    assert_eq!(answered(&stasis, "third", &[])?, address.as_bytes());
    let reached = stasis.path(address.trim_start_matches("unix://"));
    let client = Client::connect(&format!("unix://{}", reached.display()))?;
    let tasks = TaskClient::new(client.clone());
    for id in ["pod", "second"] {
        lives(&stasis, &tasks, id)?;
        events.until(id, &format!("exit {id} 137"))?;
    }
    others_are_unimplemented(&client);
    tasks.shutdown(call(), &ShutdownRequest::default())?;
    stasis.until_no_shim_runs()?;
    assert!(!reached.exists());
    stasis.nothing_left_of(&["pod", "second"])
}

fn call() -> Call {
    with_timeout(60_000_000_000)
}

/// Runs `start` as containerd 2.3 does. Returns the address in its answer.
fn start(stasis: &StasisHost, id: &str) -> Result<String> {
    let params = BootstrapParams {
        instance_id: id.to_owned(),
        namespace: "default".to_owned(),
        containerd_version: "2.3.4".to_owned(),
        containerd_grpc_address: "/run/containerd/containerd.sock".to_owned(),
        containerd_ttrpc_address: "/run/containerd/containerd.sock.ttrpc".to_owned(),
        containerd_binary: "/usr/bin/containerd".to_owned(),
        ..BootstrapParams::default()
    };
    let answer = answered(stasis, id, &params.write_to_bytes()?)?;
    let answer = BootstrapResult::parse_from_bytes(&answer).context("the answer of start")?;
    // With version 3, containerd would clean up after the pod's first container alone.
    assert_eq!((answer.version, answer.protocol.as_str()), (2, "ttrpc"));
    Ok(answer.address)
}

/// Runs `start` with `input` on its standard input.
fn answered(stasis: &StasisHost, id: &str, input: &[u8]) -> Result<Vec<u8>> {
    stasis.run(&["sh", "-ec", BUNDLE, id])?;
    let bundle = stasis.path(format!("/run/bundles/{id}"));
    fs::write(bundle.join("params"), input)?;
    stasis.run(&["sh", "-ec", START, id])?;
    Ok(fs::read(bundle.join("answer"))?)
}

fn lives(stasis: &StasisHost, tasks: &TaskClient, id: &str) -> Result<()> {
    let create = CreateTaskRequest {
        id: id.to_owned(),
        bundle: format!("/run/bundles/{id}"),
        ..CreateTaskRequest::default()
    };
    let pid = tasks.create(call(), &create)?.pid;
    let task = Task { tasks, id };
    assert_eq!(task.start("")?, pid);
    let state = StateRequest {
        id: id.to_owned(),
        ..StateRequest::default()
    };
    let state = tasks.state(call(), &state)?;
    assert_eq!((state.id, state.pid), (id.to_owned(), pid));
    reader_ends_when_its_input_is_closed(stasis, &task)?;
    let kill = KillRequest {
        id: id.to_owned(),
        signal: 9,
        ..KillRequest::default()
    };
    tasks.kill(call(), &kill)?;
    assert_eq!(task.wait_and_delete("")?, (137, 137));
    Ok(())
}

/// The request's `stdin` makes no difference, as with containerd's own shim.
fn reader_ends_when_its_input_is_closed(stasis: &StasisHost, task: &Task<'_>) -> Result<()> {
    let (id, exec_id) = task.ids("reader");
    let input = Input::new(&stasis.host, &format!("/run/bundles/{id}/input"))?;
    let spec = process(&["cat"], false);
    let exec = ExecProcessRequest {
        id: id.clone(),
        exec_id: exec_id.clone(),
        stdin: input.path.clone(),
        spec: MessageField::some(Any {
            type_url: spec.type_url,
            value: spec.value,
            ..Any::default()
        }),
        ..ExecProcessRequest::default()
    };
    task.tasks.exec(call(), &exec)?;
    task.start("reader")?;
    drop(input);
    let close = CloseIORequest {
        id,
        exec_id,
        stdin: false,
        ..CloseIORequest::default()
    };
    task.tasks.close_io(call(), &close)?;
    assert_eq!(task.wait_and_delete("reader")?, (0, 0));
    Ok(())
}

struct Task<'t> {
    tasks: &'t TaskClient,
    id: &'t str,
}

impl Task<'_> {
    fn ids(&self, exec: &str) -> (String, String) {
        (self.id.to_owned(), exec.to_owned())
    }

    fn start(&self, exec: &str) -> Result<u32> {
        let (id, exec_id) = self.ids(exec);
        let request = StartRequest {
            id,
            exec_id,
            ..StartRequest::default()
        };
        Ok(self.tasks.start(call(), &request)?.pid)
    }

    /// Returns the exit statuses that the answers to both requests give.
    fn wait_and_delete(&self, exec: &str) -> Result<(u32, u32)> {
        let (id, exec_id) = self.ids(exec);
        let wait = WaitRequest {
            id: id.clone(),
            exec_id: exec_id.clone(),
            ..WaitRequest::default()
        };
        let ended = self.tasks.wait(call(), &wait)?.exit_status;
        let delete = DeleteRequest {
            id,
            exec_id,
            ..DeleteRequest::default()
        };
        Ok((ended, self.tasks.delete(call(), &delete)?.exit_status))
    }
}

/// containerd's negotiation looks for this answer.
fn others_are_unimplemented(client: &Client) {
    for service in [
        "containerd.runtime.sandbox.v1.Sandbox",
        "containerd.task.v3.Task",
    ] {
        let request = Request {
            service: service.to_owned(),
            method: "OfTomorrow".to_owned(),
            timeout_nano: 60_000_000_000,
            ..Request::default()
        };
        match client.request(request) {
            Err(Error::RpcStatus(status)) => assert_eq!(status.code(), Code::UNIMPLEMENTED),
            other => panic!("{service}: {other:?}"),
        }
    }
}
