//! The shim itself: a process that serves a group's tasks as long as they exist.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use containerd_shim::Flags;
use containerd_shim::logger::FifoLogger;
use containerd_shim::protos::shim_async::create_task;
use containerd_shim::protos::ttrpc::r#async::{Server, Service as TtrpcService};
use containerd_shim::protos::ttrpc::asynchronous::transport::Listener;
use rustix::fs::OFlags;
use rustix::process::{Pid, set_child_subreaper};
use stasis_linux::open_files::raise_limit;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::child::reaper::Reaper;
use crate::containerd::events::Publisher;
use crate::service::Service;
use crate::task::ShimContext;

/// containerd's socket for events. containerd sets this variable for `start`, which passes it on.
pub(crate) const TTRPC_ADDRESS: &str = "TTRPC_ADDRESS";

/// Services that other shims have, and containerd may look for.
const NOT_HERE: [&str; 2] = [
    "containerd.runtime.sandbox.v1.Sandbox",
    "containerd.services.streaming.v1.Streaming",
];

/// How long the last events may take to be sent.
const LAST_EVENTS: Duration = Duration::from_secs(2);
/// How long the last responses may take to be sent.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// The same at a signal: a Wait for a task that runs on is not answered.
const ANSWERS_AT_SIGNAL: Duration = Duration::from_millis(100);

/// Serves the tasks of a shim until the last one is deleted. The listening socket is standard
/// input, where `start` has put it.
pub(crate) async fn serve(flags: &Flags) -> io::Result<()> {
    let socket = take_socket()?;
    // Taken from the socket now: in a pod, the first container's bundle may be gone at the end.
    let path = socket.local_addr()?.as_pathname().map(Path::to_owned);
    // The container's init process becomes our child when the low-level runtime ends.
    set_child_subreaper(Some(Pid::INIT))?;
    log_to_containerd(flags);
    // An exec with its three streams costs nine, and systemd's default is 1024 for all of a pod.
    raise_limit();
    let reaper = Arc::new(Reaper::default());
    tokio::spawn(reap(Arc::clone(&reaper))?);
    let address = std::env::var(TTRPC_ADDRESS).map_err(io::Error::other)?;
    let events = Publisher::start(address, flags.namespace.clone());
    let context = ShimContext {
        namespace: flags.namespace.clone(),
        reaper,
        events: events.clone(),
    };
    let shutdown = Arc::new(Notify::new());
    let service = Arc::new(Service::new(context, Arc::clone(&shutdown)));
    let mut server = Server::new()
        .add_listener(Listener::try_from(socket)?)
        .register_service(v2_and_v3(&service));
    server.start().await.map_err(io::Error::other)?;
    tokio::spawn(log_tasks_at_signal(Arc::clone(&service))?);
    let answers = wait_for_end(&shutdown, &service).await?;
    events.flush(LAST_EVENTS).await;
    if let Some(path) = path {
        let _ = std::fs::remove_file(path);
    }
    // Sends the response to Shutdown. The kernel closes connections that containerd leaves open
    // when this process ends.
    let _ = tokio::time::timeout(answers, server.shutdown()).await;
    Ok(())
}

/// containerd 2 calls `containerd.task.v3.Task` if the answer of `start` has version 3. 1.6 and
/// 1.7 know only `containerd.task.v2.Task`, which has the same methods and messages.
fn v2_and_v3(service: &Arc<Service>) -> HashMap<String, TtrpcService> {
    let counted = |(name, mut answers): (String, TtrpcService)| {
        answers.methods = service.calls.counted(answers.methods);
        (name, answers)
    };
    let third = create_task(Arc::clone(service) as Arc<_>);
    let second = create_task(Arc::clone(service) as Arc<_>);
    let second = second
        .into_iter()
        .map(|(name, methods)| (name.replace(".v3.", ".v2."), methods));
    let not_here = NOT_HERE.map(|name| (name.to_owned(), no_method()));
    third
        .into_iter()
        .chain(second)
        .map(counted)
        .chain(not_here)
        .collect()
}

/// A service with no method: it answers UNIMPLEMENTED, as containerd's own shim does. For a service
/// that is not registered, the crate answers INVALID_ARGUMENT.
fn no_method() -> TtrpcService {
    TtrpcService {
        methods: HashMap::new(),
        streams: HashMap::new(),
    }
}

fn take_socket() -> io::Result<UnixListener> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let null = OpenOptions::new().read(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(null)?;
    let socket = UnixListener::from(socket);
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Logs to the fifo in the bundle that containerd reads. The fifo is also opened for reading, so
/// that writing works while containerd is down, and without blocking, so that a full fifo does not
/// stop the shim.
fn log_to_containerd(flags: &Flags) {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open("log");
    let Ok(fifo) = opened else { return };
    let level = if flags.debug {
        log::LevelFilter::Debug
    } else {
        log::LevelFilter::Info
    };
    if log::set_boxed_logger(Box::new(FifoLogger::with_file(fifo))).is_ok() {
        log::set_max_level(level);
        // The panic of one call is answered, and the shim goes on; standard error is /dev/null.
        std::panic::set_hook(Box::new(|panic| log::error!("the shim panicked: {panic}")));
    }
}

fn reap(reaper: Arc<Reaper>) -> io::Result<impl Future<Output = ()>> {
    let mut ended = signal(SignalKind::child())?;
    Ok(async move {
        while ended.recv().await.is_some() {
            reaper.reap();
        }
    })
}

/// Logs what the shim does at each SIGUSR1, as containerd's own shim logs its stacks.
fn log_tasks_at_signal(service: Arc<Service>) -> io::Result<impl Future<Output = ()>> {
    let mut asked = signal(SignalKind::user_defined1())?;
    Ok(async move {
        while asked.recv().await.is_some() {
            service.tasks.log();
        }
    })
}

/// Waits for Shutdown, and until every other call is answered; or for SIGTERM or SIGINT. Returns
/// the time that sending the responses may then take.
async fn wait_for_end(shutdown: &Notify, service: &Service) -> io::Result<Duration> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let unused = async {
        loop {
            shutdown.notified().await;
            // Calls end by deadlines of their own, or with their caller's connection.
            service.calls.answered().await;
            // A Create may have come meanwhile.
            if service.tasks.is_unused() {
                break;
            }
        }
    };
    Ok(tokio::select! {
        () = unused => LAST_ANSWERS,
        _ = terminate.recv() => ANSWERS_AT_SIGNAL,
        _ = interrupt.recv() => ANSWERS_AT_SIGNAL,
    })
}
