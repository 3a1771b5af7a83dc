//! The checkpoint of a container that holds nothing.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;

use crate::figure::{Figure, Sample};
use crate::shims;
use crate::tasks::Api;

const WARM_UPS: usize = 1;
const ROUNDS: usize = 10;

/// The time is taken inside the host, so that entering it is not measured.
const CHECKPOINT: &str = r#"
start=$EPOCHREALTIME
ctr tasks checkpoint --exit --image-path "/images/$1" "$1" >/dev/null || exit 1
end=$EPOCHREALTIME
echo $(( ${end/./} - ${start/./} ))
"#;

/// `ctr tasks checkpoint --exit --image-path` of a container without CUDA that only waits.
pub(crate) fn shim_checkpoint(_screen: &mut dyn Write) -> Result<Figure> {
    let lab = shims::lab()?;
    let _containerd = lab.containerd()?;
    let api = Api::connect(&lab)?;
    let [go, stasis] = shims::in_turns(WARM_UPS, ROUNDS, |runtime, id| {
        let task = api.start(runtime, id, &["/bin/pause"])?;
        let text = lab
            .host
            .run_for_text(&["bash", "-c", CHECKPOINT, "checkpoint", id])?;
        task.remove()?;
        Ok(Duration::from_micros(text.parse()?))
    })?;
    let [go, stasis] = [go, stasis].map(Sample::milliseconds);
    Ok(Figure::ratio(&go, &stasis, "ms", 1.05))
}
