//! Random faults until N have fired: `make campaign N=2000 [SEED=1] [JOBS=2] [MINUTES=60]
//! [HOSTS="sid_v2 trixie"] [WORKLOAD=forker] [ROOM=short]`. No sequence is begun after MINUTES
//! minutes. With `WORKLOAD` all containers run this program. With `IMAGES=1` faults are aimed at
//! directories of images, and each container has one for all of its images. With `STOPS=1` the
//! containers are saved at their stops, and the next ones begin with that. The GPU is too small
//! for all in every third sequence, and with `ROOM=short` in all. With `KEEP=1` the host of a
//! sequence that failed stays until it is interrupted.

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use stasis_integration::campaign::chance::Victims;
use stasis_integration::campaign::run::{Extent, run};
use stasis_integration::campaign::sequence::hosts;
use stasis_integration::check::ended::ended;
use stasis_integration::check::seed::number;
use stasis_integration::host::HostKind;

/// A week: as long as it takes.
const MINUTES: u64 = 7 * 24 * 60;

fn main() -> ExitCode {
    ended(as_asked())
}

fn as_asked() -> Result<()> {
    let named = env::var("HOSTS").unwrap_or_default();
    let named: Result<Vec<_>> = named.split_whitespace().map(HostKind::named).collect();
    let named = named?;
    run(&Extent {
        faults: number("N", 50)?.try_into()?,
        seed: number("SEED", 1)?,
        jobs: number("JOBS", 1)?.try_into()?,
        kinds: if named.is_empty() { hosts()? } else { named },
        victims: match (env::var_os("IMAGES"), env::var_os("STOPS")) {
            (Some(_), _) => Victims::Images,
            (_, Some(_)) => Victims::Stops,
            _ => Victims::Movers,
        },
        time: Duration::from_mins(number("MINUTES", MINUTES)?),
    })
}
