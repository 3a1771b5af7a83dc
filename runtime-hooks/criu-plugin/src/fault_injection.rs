//! Faults for tests: debug builds fail, panic or are killed at the points that
//! `STASIS_MEMORY_FAULT` names. Release builds ignore it.
//!
//! `POINT:N:KIND`: the Nth time (from 1) that the point is passed; KIND is `error`, `panic`, `kill`
//! or `stop`, which is none if somebody lets it go on. Several faults are separated by commas.

use crate::error::Error;

/// Where a fault can happen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Point {
    /// The hook at the first stopped task.
    Take,
    /// A chunk is about to be read.
    Copy,
    /// The memory of stored chunks is about to be freed.
    Empty,
    /// All chunks are stored and their memory freed, and the index is about to be written.
    Finish,
    /// CRIU has ended the dump.
    End,
    /// The hook at the first restored task.
    GiveBack,
    /// A chunk is about to be filled.
    Fill,
    /// Memory that is back is about to be released.
    Release,
    /// The userfaultfd daemon is about to give memory back. It passes no other point.
    Daemon,
}

#[cfg(not(debug_assertions))]
#[allow(clippy::unnecessary_wraps)] // debug builds may fail here
pub(crate) fn point(_: Point) -> Result<(), Error> {
    Ok(())
}

#[cfg(not(debug_assertions))]
pub(crate) fn disarm() {}

#[cfg(debug_assertions)]
pub(crate) use debug::{disarm, point};

#[cfg(debug_assertions)]
mod debug {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use nix::sys::signal::{Signal, raise};

    use super::{Error, Point};

    struct Fault {
        point: String,
        /// How often the point is still passed without a fault.
        left: AtomicU32,
        kind: String,
    }

    static DISARMED: AtomicBool = AtomicBool::new(false);

    /// Disables all faults but [`Point::Daemon`]: this process is the daemon.
    pub(crate) fn disarm() {
        DISARMED.store(true, Ordering::Relaxed);
    }

    pub(crate) fn point(point: Point) -> Result<(), Error> {
        static FAULTS: OnceLock<Vec<Fault>> = OnceLock::new();
        if DISARMED.load(Ordering::Relaxed) && !matches!(point, Point::Daemon) {
            return Ok(());
        }
        let name = format!("{point:?}").to_lowercase();
        for fault in FAULTS.get_or_init(faults) {
            if fault.point == name && fault.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                return fault.happen();
            }
        }
        Ok(())
    }

    impl Fault {
        fn happen(&self) -> Result<(), Error> {
            match self.kind.as_str() {
                "error" => Err(Error::Injected),
                "kill" => {
                    let _ = raise(Signal::SIGKILL);
                    Ok(())
                }
                "stop" => {
                    let _ = raise(Signal::SIGSTOP);
                    Ok(())
                }
                _ => panic!("a fault for a test"),
            }
        }
    }

    fn faults() -> Vec<Fault> {
        let text = std::env::var("STASIS_MEMORY_FAULT").unwrap_or_default();
        text.split(',').filter_map(fault).collect()
    }

    fn fault(text: &str) -> Option<Fault> {
        let mut parts = text.split(':');
        Some(Fault {
            point: parts.next()?.to_owned(),
            left: AtomicU32::new(parts.next()?.parse().ok()?),
            kind: parts.next()?.to_owned(),
        })
    }
}
