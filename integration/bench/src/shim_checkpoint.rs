//! The checkpoint of a container that holds nothing.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use stasis_integration::host::installed::StasisHost;

use crate::figure::{Figure, Sample};
use crate::shims;
use crate::tasks::Api;

const WARM_UPS: usize = 2;
const ROUNDS: usize = 20;

/// The time is taken inside the host, so that entering it is not measured.
const CHECKPOINT: &str = r#"
start=$EPOCHREALTIME
ctr tasks checkpoint --exit --image-path "/images/$1" "$1" >/dev/null || exit 1
end=$EPOCHREALTIME
echo $(( ${end/./} - ${start/./} ))
"#;

/// `ctr tasks checkpoint --exit --image-path` of a container without CUDA that only waits.
///
/// `ctr` pauses the container first. It also makes an image in containerd when the runtime is not
/// named `io.containerd.runc.v2`, which no shim can avoid and which costs ours a millisecond; the
/// time of the shims alone, through the API, is printed as well.
pub(crate) fn shim_checkpoint(screen: &mut dyn Write) -> Result<Figure> {
    let host = shims::stasis_host()?;
    let _containerd = host.containerd()?;
    let api = Api::connect(&host)?;
    let [go, stasis] = shims::in_turns(WARM_UPS, ROUNDS, |runtime, id| {
        let task = api.start(runtime, id, &["/bin/pause"])?;
        let begin = Instant::now();
        task.checkpoint(&format!("/images/{id}"))?;
        let time = begin.elapsed();
        check_image(&host, id)?;
        task.remove()?;
        Ok(time)
    })?;
    let [go, stasis] = [go, stasis].map(Sample::milliseconds);
    let ratio = stasis.median() / go.median();
    writeln!(
        screen,
        "pause and checkpoint through the API: go {go} ms, stasis {stasis} ms, ratio {ratio:.3}"
    )?;
    let [go, stasis] = shims::in_turns(WARM_UPS, ROUNDS, |runtime, id| {
        let task = api.start(runtime, id, &["/bin/pause"])?;
        let text = host.run_for_text(&["bash", "-c", CHECKPOINT, "checkpoint", id])?;
        check_image(&host, id)?;
        task.remove()?;
        Ok(Duration::from_micros(text.parse()?))
    })?;
    let [go, stasis] = [go, stasis].map(Sample::milliseconds);
    Ok(Figure::ratio(&go, &stasis, "ms", 1.05))
}

/// CRIU writes its inventory last: a checkpoint that left none would be fast for a bad reason.
fn check_image(host: &StasisHost, id: &str) -> Result<()> {
    let image = host.path(format!("/images/{id}"));
    std::fs::metadata(image.join("inventory.img")).context("the checkpoint left no image")?;
    Ok(std::fs::remove_dir_all(image)?)
}
