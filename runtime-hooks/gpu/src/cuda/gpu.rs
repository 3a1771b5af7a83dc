//! The identity of a GPU, and the map of GPUs that a restore gives to the driver.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// The identity of a GPU (`CUuuid`), written as NVML and nvidia-smi write it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuUuid([u8; 16]);

impl GpuUuid {
    /// The UUID of these bytes, in the order in which the driver keeps them.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes as the driver keeps them.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", u128::from_be_bytes(self.0));
        let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]);
        write!(f, "GPU-{}", groups.join("-"))
    }
}

impl fmt::Debug for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a GPU UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a GPU UUID (GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx)")]
pub struct InvalidGpuUuid(String);

impl FromStr for GpuUuid {
    type Err = InvalidGpuUuid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidGpuUuid(text.chars().take(64).collect());
        let groups = text.strip_prefix("GPU-").ok_or_else(invalid)?.split('-');
        let groups: Vec<&str> = groups.collect();
        if !groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) {
            return Err(invalid());
        }
        let number = u128::from_str_radix(&groups.concat(), 16).map_err(|_| invalid())?;
        Ok(Self(number.to_be_bytes()))
    }
}

impl serde::Serialize for GpuUuid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for GpuUuid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Maps old to new GPUs at restore. An empty map returns every process to its old GPUs. Any other
/// map must name every GPU that the driver recorded for the process at `cuInit`, moved or not, used
/// or not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuMap {
    pairs: Vec<(GpuUuid, GpuUuid)>,
    others: Vec<(GpuUuid, GpuUuid)>,
}

impl GpuMap {
    /// The empty map: every process returns to its old GPUs.
    #[must_use]
    pub fn identity() -> Self {
        Self::default()
    }

    /// A map of (old, new) pairs.
    #[must_use]
    pub fn new(pairs: Vec<(GpuUuid, GpuUuid)>) -> Self {
        let others = Vec::new();
        Self { pairs, others }
    }

    /// The same map with pairs for GPUs that the driver may have recorded. They are added if the
    /// driver refuses the map as incomplete, which leaves the process unchanged (measured on driver
    /// 580.159).
    #[must_use]
    pub fn with_others(self, others: Vec<(GpuUuid, GpuUuid)>) -> Self {
        Self { others, ..self }
    }

    /// The map to try after the driver refused the pairs as incomplete; `None` if there is no more.
    #[must_use]
    pub fn widened(&self) -> Option<Self> {
        let all = self.pairs.iter().chain(&self.others).copied().collect();
        (!self.pairs.is_empty() && !self.others.is_empty()).then(|| Self::new(all))
    }

    /// The (old, new) pairs.
    pub fn pairs(&self) -> &[(GpuUuid, GpuUuid)] {
        &self.pairs
    }
}
