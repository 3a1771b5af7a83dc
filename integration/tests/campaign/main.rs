//! Faults at every step of every operation: of this kind and that one after the other, and at
//! random.

mod sweep;

use std::time::Duration;

use anyhow::Result;
use stasis_integration::campaign::chance::Victims;
use stasis_integration::campaign::run::{Extent, run};
use stasis_integration::campaign::sequence::hosts;
use stasis_integration::check::seed::seed;
use stasis_integration::needs;

/// `make campaign` goes on from here.
#[test]
fn fifty_random_faults() -> Result<()> {
    needs!(StandIn);
    run(&Extent {
        faults: 50,
        seed: seed()?,
        jobs: 1,
        kinds: hosts()?,
        // Who moves GPU contents is hit by `make campaign`.
        victims: Victims::Programs,
        time: Duration::MAX,
    })
}
