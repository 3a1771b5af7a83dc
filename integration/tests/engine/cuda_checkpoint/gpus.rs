//! A GPU without room, and another GPU.

use anyhow::Result;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

use super::{fails, pid, succeeds};

/// A limit leaves no room in host memory, and another container leaves none on the GPU.
pub(crate) fn a_suspended_container_is_not_lost_for_want_of_room(
    stasis: &StasisHost,
) -> Result<()> {
    needs!(StandIn);
    stasis.inject("memory 400")?;
    let memory = Bundle::make(stasis, "suspended", &["/bin/memcheck", "64", "10205"])?;
    if stasis.path("/sys/fs/cgroup/memory").exists() {
        memory.limit_memory(128 << 20)?;
    }
    memory.comes_up(10205, "ok 0")?;
    let toggle = ["--toggle", "--container", "suspended", "--root", ROOT];
    succeeds(stasis, &toggle)?;
    let hog = Bundle::make(stasis, "hog", &["/bin/memcheck", "250", "10206"])?;
    hog.comes_up(10206, "ok 0")?;
    fails(stasis, &toggle, &["MiB free", "nothing was done"])?;
    hog.delete()?;
    succeeds(stasis, &toggle)?;
    assert_eq!(stasis.ask(10205)?.as_deref(), Some("ok 1"));
    assert_eq!(stasis.records()?, "", "nothing is left to put right");
    memory.delete()?;
    stasis.inject("")
}

pub(crate) fn another_gpu_takes_the_place(stasis: &StasisHost) -> Result<()> {
    needs!(StandIn);
    stasis.inject("gpus 2")?;
    let memory = Bundle::make(stasis, "moved", &["/bin/memcheck", "16", "10204"])?;
    memory.give(&[0, 1])?;
    memory.comes_up(10204, "ok 0")?;
    let pid = pid(&memory)?;
    let uuid = |gpu| format!("GPU-57415349-5300-4000-8000-00000000000{gpu}");
    let (first, second) = (uuid(1), uuid(2));
    let restore = |map: &str| -> Vec<String> {
        ["--action", "restore", "--pid", &pid, "--device-map", map]
            .map(str::to_owned)
            .to_vec()
    };
    succeeds(stasis, &["--toggle", "--pid", &pid])?;
    let incomplete = restore(&format!("{first}={second}"));
    let incomplete: Vec<&str> = incomplete.iter().map(String::as_str).collect();
    fails(
        stasis,
        &incomplete,
        &["(1)", "it is checkpointed now", "every GPU"],
    )?;
    let complete = restore(&format!("{first}={second},{second}={first}"));
    let complete: Vec<&str> = complete.iter().map(String::as_str).collect();
    succeeds(stasis, &complete)?;
    succeeds(stasis, &["--action", "unlock", "--pid", &pid])?;
    assert_eq!(stasis.ask(10204)?.as_deref(), Some("ok 1"));
    a_container_with_an_incomplete_map_stays_suspended(stasis, &format!("{first}={second}"))?;
    memory.delete()?;
    stasis.inject("")
}

/// Its own GPU may be full by now, and a restore there would lose it.
fn a_container_with_an_incomplete_map_stays_suspended(
    stasis: &StasisHost,
    map: &str,
) -> Result<()> {
    let toggle = ["--toggle", "--container", "moved", "--root", ROOT];
    succeeds(stasis, &toggle)?;
    let mapped = [&toggle[..], &["--device-map", map]].concat();
    for _ in 1..=2 {
        fails(
            stasis,
            &mapped,
            &["(1)", "nothing was done", "state=unharmed"],
        )?;
        assert!(stasis.is_silent(10204)?, "it was resumed");
    }
    succeeds(stasis, &toggle)?;
    // It answers the two packets of the meantime first.
    assert_eq!(stasis.ask(10204)?.as_deref(), Some("ok 4"));
    assert_eq!(stasis.records()?, "", "nothing is left to put right");
    Ok(())
}
