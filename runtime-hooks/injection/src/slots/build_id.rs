//! The build of the driver's library.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest build id. Linkers write 16 or 20 bytes.
const MAX_BYTES: usize = 64;

/// The build of a library (its note NT_GNU_BUILD_ID): 1 to 64 bytes, shown in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildId(Vec<u8>);

impl BuildId {
    /// Returns `None` if the note does not have a build id's length.
    pub(super) fn of_note(bytes: &[u8]) -> Option<Self> {
        (1..=MAX_BYTES)
            .contains(&bytes.len())
            .then(|| Self(bytes.to_vec()))
    }

    fn of_hexadecimal(text: &str) -> Option<Self> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if !rest.is_empty() || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        Self::of_note(&pairs.iter().map(byte).collect::<Option<Vec<_>>>()?)
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for BuildId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BuildId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::of_hexadecimal(&text).ok_or_else(|| D::Error::custom("not a build id"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_is_shown() {
        let id = BuildId::of_note(&[0, 0xab, 0x0c]).unwrap();
        assert_eq!(id.to_string(), "00ab0c");
        let text = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<BuildId>(&text).unwrap(), id);
    }

    /// A build id becomes the name of a file.
    #[test]
    fn what_is_none_is_refused() {
        assert_eq!(BuildId::of_note(&[]), None);
        assert_eq!(BuildId::of_note(&[1; 65]), None);
        for text in ["", "0", "zz", "+1", "../1", "\u{e9}", &"00".repeat(65)] {
            assert_eq!(BuildId::of_hexadecimal(text), None, "{text}");
        }
    }
}
