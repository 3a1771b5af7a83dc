//! Checksums of contents.

use borsh::{BorshDeserialize, BorshSerialize};
use twox_hash::XxHash3_128;

/// A checksum of contents. As it is not cryptographic, it finds damage and equal contents, and is
/// no proof against forgery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, BorshSerialize, BorshDeserialize)]
pub struct Checksum(pub u128);

impl Checksum {
    /// Checksums contents by XXH3, 128 bits, the fastest that was measured.
    #[must_use]
    pub fn of(contents: &[u8]) -> Self {
        Self(XxHash3_128::oneshot(contents))
    }

    /// Checksums contents that lie in several places, as if they lay one after the other.
    pub(crate) fn of_parts(parts: &[&[u8]]) -> Self {
        if let [whole] = parts {
            return Self::of(whole);
        }
        let mut sum = XxHash3_128::new();
        parts.iter().for_each(|part| sum.write(part));
        Self(sum.finish_128())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_same_for_all_parts(
            content in proptest::collection::vec(any::<u8>(), 0..5000),
            cut in any::<prop::sample::Index>(),
            again in any::<prop::sample::Index>(),
        ) {
            let (start, rest) = content.split_at(cut.index(content.len() + 1));
            let (middle, end) = rest.split_at(again.index(rest.len() + 1));
            prop_assert_eq!(Checksum::of_parts(&[start, middle, end]), Checksum::of(&content));
        }
    }
}
