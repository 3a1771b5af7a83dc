//! Faults at every step of every operation: systematically, one after the other, and at random.

mod sweep;

use std::time::Duration;

use anyhow::Result;
use stasis_integration::campaign::chance::Victims;
use stasis_integration::campaign::run::{Extent, run};
use stasis_integration::campaign::sequence::hosts;
use stasis_integration::check::seed::seed;
use stasis_integration::needs;

/// `make campaign` continues from here.
#[test]
fn fifty_random_faults() -> Result<()> {
    // The processes that move GPU contents are hit by `make campaign`.
    random_faults(50, Victims::Programs)
}

/// `make campaign STOPS=1` continues from here.
#[test]
fn random_faults_in_stops_and_creates() -> Result<()> {
    random_faults(25, Victims::Stops)
}

fn random_faults(faults: u32, victims: Victims) -> Result<()> {
    needs!(StandIn);
    run(&Extent {
        faults,
        seed: seed()?,
        jobs: 1,
        kinds: hosts()?,
        victims,
        time: Duration::MAX,
    })
}
