//! Faults for tests: debug builds fail, panic or are killed at the points that
//! `STASIS_MEMORY_FAULT` names. Release builds ignore it.
//!
//! `POINT:N:KIND`: the Nth time (from 1) that the point is passed; KIND is `error`, `panic`, `kill`
//! or `stop`, which is no fault if the process is resumed. Several faults are separated by commas.

use crate::error::Error;

/// Where a fault can happen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Point {
    /// The tree of a dump with holes is stopped.
    Dump,
    /// The tasks of a restore are complete, and stopped.
    Restore,
}

#[cfg(not(debug_assertions))]
#[allow(clippy::unnecessary_wraps)] // debug builds may fail here
pub(crate) fn point(_: Point) -> Result<(), Error> {
    Ok(())
}

#[cfg(debug_assertions)]
pub(crate) use debug::point;

#[cfg(debug_assertions)]
mod debug {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use nix::sys::signal::{Signal, raise};

    use super::{Error, Point};

    struct Fault {
        point: String,
        /// How often the point is still passed without a fault.
        left: AtomicU32,
        kind: String,
    }

    pub(crate) fn point(point: Point) -> Result<(), Error> {
        static FAULTS: OnceLock<Vec<Fault>> = OnceLock::new();
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
