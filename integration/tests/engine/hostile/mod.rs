//! Containers that fight back: programs (`integration/workloads/hostile`) that do what they can
//! while they are inspected, checkpointed, suspended and restored.
//!
//! Whatever they do, each operation ends, and reports its outcome truthfully and by name; a
//! container beside them counts on; and once they are gone nothing is left of them.

/// Tests on one kind of host each, which endures a container's trick with so much harm.
macro_rules! endured {
    ($($(#[$about:meta])* fn $test:ident($kind:ident, $trick:literal, $harm:ident);)+) => {$(
        $(#[$about])*
        #[test]
        fn $test() -> anyhow::Result<()> {
            let kind = stasis_integration::host::HostKind::$kind()?;
            crate::hostile::endured(kind, $trick, crate::hostile::trial::Harm::$harm)
        }
    )+};
}

mod capabilities;
mod descriptors;
mod images;
mod injected;
mod names;
mod processes;
mod silent_files;
mod trial;
mod unsteady_memory;
mod work_directory;

use anyhow::Result;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

use self::trial::{Harm, Trial};

/// Checks that a host of this kind endures a container that plays this trick.
fn endured(kind: HostKind, trick: &str, harm: Harm) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    Trial::start(stasis, trick, harm)?.endures()
}
