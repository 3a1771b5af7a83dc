//! Random faults until N have fired: `make campaign N=2000 [SEED=1] [JOBS=2]`. With `KEEP=1` the
//! host of a sequence that failed stays until it is interrupted.

use anyhow::Result;
use stasis_integration::campaign::run::{Extent, run};
use stasis_integration::check::seed::number;

fn main() -> Result<()> {
    let extent = Extent {
        faults: number("N", 50)?.try_into()?,
        seed: number("SEED", 1)?,
        jobs: number("JOBS", 1)?.try_into()?,
    };
    run(extent)
}
