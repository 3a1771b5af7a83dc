//! CRIU's files: two magic numbers, then entries, each with its length before it
//! (criu/protobuf.c).

use std::marker::PhantomData;

use prost::Message;

/// `IMG_COMMON_MAGIC` (criu/include/magic.h).
pub(crate) const COMMON_MAGIC: u32 = 0x5456_4319;

/// The entries of a file, one after the other: one at a time is in memory.
#[derive(Debug)]
pub(crate) struct Entries<'b, T> {
    rest: &'b [u8],
    of: PhantomData<T>,
}

impl<'b, T> Entries<'b, T> {
    /// Begins to read the entries of a file.
    ///
    /// # Errors
    /// The problem, if it does not begin with these magic numbers.
    pub(crate) fn of(bytes: &'b [u8], magic: u32) -> Result<Self, String> {
        let mut rest = bytes;
        for expected in [COMMON_MAGIC, magic] {
            let found = number(&mut rest)?;
            if found != expected {
                return Err(format!("it has the magic {found:#x}, not {expected:#x}"));
            }
        }
        Ok(Self {
            rest,
            of: PhantomData,
        })
    }

    fn take(&mut self) -> Result<&'b [u8], String> {
        let length = number(&mut self.rest)? as usize;
        let split = self.rest.split_at_checked(length);
        let (entry, after) = split.ok_or("it ends within an entry")?;
        self.rest = after;
        Ok(entry)
    }
}

impl<T: Message + Default> Iterator for Entries<'_, T> {
    type Item = Result<T, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.take();
        if entry.is_err() {
            self.rest = &[];
        }
        Some(entry.and_then(|entry| T::decode(entry).map_err(|error| error.to_string())))
    }
}

/// Reads a number; CRIU writes numbers in the order of the machine.
fn number(rest: &mut &[u8]) -> Result<u32, String> {
    let (bytes, after) = rest.split_first_chunk().ok_or("it ends within a number")?;
    *rest = after;
    Ok(u32::from_ne_bytes(*bytes))
}

#[cfg(fuzzing)]
pub(crate) fn fuzz<T: Message + Default>(bytes: &[u8], magic: u32) {
    let mut file = [COMMON_MAGIC, magic].map(u32::to_ne_bytes).concat();
    file.extend(bytes);
    if let Ok(entries) = Entries::<T>::of(&file, magic) {
        entries.for_each(drop);
    }
}
