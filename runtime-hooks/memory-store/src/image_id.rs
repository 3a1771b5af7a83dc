//! The name of a checkpoint's memory.

use std::fmt;
use std::io;
use std::str::FromStr;

use borsh::{BorshDeserialize, BorshSerialize};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

/// A random number that the index, the packs and the manifest of one checkpoint have in common; 32
/// hexadecimal digits.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    BorshSerialize,
    BorshDeserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct ImageId(u128);

impl ImageId {
    /// Makes an id from 128 random bits.
    #[must_use]
    pub fn new(random: u128) -> Self {
        Self(random)
    }

    /// Makes a new id.
    pub fn random() -> io::Result<Self> {
        let mut random = [0_u8; 16];
        let filled = getrandom(&mut random[..], GetRandomFlags::empty())?;
        // getrandom(2) returns up to 256 bytes whole.
        if filled < random.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Self::new(u128::from_ne_bytes(random)))
    }
}

/// The text does not have 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an image id has 32 hexadecimal digits")]
pub struct NoImageId;

impl FromStr for ImageId {
    type Err = NoImageId;

    fn from_str(text: &str) -> Result<Self, NoImageId> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return Err(NoImageId);
        }
        u128::from_str_radix(text, 16)
            .map(Self)
            .map_err(|_| NoImageId)
    }
}

impl TryFrom<String> for ImageId {
    type Error = NoImageId;

    fn try_from(text: String) -> Result<Self, NoImageId> {
        text.parse()
    }
}

impl From<ImageId> for String {
    fn from(id: ImageId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_not_repeated_and_read_as_written() {
        let ids = [ImageId::random().unwrap(), ImageId::random().unwrap()];
        assert_ne!(ids[0], ids[1]);
        assert_eq!(ids[0].to_string().parse(), Ok(ids[0]));
    }
}
