//! Publishes events to containerd, in order, and keeps them while containerd restarts.

use std::time::{Duration, Instant};

use containerd_shim::event::Event;
use containerd_shim::protos::protobuf::MessageField;
use containerd_shim::protos::shim::event::Envelope;
use containerd_shim::protos::shim::events::ForwardRequest;
use containerd_shim::protos::shim_async::{Client, EventsClient};
use containerd_shim::protos::ttrpc::{self, Code, context};
use containerd_shim::util::{convert_to_any, timestamp};
use tokio::sync::{mpsc, oneshot};

/// How long containerd may take to accept one event.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an event is kept while containerd does not accept it: longer than containerd takes to
/// restart. After a longer time containerd asks for the tasks' states itself (State, Wait).
const RETRY_FOR: Duration = Duration::from_secs(60);
/// How long an event that containerd refuses is tried again; beside the others, TaskExit for
/// example.
const REFUSED_FOR: Duration = Duration::from_secs(2);
/// The time between two attempts to send an event.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Sends events to containerd.
#[derive(Debug, Clone)]
pub(crate) struct Publisher {
    namespace: String,
    queue: mpsc::UnboundedSender<Item>,
}

#[derive(Debug)]
enum Item {
    Event(Box<Envelope>),
    Flush(oneshot::Sender<()>),
}

impl Publisher {
    /// Publishes to the containerd whose ttrpc socket is at `address`.
    pub(crate) fn start(address: String, namespace: String) -> Self {
        let (queue, items) = mpsc::unbounded_channel();
        tokio::spawn(deliver_all(address, items));
        Self { namespace, queue }
    }

    /// Publishes an event after all earlier ones.
    pub(crate) fn publish(&self, event: impl Event) {
        let topic = event.topic();
        let packed = convert_to_any(Box::new(event));
        let envelope = packed.and_then(|event| {
            Ok(Envelope {
                timestamp: MessageField::some(timestamp()?),
                namespace: self.namespace.clone(),
                topic: topic.clone(),
                event: MessageField::some(event),
                ..Envelope::default()
            })
        });
        match envelope {
            // The receiver lives as long as the shim.
            Ok(envelope) => drop(self.queue.send(Item::Event(Box::new(envelope)))),
            Err(error) => log::error!("event {topic} is lost: {error}"),
        }
    }

    /// Waits until all events have been sent or dropped, at most for `timeout`.
    pub(crate) async fn flush(&self, timeout: Duration) {
        let (done, flushed) = oneshot::channel();
        if self.queue.send(Item::Flush(done)).is_ok() {
            let _ = tokio::time::timeout(timeout, flushed).await;
        }
    }
}

async fn deliver_all(address: String, mut items: mpsc::UnboundedReceiver<Item>) {
    let mut containerd = None;
    while let Some(item) = items.recv().await {
        match item {
            Item::Event(envelope) => deliver(&address, &mut containerd, *envelope).await,
            Item::Flush(done) => drop(done.send(())),
        }
    }
}

async fn deliver(address: &str, containerd: &mut Option<EventsClient>, envelope: Envelope) {
    let topic = envelope.topic.clone();
    let request = ForwardRequest {
        envelope: MessageField::some(envelope),
        ..ForwardRequest::default()
    };
    let began = Instant::now();
    while let Err(error) = forward(address, containerd, &request).await {
        *containerd = None;
        if is_refusal(&error) {
            tokio::spawn(deliver_refused(address.to_owned(), topic, request, error));
            return;
        }
        if began.elapsed() > RETRY_FOR {
            log::warn!("event {topic} is dropped, containerd did not accept it: {error}");
            return;
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn deliver_refused(
    address: String,
    topic: String,
    request: ForwardRequest,
    mut error: ttrpc::Error,
) {
    let (began, mut containerd) = (Instant::now(), None);
    while began.elapsed() < REFUSED_FOR {
        tokio::time::sleep(RETRY_INTERVAL).await;
        match forward(&address, &mut containerd, &request).await {
            Ok(()) => return,
            Err(again) => error = again,
        }
        containerd = None;
    }
    log::warn!("event {topic} is dropped, containerd refuses it: {error}");
}

/// Returns whether containerd refuses the event. Other errors mean that it is down, or does not
/// answer.
fn is_refusal(error: &ttrpc::Error) -> bool {
    let ttrpc::Error::RpcStatus(status) = error else {
        return false;
    };
    matches!(
        status.code(),
        Code::INVALID_ARGUMENT
            | Code::FAILED_PRECONDITION
            | Code::NOT_FOUND
            | Code::PERMISSION_DENIED
            | Code::UNIMPLEMENTED
    )
}

async fn forward(
    address: &str,
    containerd: &mut Option<EventsClient>,
    request: &ForwardRequest,
) -> ttrpc::Result<()> {
    let client = match containerd {
        Some(client) => client,
        None => {
            let address = format!("unix://{}", address.trim_start_matches("unix://"));
            let client = Client::connect(&address).await?;
            containerd.insert(EventsClient::new(client))
        }
    };
    let nanoseconds = i64::try_from(SEND_TIMEOUT.as_nanos()).unwrap_or(i64::MAX);
    let taken = client
        .forward(context::with_timeout(nanoseconds), request)
        .await;
    taken.map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;
    use containerd_shim::protos::events::task::{TaskOOM, TaskPaused};
    use containerd_shim::protos::protobuf::well_known_types::empty::Empty;
    use containerd_shim::protos::shim_async::{Events, create_events};
    use containerd_shim::protos::ttrpc::asynchronous::{Server, TtrpcContext};

    use super::*;

    /// A containerd that refuses events about memory.
    struct Containerd(Arc<Mutex<Vec<String>>>);

    #[async_trait]
    impl Events for Containerd {
        async fn forward(&self, _: &TtrpcContext, request: ForwardRequest) -> ttrpc::Result<Empty> {
            let topic = request.envelope.topic.clone();
            let is_refused = topic == "/tasks/oom";
            self.0.lock().unwrap().push(topic);
            match is_refused {
                true => Err(ttrpc::Error::RpcStatus(ttrpc::get_status(
                    Code::INVALID_ARGUMENT,
                    "no",
                ))),
                false => Ok(Empty::default()),
            }
        }
    }

    #[tokio::test]
    async fn a_refused_event_does_not_hold_up_others() {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("unix://{}/socket", directory.path().display());
        let topics = Arc::default();
        let mut server = Server::new()
            .bind(&address)
            .unwrap()
            .register_service(create_events(Arc::new(Containerd(Arc::clone(&topics)))));
        server.start().await.unwrap();
        let publisher = Publisher::start(address, "default".to_owned());
        publisher.publish(TaskOOM::default());
        publisher.publish(TaskPaused::default());
        publisher.flush(Duration::from_secs(60)).await;
        let mut topics = topics.lock().unwrap().clone();
        // The refused event is sent again every 200 ms, which may have passed.
        topics.dedup();
        topics.truncate(2);
        assert_eq!(topics, ["/tasks/oom", "/tasks/paused"]);
        server.shutdown().await.unwrap();
    }
}
