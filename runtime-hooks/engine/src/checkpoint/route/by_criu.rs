//! GPU contents that go through no file of ours: the driver copies them into memory of their
//! processes, where CRIU dumps them as any other, and a restore takes the same way back.

use std::fmt;

use crate::operation::estimate::seconds_by_criu;

/// How many bytes go this way, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByCriu {
    /// How many.
    pub bytes: u64,
    pub(super) cause: Cause,
}

/// Why they do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The settings say so.
    Path,
    /// The image cannot have holes, for this reason.
    NoHoles(String),
    /// Processes hold less than so many bytes each.
    Little {
        /// Bytes.
        minimum: u64,
    },
    /// A process gets no file, for this reason.
    NoFile(String),
}

impl fmt::Display for ByCriu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = seconds_by_criu(self.bytes).max(0.1);
        write!(
            f,
            "the driver and CRIU move {} MiB of GPU contents, with one thread each, which takes \
             about {seconds:.1} s, and as long at a restore: {}",
            self.bytes.div_ceil(1 << 20),
            self.cause
        )
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path => f.write_str("gpu_checkpoint.path is \"driver\" in the settings"),
            Self::NoHoles(why) | Self::NoFile(why) => f.write_str(why),
            Self::Little { minimum } => write!(
                f,
                "GPU contents below gpu_checkpoint.minimum_mib ({})",
                minimum >> 20
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_and_the_seconds_are_said() {
        let said = |mib: u64, cause| {
            let bytes = mib << 20;
            ByCriu { bytes, cause }.to_string()
        };
        let minimum = 256 << 20;
        assert_eq!(
            said(64, Cause::Little { minimum }),
            "the driver and CRIU move 64 MiB of GPU contents, with one thread each, which takes \
             about 0.1 s, and as long at a restore: GPU contents below gpu_checkpoint.minimum_mib \
             (256)"
        );
        let much = said(8 << 10, Cause::Path);
        assert!(much.contains("about 10.1 s"), "{much}");
        assert!(much.ends_with("gpu_checkpoint.path is \"driver\" in the settings"));
    }
}
