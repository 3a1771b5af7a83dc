//! Each call of the driver gives each of its errors once, on a container that works: the container
//! goes on, and nothing is left.
//! (`cuda/job/tests/every_error.rs` has every error of every call, on a driver of its own.)

use anyhow::{Context, Result, ensure};
use stasis_engine::error::kind::State;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

const PORT: u16 = 10000;
const ID: &str = "faulty";
/// A call, and an error that is documented, was seen, or is unknown.
const ERRORS: [(&str, u32); 14] = [
    ("get-state", 3),
    ("get-state", 201),
    ("get-state", 999),
    ("lock", 1),
    ("lock", 600),
    ("lock", 801),
    ("checkpoint", 2),
    ("checkpoint", 801),
    ("checkpoint", 4711),
    ("restore", 1),
    ("restore", 304),
    ("restore", 800),
    ("unlock", 401),
    ("unlock", 719),
];

on_hosts!(errors_of_each_call: sid_v2);

fn errors_of_each_call(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let job = Bundle::make(stasis, ID, &["/bin/memcheck", "8", "10000"])?;
    job.comes_up(PORT, "ok 0")?;
    for (asked, (call, code)) in (1..).zip(ERRORS) {
        once(stasis, &job, call, code, asked).with_context(|| format!("{call} {code}"))?;
    }
    stasis.inject("")?;
    job.checkpoint("good", &[])?;
    job.restore("good")?;
    ensure!(stasis.ask(PORT)? == Some(format!("ok {}", ERRORS.len() + 1)));
    job.delete()
}

fn once(stasis: &StasisHost, job: &Bundle<'_>, call: &str, code: u32, asked: u32) -> Result<()> {
    stasis.inject(&format!("{call} {ID} error:{code} 1"))?;
    let image = format!("{call}-{code}");
    let result = job.checkpoint(&image, &["--leave-running"]);
    ensure!(stasis.driver_is_called()?, "the driver was not called");
    let failure = job.failure()?;
    wait_until_clear(|| {
        let records = stasis.records()?;
        Ok((!records.is_empty()).then_some(records))
    })?;
    ensure!(
        stasis.ask(PORT)? == Some(format!("ok {asked}")),
        "{failure:?}"
    );
    ensure!(job.status()? == "running", "{failure:?}");
    match result {
        // A step that was repeated has left the low-level runtime's messages in the log.
        Ok(()) => {}
        Err(_) => {
            let failure = failure.context("it reports nothing")?;
            ensure!(failure.state == Some(State::Unharmed), "{failure:?}");
            let has_image = job.image_path(&image).join("inventory.img").exists();
            ensure!(has_image == failure.image_complete, "{failure:?}");
        }
    }
    Ok(())
}
