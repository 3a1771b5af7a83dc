//! The most descriptors that a process may have, in three processes: a million in one is more than
//! root of a test machine may allow. A process with a hundred thousand is a test of `stasis-linux`.

use anyhow::Result;
use serde_json::json;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

use super::trial::{Harm, Trial};

const MOST: u32 = 19_000;

#[test]
fn sixty_thousand_descriptors() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let allowed = |spec: &mut serde_json::Value| {
        let limit = json!({ "type": "RLIMIT_NOFILE", "hard": MOST, "soft": MOST });
        spec["process"]["rlimits"] = json!([limit]);
    };
    Trial::start_with(stasis, "many-descriptors", Harm::None, allowed)?.endures()
}
