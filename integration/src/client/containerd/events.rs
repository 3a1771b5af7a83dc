//! The events of tasks, as containerd delivers them to its subscribers.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use containerd_client::events as sent;
use containerd_client::services::v1::events_client::EventsClient;
use containerd_client::services::v1::{PublishRequest, SubscribeRequest};
use containerd_client::types::Envelope;
use prost::Message;

use super::{Containerd, NAMESPACE, new_runtime, of};

/// An awaited event has to come within this time.
const DEADLINE: Duration = Duration::from_secs(30);
/// The container of the event that shows that a subscription has begun.
const PROBE: &str = "subscription";

/// An event of a task. Fields that its kind does not have are empty or 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// "create", "start", "exec-added", "exec-started", "exit", "delete", "paused", "resumed",
    /// "oom", "checkpointed": the end of its topic.
    pub kind: String,
    /// The container's id.
    pub container: String,
    /// The id of the process: that of the exec, or in "exit" the container's for its first process.
    pub process: String,
    /// The process's pid in the host.
    pub pid: u32,
    /// The process's exit status.
    pub status: u32,
    /// The directory of the checkpoint.
    pub checkpoint: String,
}

/// A container, and an [`Event::brief`] of it.
pub type Told = (String, String);

/// The events since a subscription.
#[derive(Debug)]
pub struct Events {
    incoming: Receiver<Result<Event>>,
    seen: Vec<Event>,
}

impl Event {
    /// The kind, the process if the event is about a certain one, and its exit status if it has
    /// ended.
    pub fn brief(&self) -> String {
        match (self.kind.as_str(), self.process.as_str()) {
            ("exit" | "delete", "") => format!("{} {}", self.kind, self.status),
            ("exit" | "delete", process) => format!("{} {process} {}", self.kind, self.status),
            (kind, "") => kind.to_owned(),
            (kind, process) => format!("{kind} {process}"),
        }
    }

    /// Decodes an event; `None` if it is not about a task.
    fn decode(envelope: &Envelope) -> Result<Option<Self>> {
        let Some(kind) = envelope.topic.strip_prefix("/tasks/") else {
            return Ok(None);
        };
        let any = envelope
            .event
            .as_ref()
            .context("an event without content")?;
        let (container, process, pid, status, checkpoint) = content(kind, &any.value)
            .with_context(|| format!("reading the event {} ({})", envelope.topic, any.type_url))?;
        Ok(Some(Self {
            kind: kind.to_owned(),
            container,
            process,
            pid,
            status,
            checkpoint,
        }))
    }
}

/// Decodes container, process, pid, status and checkpoint.
fn content(kind: &str, bytes: &[u8]) -> Result<(String, String, u32, u32, String)> {
    let none = String::new;
    Ok(match kind {
        "create" => {
            let event = sent::TaskCreate::decode(bytes)?;
            (event.container_id, none(), event.pid, 0, event.checkpoint)
        }
        "start" => {
            let event = sent::TaskStart::decode(bytes)?;
            (event.container_id, none(), event.pid, 0, none())
        }
        "exec-added" => {
            let event = sent::TaskExecAdded::decode(bytes)?;
            (event.container_id, event.exec_id, 0, 0, none())
        }
        "exec-started" => {
            let event = sent::TaskExecStarted::decode(bytes)?;
            (event.container_id, event.exec_id, event.pid, 0, none())
        }
        "exit" => {
            let event = sent::TaskExit::decode(bytes)?;
            (
                event.container_id,
                event.id,
                event.pid,
                event.exit_status,
                none(),
            )
        }
        "delete" => {
            let event = sent::TaskDelete::decode(bytes)?;
            (
                event.container_id,
                event.id,
                event.pid,
                event.exit_status,
                none(),
            )
        }
        "checkpointed" => {
            let event = sent::TaskCheckpointed::decode(bytes)?;
            (event.container_id, none(), 0, 0, event.checkpoint)
        }
        // These have the container and nothing else, as the first field.
        "paused" | "resumed" | "oom" => {
            let event = sent::TaskPaused::decode(bytes)?;
            (event.container_id, none(), 0, 0, none())
        }
        _ => bail!("an event of tasks that is not known"),
    })
}

impl Events {
    pub(super) fn subscribe(containerd: &Containerd) -> Result<Self> {
        let (sender, incoming) = channel();
        let socket = containerd.socket.clone();
        std::thread::spawn(move || {
            if let Err(error) = receive(&socket, &sender) {
                // If the receiver is gone, the test has ended.
                let _ = sender.send(Err(error));
            }
        });
        let events = Self {
            incoming,
            seen: Vec::new(),
        };
        events.await_probe(containerd)?;
        Ok(events)
    }

    /// Waits until a subscription has begun, which containerd does not report: an event of our own
    /// is sent until it comes.
    fn await_probe(&self, containerd: &Containerd) -> Result<()> {
        let deadline = Instant::now() + DEADLINE;
        let mut publisher = EventsClient::new(containerd.channel.clone());
        loop {
            let event = containerd_client::to_any(&sent::TaskStart {
                container_id: PROBE.to_owned(),
                pid: 1,
            });
            let request = of(PublishRequest {
                topic: "/tasks/start".to_owned(),
                event: Some(event),
            });
            containerd.runtime.block_on(publisher.publish(request))?;
            match self.incoming.recv_timeout(Duration::from_millis(20)) {
                Ok(event) => return event.map(drop),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(error) => bail!("containerd delivers no events: {error}"),
            }
        }
    }

    /// Waits until an event of a container with this [`Event::brief`] has come; returns all of the
    /// container's events up to it.
    ///
    /// # Errors
    /// It does not come within 30 s.
    pub fn until(&mut self, container: &str, brief: &str) -> Result<Vec<Event>> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let of_container = self
                .seen
                .iter()
                .filter(|event| event.container == container);
            let mut found = Vec::new();
            for event in of_container {
                found.push(event.clone());
                if event.brief() == brief {
                    return Ok(found);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.incoming.recv_timeout(left) {
                Ok(event) => self.seen.push(event?),
                Err(error) => bail!(
                    "waiting for the event {brief:?} of {container}: {error}; there were {:?}",
                    briefs(&found)
                ),
            }
        }
    }

    /// Counts how often each [`Event::brief`] of a container has come, once all of these have, or
    /// none has come for 30 s.
    pub fn counts_until(&mut self, mut awaited: HashSet<Told>) -> Result<HashMap<Told, usize>> {
        let mut counts = HashMap::new();
        let mut seen = std::mem::take(&mut self.seen).into_iter();
        loop {
            let event = match seen.next() {
                Some(event) => event,
                None if awaited.is_empty() => return Ok(counts),
                None => match self.incoming.recv_timeout(DEADLINE) {
                    Ok(event) => event?,
                    Err(RecvTimeoutError::Timeout) => return Ok(counts),
                    Err(error) => bail!("waiting for {awaited:?}: {error}"),
                },
            };
            let told = (event.container.clone(), event.brief());
            awaited.remove(&told);
            *counts.entry(told).or_default() += 1;
        }
    }

    /// Counts all that a containerd has delivered up to its end.
    pub fn counts_until_the_end(&mut self) -> Result<HashMap<Told, usize>> {
        let mut counts = HashMap::new();
        let mut count = |event: &Event| {
            let told = (event.container.clone(), event.brief());
            *counts.entry(told).or_default() += 1;
        };
        self.seen.iter().for_each(&mut count);
        loop {
            match self.incoming.recv_timeout(DEADLINE) {
                Ok(Ok(event)) => count(&event),
                Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Ok(counts),
                Err(RecvTimeoutError::Timeout) => bail!("containerd has not ended"),
            }
        }
    }

    /// Counts the events of a container with this [`Event::brief`] that have come by now.
    pub fn count(&self, container: &str, brief: &str) -> usize {
        let of_container = self
            .seen
            .iter()
            .filter(|event| event.container == container);
        of_container.filter(|event| event.brief() == brief).count()
    }
}

/// Returns the [`Event::brief`] of each.
#[must_use]
pub fn briefs(events: &[Event]) -> Vec<String> {
    events.iter().map(Event::brief).collect()
}

fn receive(socket: &std::path::Path, sender: &Sender<Result<Event>>) -> Result<()> {
    new_runtime()?.block_on(async {
        let channel = containerd_client::connect(socket).await?;
        let filters = vec![format!("namespace=={NAMESPACE}")];
        // No deadline: the subscription lasts as long as the test.
        let mut subscriber = EventsClient::new(channel);
        let subscription = subscriber.subscribe(SubscribeRequest { filters });
        let mut stream = subscription.await?.into_inner();
        while let Some(envelope) = stream.message().await? {
            let event = Event::decode(&envelope);
            if let Some(event) = event.transpose()
                && sender.send(event).is_err()
            {
                return Ok(());
            }
        }
        Ok(())
    })
}
