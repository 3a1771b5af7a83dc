//! The containers, in pods: they share one copy of the test image's files, and do nothing.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Size;
use crate::client::containerd::{Answer, Containerd, INIT, Mount, Streams};
use crate::container::bundle::lay_out;
use crate::host::installed::StasisHost;

const DIRECTORY: &str = "/run/load";
/// By this annotation containerd's own shim, and ours, put the containers of a pod together.
const GROUP: &str = "io.containerd.runc.v2.group";

/// All of them.
#[derive(Debug)]
pub(super) struct Containers<'a> {
    size: Size,
    runtime: &'a str,
    spec: Value,
}

/// The id of a container; the id of a pod's first container is the pod's as well.
pub(super) fn id(size: Size, number: usize) -> String {
    format!("load-{}-{}", number / size.in_a_pod, number % size.in_a_pod)
}

impl<'a> Containers<'a> {
    pub(super) fn plan(stasis: &StasisHost, size: Size, runtime: &'a str) -> Result<Self> {
        let spec = edit(lay_out(stasis, DIRECTORY)?);
        Ok(Self {
            size,
            runtime,
            spec: spec.context("the spec that `runc spec` writes has changed")?,
        })
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = String> {
        self.size.ids()
    }

    /// Starts them all, several pods at a time.
    pub(super) fn start(&self, client: &Containerd) -> Result<()> {
        self.each(client, |client, id| Ok(self.start_one(client, id)?))
    }

    /// Kills and removes them.
    pub(super) fn end(&self, client: &Containerd) -> Result<()> {
        self.each(client, |client, id| {
            client.kill(id, INIT, 9)?;
            let status = client.wait(id, INIT)?.status;
            ensure!(status == 137, "it ended with {status}");
            client.delete(id)?;
            Ok(client.remove_container(id)?)
        })
    }

    fn start_one(&self, client: &Containerd, id: &str) -> Answer<()> {
        let mut spec = self.spec.clone();
        let (pod, _) = id.rsplit_once('-').unwrap_or((id, ""));
        spec["linux"]["cgroupsPath"] = json!(format!("/load/{id}"));
        spec["annotations"] = json!({ GROUP: format!("{pod}-0") });
        client.add_container(id, self.runtime, &spec)?;
        let rootfs = Mount {
            r#type: "bind".to_owned(),
            source: format!("{DIRECTORY}/rootfs"),
            options: vec!["rbind".to_owned(), "rw".to_owned()],
            ..Default::default()
        };
        client.create_on(vec![rootfs], id, &Streams::default(), None)?;
        client.start(id, INIT).map(drop)
    }

    /// Acts on the containers of a pod one after the other, on several pods at the same time.
    fn each(
        &self,
        client: &Containerd,
        action: impl Fn(&Containerd, &str) -> Result<()> + Sync,
    ) -> Result<()> {
        let Size {
            pods,
            in_a_pod,
            callers,
            ..
        } = self.size;
        let of_caller = |caller: usize| {
            let client = client.again()?;
            for pod in (caller..pods).step_by(callers) {
                for number in pod * in_a_pod..(pod + 1) * in_a_pod {
                    let id = id(self.size, number);
                    action(&client, &id).with_context(|| id.clone())?;
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let of_caller = &of_caller;
            let threads: Vec<_> = (0..callers)
                .map(|caller| scope.spawn(move || of_caller(caller)))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                let result = thread.join();
                result.map_err(|_| anyhow::anyhow!("a caller panicked"))?
            })
        })
    }
}

/// Removes the terminal, and uses the host's network: a network of its own costs the kernel more
/// than all else.
fn edit(mut spec: Value) -> Option<Value> {
    *spec.pointer_mut("/process/terminal")? = json!(false);
    *spec.pointer_mut("/process/args")? = json!(["/bin/pause"]);
    let namespaces = spec.pointer_mut("/linux/namespaces")?.as_array_mut()?;
    namespaces.retain(|namespace| namespace["type"] != "network");
    Some(spec)
}
