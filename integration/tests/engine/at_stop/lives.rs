//! The images that are kept of a job's lives.

use anyhow::Result;
use serde_json::Value;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::saved_at_stop::SETTINGS;
use stasis_integration::host::installed::StasisHost;

use super::{begin, ended, images, notes};

/// The cold start was not asked for: for a while, the settings do not allow the image.
pub(super) fn a_life_that_began_cold_takes_nothing_from_the_one_before(
    stasis: &StasisHost,
    job: &Bundle<'_>,
) -> Result<()> {
    let settings = SETTINGS.replace("keep_at_stop = 2", "keep_at_stop = 1");
    let stopped = |answer: &str, kept: usize| -> Result<()> {
        begin(stasis, job, answer)?;
        job.kill("TERM")?;
        ended(stasis, job)?;
        job.delete()?;
        assert_eq!(notes(stasis)?, Value::Null, "{answer}");
        assert_eq!(images(stasis, "keys/cold")?, kept, "{answer}");
        Ok(())
    };
    stasis.set(&stasis.low_level, &settings)?;
    stopped("101", 1)?;
    stopped("102", 1)?;
    let elsewhere = format!("{settings}restore.images = [\"/srv\"]\n");
    stasis.set(&stasis.low_level, &elsewhere)?;
    stopped("101", 2)?;
    stopped("101", 3)?;
    stasis.set(&stasis.low_level, &settings)?;
    let cold = "cd /images/keys/cold; rm -r $(ls -d *-stop | tail -n 2)";
    stasis.run(&["sh", "-ec", cold])?;
    stopped("103", 2)
}

/// The newest image stays in spite of its time, and the next container begins with it.
pub(super) fn the_clock_was_ahead_at_an_earlier_one(
    stasis: &StasisHost,
    job: &Bundle<'_>,
) -> Result<()> {
    let settings = SETTINGS.replace("keep_at_stop = 2", "keep_at_stop = 1");
    stasis.set(&stasis.low_level, &settings)?;
    let stopped = |answer: &str| -> Result<()> {
        begin(stasis, job, answer)?;
        job.kill("TERM")?;
        ended(stasis, job)?;
        job.delete()?;
        assert_eq!(notes(stasis)?, Value::Null, "{answer}");
        assert_eq!(images(stasis, "keys/clock")?, 1, "{answer}");
        Ok(())
    };
    stopped("101")?;
    let ahead = "cd /images/keys/clock; mv *-stop 2099-01-01T00:00:00.000Z-stop";
    stasis.run(&["sh", "-ec", ahead])?;
    stopped("102")?;
    // An image that another program has put there is not removed by a stop.
    let copied = "cd /images/keys/clock; mv *-stop 2199-01-01T00:00:00Z";
    stasis.run(&["sh", "-ec", copied])?;
    begin(stasis, job, "103")?;
    job.kill("TERM")?;
    ended(stasis, job)?;
    job.delete()?;
    assert_eq!(notes(stasis)?, Value::Null);
    assert_eq!(images(stasis, "keys/clock")?, 2);
    begin(stasis, job, "104")?;
    job.kill("KILL")?;
    job.delete()
}
