//! The name of a blob: the SHA-256 of its bytes.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The name of a blob. Registries have to know SHA-256, and need not know another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// The text is no digest that we know.
#[derive(Debug, thiserror::Error)]
#[error("it is not sha256: and 64 of 0-9a-f")]
pub struct NoDigest;

impl Digest {
    /// Computes the digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the hash itself.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the digest without the algorithm's name: the name of its file in a layout.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let hex = text.strip_prefix("sha256:").ok_or(NoDigest)?;
        let mut bytes = [0; 32];
        for (number, byte) in bytes.iter_mut().enumerate() {
            let digits = hex.get(2 * number..2 * number + 2).ok_or(NoDigest)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| NoDigest)?;
        }
        // Capitals are refused: a blob has one name.
        Some(Self(bytes))
            .filter(|digest| digest.hex() == hex)
            .ok_or(NoDigest)
    }
}

impl TryFrom<String> for Digest {
    type Error = NoDigest;

    fn try_from(text: String) -> Result<Self, NoDigest> {
        text.parse()
    }
}

/// Hashes and counts the bytes that pass through it.
#[derive(Debug)]
pub struct Hashed<T> {
    inner: T,
    hasher: Sha256,
    bytes: u64,
}

impl<T> Hashed<T> {
    /// Begins before any byte has passed.
    pub fn new(inner: T) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
            bytes: 0,
        }
    }

    /// Returns the digest and length of the bytes that have passed so far.
    pub fn so_far(&self) -> (Digest, u64) {
        (Digest(self.hasher.clone().finalize().into()), self.bytes)
    }

    /// Goes on with another reader or writer after the bytes that have passed.
    pub fn with<U>(self, inner: U) -> Hashed<U> {
        Hashed {
            inner,
            hasher: self.hasher,
            bytes: self.bytes,
        }
    }

    /// Returns the digest and length of the bytes that have passed, and the reader or writer.
    pub fn end(self) -> (Digest, u64, T) {
        (
            Digest(self.hasher.finalize().into()),
            self.bytes,
            self.inner,
        )
    }

    fn passed(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<T: Write> Write for Hashed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.passed(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Hashed<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.passed(&into[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_as_it_is_written_and_has_one_name() {
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let digest: Digest = text.parse().unwrap();
        assert_eq!(digest, Digest::of(b""));
        assert_eq!(digest.to_string(), text);
        for other in [
            "",
            "sha256:",
            &text[..70],
            &format!("{text}0"),
            &text.to_uppercase(),
            &text.replace("e3", "E3"),
            &text.replace("e3", "../"),
            &text.replace("sha256", "sha512"),
        ] {
            assert!(other.parse::<Digest>().is_err(), "{other}");
        }
    }

    #[test]
    fn what_passes_is_hashed_and_counted() {
        let mut writer = Hashed::new(Vec::new());
        writer.write_all(b"some").unwrap();
        assert_eq!(writer.so_far(), (Digest::of(b"some"), 4));
        writer.write_all(b" bytes").unwrap();
        let (digest, bytes, written) = writer.end();
        assert_eq!((digest, bytes), (Digest::of(b"some bytes"), 10));
        let mut reader = Hashed::new(written.as_slice());
        io::copy(&mut reader, &mut io::sink()).unwrap();
        assert_eq!(reader.end().0, digest);
        let mut one = Hashed::new(&b"some"[..]);
        io::copy(&mut one, &mut io::sink()).unwrap();
        let mut other = one.with(&b" bytes"[..]);
        io::copy(&mut other, &mut io::sink()).unwrap();
        assert_eq!(other.so_far(), (digest, 10));
    }
}
