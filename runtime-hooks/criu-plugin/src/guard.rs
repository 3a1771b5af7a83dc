//! Who looks after tasks without their memory if CRIU does not live to.
//!
//! A tracer that is killed lets its tasks run. So before a page is given up, its task has a userfaultfd, which makes whoever touches a missing
//! page wait, and a process of ours that lives on, the *guard*, has it, too, and is told of everything that is stored. When CRIU is
//! gone and tasks are alive, be it that it was killed or that it let them go although the dump was to end them, the guard
//! gives them their memory. It ends with them, or when it is dismissed.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::prctl::set_name;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, setsid};
use stasis_memory_store::{Chunk, DumpOrder, Writer};
use stasis_remote_call::{MemoryProxy, ProxyRemains};

use crate::drain::{Piece, Source};
use crate::error::{Error, caught};
use crate::fault::{self, Point};
use crate::fork::{end_process, fork};
use crate::freezer::Freezer;
use crate::orders::{self, threads};
use crate::progress::Progress;
use crate::refill::{Target, refill};
use crate::tree::is_alive;
use crate::uffd::Userfaultfd;

/// How often a guard that could not help looks whether it is still needed.
const POLL: Duration = Duration::from_secs(1);
/// The line that ends a guard which is not needed any more.
const DISMISSED: &str = "dismissed";

/// Missing pages of the tasks are waited for, and somebody else has them, too.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Of each source.
    memory: Vec<Userfaultfd>,
    control: UnixStream,
}

impl Guard {
    /// Protects all that will be taken, and starts the guard. No thread of ours may run yet, and all packs must be open.
    pub(crate) fn start(
        sources: &[Source],
        proxies: &mut [MemoryProxy],
        writer: &Writer,
        order: &DumpOrder,
    ) -> Result<Self, Error> {
        let memory = protect(sources, proxies)?;
        let failed = |source| Error::Guard { source };
        let (control, theirs) = UnixStream::pair().map_err(failed)?;
        let remains: Vec<_> = proxies.iter().map(MemoryProxy::remains).collect();
        let held = orders::hold();
        match fork().map_err(failed)? {
            ForkResult::Parent { child } => {
                // The one in between ends at once; the guard is nobody's child that CRIU could wonder about.
                let _ = waitpid(child, None);
                Ok(Self { memory, control })
            }
            ForkResult::Child => {
                if matches!(fork(), Ok(ForkResult::Child)) {
                    drop(control);
                    // It must not get back to where CRIU goes on.
                    let given = caught(|| {
                        let given = stand_guard(sources, &memory, &theirs, writer);
                        clear(&remains);
                        given
                    });
                    if let Err(error) = given {
                        orders::tell_more(order.report.as_deref(), |report| {
                            report.not_returned = Some(error.told());
                        });
                        drop(held);
                        outlive(sources);
                    }
                }
                end_process()
            }
        }
    }

    /// Says where a piece is stored; before its task gives it up.
    pub(crate) fn tell(&mut self, piece: Piece, chunk: Option<&Chunk>) -> Result<(), Error> {
        let Some(chunk) = chunk else { return Ok(()) };
        let told = serde_json::to_vec(&(piece, chunk)).map_err(io::Error::from);
        let send = |mut line: Vec<u8>| {
            line.push(b'\n');
            self.control.write_all(&line)
        };
        told.and_then(send)
            .map_err(|source| Error::Guard { source })
    }

    /// The userfaultfds, of each source.
    pub(crate) fn memory(&self) -> &[Userfaultfd] {
        &self.memory
    }

    /// All tasks have their memory again: pages that are still missing are zeros, and nobody has to look after them.
    pub(crate) fn dismiss(mut self, sources: &[Source]) -> Result<(), Error> {
        release(sources, &self.memory)?;
        // It ends as well when this end of the line is closed and the tasks are whole; only later.
        let _ = self.control.write_all(format!("{DISMISSED}\n").as_bytes());
        Ok(())
    }
}

fn protect(sources: &[Source], proxies: &mut [MemoryProxy]) -> Result<Vec<Userfaultfd>, Error> {
    let mut memory = Vec::new();
    for (source, proxy) in sources.iter().zip(proxies) {
        let pid = source.task.pid;
        let own = Userfaultfd::of(proxy).map_err(Error::task("guard the memory of", pid))?;
        for (start, end) in source.ranges() {
            own.protect(start, end)
                .map_err(Error::task("guard the memory of", pid))?;
        }
        memory.push(own);
    }
    Ok(memory)
}

fn release(sources: &[Source], memory: &[Userfaultfd]) -> Result<(), Error> {
    for (source, memory) in sources.iter().zip(memory) {
        for (start, end) in source.ranges() {
            let released = memory.release(start, end);
            released.map_err(Error::task("release the memory of", source.task.pid))?;
        }
    }
    Ok(())
}

/// The guard's life. It fails if tasks lack memory in the end.
fn stand_guard(
    sources: &[Source],
    memory: &[Userfaultfd],
    control: &UnixStream,
    writer: &Writer,
) -> Result<(), Error> {
    fault::disarm();
    let _ = setsid();
    let _ = set_name(c"stasis-guard");
    // With CRIU, it is the last that a machine without memory should end.
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
    close_connections(memory, control);
    let mut stored: Vec<(Piece, Chunk)> = Vec::new();
    for line in BufReader::new(control).lines().map_while(Result::ok) {
        if line == DISMISSED {
            return Ok(());
        }
        // The last line of a CRIU that was killed may be cut off; what it was about has not been given up.
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
    // Held still meanwhile: a system call that touches a missing page may fail where we have no right to make it wait, and a child
    // that is forked now would not be looked after.
    let frozen = freeze(sources);
    let given = give_all(sources, memory, &stored, &alive, writer);
    for freezer in frozen {
        let _ = freezer.thaw();
    }
    match given {
        Err(_) if sources.iter().all(|source| !is_alive(source.task.pid)) => Ok(()),
        given => given,
    }
}

/// CRIU has ended its proxies, unless it was killed.
fn clear(remains: &[ProxyRemains]) {
    for one in remains {
        // A child that is dead and that nobody asks for is a nuisance and no more.
        let _ = one.clear();
    }
}

/// Better that a task waits for ever for what it lacks than that it finds zeros: pages are missed as long as we are here.
fn outlive(sources: &[Source]) {
    while sources.iter().any(|source| is_alive(source.task.pid)) {
        sleep(POLL);
    }
}

/// Freezes all that are not frozen, and gives those that we did.
fn freeze(sources: &[Source]) -> Vec<Freezer> {
    let mut frozen: Vec<Freezer> = Vec::new();
    for source in sources {
        if let Ok(Some(freezer)) = Freezer::of(source.task.pid)
            && matches!(freezer.freeze(), Ok(true))
        {
            frozen.push(freezer);
        }
    }
    frozen
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
    fault::point(Point::Guard)?;
    refill(
        &targets,
        &writer.reader(),
        threads(),
        &Progress::new(None, 0),
    )?;
    for ((source, memory), alive) in sources.iter().zip(memory).zip(alive) {
        if *alive {
            release(std::slice::from_ref(source), std::slice::from_ref(memory))?;
        }
    }
    Ok(())
}

/// Whoever waits for the other end of CRIU's sockets and pipes to close must not wait for us.
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
        // Files and directories hold nobody up, and packs are among them.
        if !target.is_absolute() && !ours.contains(&number) || number <= 2 {
            let _ = nix::unistd::close(number);
        }
    }
}
