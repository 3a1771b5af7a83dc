//! Says that a test is left out, past the test harness, which hides what a passed test prints. Unit
//! tests of other crates have this file, too, by its path.

use std::fs::File;
use std::io::{self, Write};

/// Reports on standard error, and in the file `STASIS_LEFT_OUT`: `make test` ends with that.
pub(crate) fn say_left_out(case: &str, why: &str) -> io::Result<()> {
    let line = format!("left out: {case}: {why}\n");
    io::stderr().write_all(line.as_bytes())?;
    if let Some(path) = std::env::var_os("STASIS_LEFT_OUT") {
        let mut file = File::options().create(true).append(true).open(path)?;
        file.write_all(line.as_bytes())?;
    }
    Ok(())
}
