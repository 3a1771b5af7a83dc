//! How a library calls others: the slots of its procedure linkage table, from its own file.
//!
//! Source: System V Application Binary Interface, "Dynamic Linking".

use std::ops::Range;

use anyhow::{Context, Result, ensure};

/// Of a program header.
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
/// Of an entry of the dynamic section.
const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_JMPREL: u64 = 23;
/// `R_X86_64_JUMP_SLOT`, `R_AARCH64_JUMP_SLOT`.
const JUMP_SLOT: [u64; 2] = [7, 1026];

/// A library's file of 64 bits, little-endian.
pub(crate) struct Library {
    file: Vec<u8>,
    /// The addresses of each segment, and where it begins in the file.
    segments: Vec<(Range<u64>, u64)>,
    dynamic: u64,
}

impl Library {
    pub(crate) fn parse(file: Vec<u8>) -> Result<Self> {
        ensure!(file.starts_with(b"\x7fELF\x02"), "no ELF file of 64 bits");
        let mut library = Self {
            file,
            segments: Vec::new(),
            dynamic: 0,
        };
        let (headers, size) = (library.number(32, 8)?, library.number(54, 2)?);
        for header in (0..library.number(56, 2)?).map(|index| headers + index * size) {
            let offset = library.number(header + 8, 8)?;
            let start = library.number(header + 16, 8)?;
            match library.number(header, 4)? {
                PT_LOAD => {
                    let end = start + library.number(header + 32, 8)?;
                    library.segments.push((start..end, offset));
                }
                PT_DYNAMIC => library.dynamic = offset,
                _ => {}
            }
        }
        Ok(library)
    }

    /// The slot by which it calls this function, as an address from where the library is mapped.
    pub(crate) fn jump_slot(&self, function: &str) -> Result<Option<u64>> {
        let table = self.offset(self.dynamic_value(DT_JMPREL)?)?;
        let symbols = self.offset(self.dynamic_value(DT_SYMTAB)?)?;
        let names = self.offset(self.dynamic_value(DT_STRTAB)?)?;
        for entry in (0..self.dynamic_value(DT_PLTRELSZ)? / 24).map(|index| table + index * 24) {
            let info = self.number(entry + 8, 8)?;
            let name = names + self.number(symbols + (info >> 32) * 24, 4)?;
            if JUMP_SLOT.contains(&(info & 0xffff_ffff)) && self.text(name)? == function.as_bytes()
            {
                return Ok(Some(self.number(entry, 8)?));
            }
        }
        Ok(None)
    }

    fn dynamic_value(&self, wanted: u64) -> Result<u64> {
        for entry in (self.dynamic..).step_by(16) {
            let tag = self.number(entry, 8)?;
            if tag == wanted {
                return self.number(entry + 8, 8);
            }
            ensure!(tag != 0, "the dynamic section has no entry {wanted}");
        }
        anyhow::bail!("the dynamic section has no end")
    }

    fn offset(&self, address: u64) -> Result<u64> {
        let holds = |(range, _): &&(Range<u64>, u64)| range.contains(&address);
        let segment = self.segments.iter().find(holds);
        let (range, offset) = segment.context("an address in no segment")?;
        Ok(address - range.start + offset)
    }

    fn text(&self, at: u64) -> Result<&[u8]> {
        let rest = self.file.get(usize::try_from(at)?..).unwrap_or_default();
        rest.split(|byte| *byte == 0).next().context("no text")
    }

    fn number(&self, at: u64, bytes: usize) -> Result<u64> {
        let at = usize::try_from(at)?;
        let source = self.file.get(at..at + bytes).context("the file is short")?;
        let mut number = [0; 8];
        number[..bytes].copy_from_slice(source);
        Ok(u64::from_le_bytes(number))
    }
}
