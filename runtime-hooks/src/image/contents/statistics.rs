//! What CRIU measured of its dump: `stats-dump` (CRIU's images/stats.proto). It is beside the image
//! where the caller gave no work directory.

use prost::Message;
use serde::Serialize;

use super::{ContentsError, Files};
use crate::image::criu_file::{Entries, SERVICE_MAGIC};

const FILE: &str = "stats-dump";
/// `STATS_MAGIC` (criu/include/magic.h).
const STATS_MAGIC: u32 = 0x5709_3306;

/// What CRIU measured of a dump.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Statistics {
    /// Until all processes stood still.
    pub(crate) freezing_seconds: f64,
    /// For how long they did.
    pub(crate) frozen_seconds: f64,
    pub(crate) memory_dump_seconds: f64,
    pub(crate) memory_write_seconds: f64,
    pub(crate) pages_scanned: u64,
    pub(crate) pages_written: u64,
}

/// `stats_entry`, as far as it is needed.
#[derive(Message)]
struct StatsEntry {
    #[prost(message, optional, tag = "1")]
    dump: Option<DumpStats>,
}

/// `dump_stats_entry`, as far as it is needed; times in microseconds.
#[derive(Message)]
struct DumpStats {
    #[prost(uint32, required, tag = "1")]
    freezing: u32,
    #[prost(uint32, required, tag = "2")]
    frozen: u32,
    #[prost(uint32, required, tag = "3")]
    memory_dump: u32,
    #[prost(uint32, required, tag = "4")]
    memory_write: u32,
    #[prost(uint64, required, tag = "5")]
    scanned: u64,
    #[prost(uint64, required, tag = "7")]
    written: u64,
}

pub(super) fn read(files: &Files) -> Result<Option<Statistics>, ContentsError> {
    let Some(bytes) = files.read(FILE)? else {
        return Ok(None);
    };
    let entries = Entries::<StatsEntry>::with(&bytes, SERVICE_MAGIC, STATS_MAGIC);
    let first = entries.and_then(|mut entries| entries.next().transpose());
    let stats = first.map_err(|what| files.malformed(FILE, what))?;
    Ok(stats
        .and_then(|stats| stats.dump)
        .as_ref()
        .map(Statistics::of))
}

impl Statistics {
    fn of(dump: &DumpStats) -> Self {
        let seconds = |microseconds: u32| f64::from(microseconds) / 1e6;
        Self {
            freezing_seconds: seconds(dump.freezing),
            frozen_seconds: seconds(dump.frozen),
            memory_dump_seconds: seconds(dump.memory_dump),
            memory_write_seconds: seconds(dump.memory_write),
            pages_scanned: dump.scanned,
            pages_written: dump.written,
        }
    }
}

#[cfg(fuzzing)]
pub(super) fn fuzz(bytes: &[u8]) {
    crate::image::criu_file::fuzz::<StatsEntry>(bytes, STATS_MAGIC);
}
