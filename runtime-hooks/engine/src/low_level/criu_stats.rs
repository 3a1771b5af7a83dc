//! CRIU's own measurement of a dump: `stats-dump` in its work directory (CRIU's
//! images/stats.proto).

use std::path::Path;
use std::time::Duration;

use prost::Message;
use stasis_linux::file;

const FILE_NAME: &str = "stats-dump";
/// One small message.
const MAX_BYTES: u64 = 64 << 10;
/// `IMG_SERVICE_MAGIC` and `STATS_MAGIC` (criu/include/magic.h), in the order of the machine, and
/// the length of the message.
const MAGIC: [u32; 2] = [0x5510_5940, 0x5709_3306];
const HEADER: usize = 12;

/// `stats_entry`, as far as it is needed.
#[derive(Message)]
struct StatsEntry {
    #[prost(message, optional, tag = "1")]
    dump: Option<DumpStatsEntry>,
}

/// `dump_stats_entry`, as far as it is needed.
#[derive(Message)]
struct DumpStatsEntry {
    /// Microseconds, in 32 bits: it begins anew after 71 minutes.
    #[prost(uint32, required, tag = "2")]
    frozen_time: u32,
}

/// How long CRIU kept the processes of its last complete dump stopped; `None` if it does not say.
pub(crate) fn frozen_time(work: &Path) -> Option<Duration> {
    let bytes = file::read(&work.join(FILE_NAME), MAX_BYTES).ok()??;
    let (header, entry) = bytes.split_at_checked(HEADER)?;
    if !header.starts_with(&MAGIC.map(u32::to_ne_bytes).concat()) {
        return None;
    }
    let dump = StatsEntry::decode(entry).ok()?.dump?;
    Some(Duration::from_micros(dump.frozen_time.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frozen_time_is_read() {
        let work = tempfile::tempdir().unwrap();
        let write = |bytes: &[u8]| std::fs::write(work.path().join(FILE_NAME), bytes).unwrap();
        assert_eq!(frozen_time(work.path()), None);
        let frozen_time_us = 1_234_567;
        let entry = StatsEntry {
            dump: Some(DumpStatsEntry {
                frozen_time: frozen_time_us,
            }),
        };
        let entry = entry.encode_to_vec();
        let length = u32::try_from(entry.len()).unwrap();
        let header = [MAGIC[0], MAGIC[1], length].map(u32::to_ne_bytes).concat();
        let whole = [header, entry].concat();
        write(&whole);
        let read = frozen_time(work.path());
        assert_eq!(read, Some(Duration::from_micros(frozen_time_us.into())));
        for cut in [0, 5, 12, whole.len() - 1] {
            write(&whole[..cut]);
            assert_eq!(frozen_time(work.path()), None, "{cut}");
        }
    }
}
