//! The userfaultfd daemon: it gives tasks their memory back if CRIU does not live to do it.
//!
//! The kernel lets tasks run when their tracer is killed. So before a page is freed, it is
//! registered with a userfaultfd of its task, which makes threads wait for missing pages. A process
//! that we fork, the daemon, holds that userfaultfd as well, and reads from a socket where each
//! chunk is stored. When CRIU is gone and tasks are alive (it was killed, or it let them go
//! although the dump was to end them), the daemon gives them their memory. It ends when the tasks
//! have ended, or when CRIU says that it has given all of it: then the daemon only releases what is
//! still registered.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::prctl::set_name;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, setsid};
use stasis_linux::cgroup::{Cgroup, FreezerState};
use stasis_linux::error_chain;
use stasis_memory_store::{Chunk, DumpRequest, Writer};
use stasis_remote_call::{Proxy, ProxyRemains};

use crate::dump::fork::{end_process, fork};
use crate::dump::give_back::{give_back, release};
use crate::dump::source::{Piece, Source};
use crate::engine::report;
use crate::engine::request::{self, threads};
use crate::error::{Error, caught};
use crate::fault_injection::{self, Point};
use crate::refill::Target;
use crate::tasks::tree::is_alive;
use crate::uffd::Userfaultfd;

/// How often a daemon that could not help checks whether tasks still wait.
const POLL: Duration = Duration::from_secs(1);
/// The line that says that all memory is back.
const GIVEN: &str = "given";

/// CRIU's side: the userfaultfds, and the socket to the daemon.
#[derive(Debug)]
pub(crate) struct UffdDaemon {
    /// One per source.
    memory: Vec<Userfaultfd>,
    control: UnixStream,
}

impl UffdDaemon {
    /// Starts the daemon. No other thread may run yet (see [`fork`]), and all packs must be open.
    pub(crate) fn start(
        sources: &[Source],
        memory: Vec<Userfaultfd>,
        proxies: &[Proxy],
        writer: &Writer,
        request: &DumpRequest,
    ) -> Result<Self, Error> {
        let failed = |source| Error::UffdDaemon { source };
        let (control, theirs) = UnixStream::pair().map_err(failed)?;
        let remains: Vec<_> = proxies.iter().map(Proxy::remains).collect();
        let held = request::hold();
        match fork().map_err(failed)? {
            ForkResult::Parent { child } => {
                // The process in between ends at once, so the daemon is no child of CRIU's, which
                // waits for all of its children.
                let _ = waitpid(child, None);
                Ok(Self { memory, control })
            }
            ForkResult::Child => {
                if matches!(fork(), Ok(ForkResult::Child)) {
                    drop(control);
                    // It must not return into CRIU's code.
                    let given = caught(|| {
                        let given = run(sources, &memory, &remains, &theirs, writer);
                        clear(&remains);
                        given
                    });
                    if let Err(error) = given {
                        report::amend(request.report.as_deref(), |report| {
                            report.not_returned = Some(error_chain(&error));
                        });
                        drop(held);
                        wait_for_exit(sources);
                    }
                }
                end_process()
            }
        }
    }

    /// Sends where a piece is stored; to be called before the piece is freed.
    pub(crate) fn tell(&mut self, piece: Piece, chunk: Option<&Chunk>) -> Result<(), Error> {
        let Some(chunk) = chunk else { return Ok(()) };
        let told = serde_json::to_vec(&(piece, chunk)).map_err(io::Error::from);
        let send = |mut line: Vec<u8>| {
            line.push(b'\n');
            self.control.write_all(&line)
        };
        told.and_then(send)
            .map_err(|source| Error::UffdDaemon { source })
    }

    /// The userfaultfds, one per source.
    pub(crate) fn memory(&self) -> &[Userfaultfd] {
        &self.memory
    }

    /// Says that all tasks have their memory back. To be called before the first page is released:
    /// what a task does with its memory after that must not be undone by giving it once more.
    pub(crate) fn all_given(&self) {
        // If the daemon is not told, it gives everything again, but for what is released.
        let _ = (&self.control).write_all(format!("{GIVEN}\n").as_bytes());
    }
}

/// The daemon's life. An error means that tasks still lack memory.
fn run(
    sources: &[Source],
    memory: &[Userfaultfd],
    proxies: &[ProxyRemains],
    control: &UnixStream,
    writer: &Writer,
) -> Result<(), Error> {
    fault_injection::disarm();
    let _ = setsid();
    let _ = set_name(c"stasis-uffd");
    // The OOM killer should end it last, together with CRIU.
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
    close_connections(memory, control);
    let mut stored: Vec<(Piece, Chunk)> = Vec::new();
    for line in BufReader::new(control).lines().map_while(Result::ok) {
        if line == GIVEN {
            return release_all(sources, memory);
        }
        // If CRIU was killed, the last line may be incomplete; that piece has not been freed.
        if let Ok(told) = serde_json::from_str(&line) {
            stored.push(told);
        }
    }
    let alive: Vec<_> = sources
        .iter()
        .map(|source| is_alive(source.task.pid))
        .collect();
    if !alive.contains(&true) {
        return Ok(());
    }
    wait_for_end(proxies)?;
    // The tasks are frozen meanwhile: without privileges, a system call that touches a missing page
    // fails instead of waiting, and a child that is forked now would find zeros.
    let frozen = freeze(sources);
    let given = give_all(sources, memory, &stored, &alive, writer);
    for cgroup in frozen {
        let _ = cgroup.request(FreezerState::Thawed);
    }
    match given {
        Err(_) if sources.iter().all(|source| !is_alive(source.task.pid)) => Ok(()),
        given => given,
    }
}

/// The kernel kills the proxies with CRIU, but finishes the madvise(2) that one is in. What that
/// call frees after we gave it would be lost. It comes before the freezer, since a frozen cgroup of
/// version 1 keeps killed processes.
fn wait_for_end(proxies: &[ProxyRemains]) -> Result<(), Error> {
    for proxy in proxies {
        proxy
            .wait_for_end()
            .map_err(|source| Error::UffdDaemon { source })?;
    }
    Ok(())
}

/// Reaps the proxies, which CRIU has ended unless it was killed.
fn clear(remains: &[ProxyRemains]) {
    for one in remains {
        // A zombie that nobody waits for does no harm.
        let _ = one.clear();
    }
}

/// A task that waits for ever is better than one that finds zeros: while we live, and hold the
/// userfaultfd, missing pages are waited for.
fn wait_for_exit(sources: &[Source]) {
    while sources.iter().any(|source| is_alive(source.task.pid)) {
        sleep(POLL);
    }
}

/// Freezes the cgroups of these processes that are not frozen, and returns what it froze. Our own
/// cgroup is left alone. Nobody waits until they are frozen: a task whose system call waits for
/// missing memory stands still only after it has that memory.
fn freeze(sources: &[Source]) -> Vec<Cgroup> {
    let own = freezer_of(std::process::id().cast_signed());
    let mut frozen: Vec<Cgroup> = Vec::new();
    for source in sources {
        if let Some(cgroup) = freezer_of(source.task.pid)
            && Some(&cgroup) != own.as_ref()
            && matches!(cgroup.freezer_state(), Ok(FreezerState::Thawed))
            && cgroup.request(FreezerState::Frozen).is_ok()
        {
            frozen.push(cgroup);
        }
    }
    frozen
}

/// CRIU freezes by version 1 where both versions have a freezer (criu/seize.c).
fn freezer_of(pid: i32) -> Option<Cgroup> {
    Cgroup::freezers_of(pid).ok()?.into_iter().next()
}

fn give_all(
    sources: &[Source],
    memory: &[Userfaultfd],
    stored: &[(Piece, Chunk)],
    alive: &[bool],
    writer: &Writer,
) -> Result<(), Error> {
    let targets: Vec<_> = stored
        .iter()
        .filter(|(piece, _)| alive[piece.source])
        .map(|(piece, chunk)| Target {
            pid: sources[piece.source].task.pid,
            pid_inside: sources[piece.source].task.pid_inside,
            area: sources[piece.source].areas[piece.area].start,
            chunk,
            memory: Some(&memory[piece.source]),
        })
        .collect();
    fault_injection::point(Point::Daemon)?;
    give_back(
        sources,
        memory,
        &targets,
        &writer.reader(),
        threads(),
        || {},
    )
}

fn release_all(sources: &[Source], memory: &[Userfaultfd]) -> Result<(), Error> {
    let mut each = sources.iter().zip(memory);
    each.try_for_each(|(source, memory)| release(source, memory, &[]))
}

/// Closes CRIU's sockets and pipes: runc and the engine wait for their other ends to close.
fn close_connections(memory: &[Userfaultfd], control: &UnixStream) {
    let ours: Vec<i32> = memory
        .iter()
        .map(Userfaultfd::as_raw_fd)
        .chain([control.as_raw_fd()])
        .collect();
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return;
    };
    let numbers: Vec<i32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers {
        let target = fs::read_link(format!("/proc/self/fd/{number}")).unwrap_or_default();
        // Files and directories stay open: nobody waits for them, and packs are among them.
        if !target.is_absolute() && !ours.contains(&number) || number <= 2 {
            let _ = nix::unistd::close(number);
        }
    }
}
