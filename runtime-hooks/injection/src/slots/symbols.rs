//! Symbols of a library, as addresses in the process that has it mapped.

use std::fs::File;

use object::elf::{EM_X86_64, PT_LOAD, R_X86_64_JUMP_SLOT, STT_FUNC};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{
    LittleEndian, Object, ObjectSymbol, ObjectSymbolTable, ReadCache, RelocationFlags,
    RelocationTarget,
};
use stasis_linux::file::check_size;

use super::library::Library;
use super::{BuildId, Function, Refusal};

/// libcuda has some 100 MiB; each part of it that is needed is read once.
const MAX_FILE_BYTES: u64 = 512 << 20;
/// libcuda has some hundreds of slots, the C library three thousand symbols.
const MAX_SYMBOLS: usize = 1 << 16;

type Elf<'a> = ElfFile64<'a, LittleEndian, &'a ReadCache<&'a File>>;

/// Addresses in the process.
#[derive(Debug)]
pub(super) struct Symbols {
    build_id: Option<BuildId>,
    /// The slots through which the library calls each function.
    slots: Vec<(Function, u64)>,
    /// The library's own mmap(2).
    pub(super) mmap: Option<u64>,
}

impl Symbols {
    pub(super) fn read(library: &Library) -> Result<Self, Refusal> {
        let cache = ReadCache::new(&library.file);
        let (elf, bias) = parse(library, &cache)?;
        let build_id = elf.build_id().map_err(malformed)?;
        Ok(Self {
            build_id: build_id.and_then(BuildId::of_note),
            slots: slots(&elf, bias).map_err(malformed)?,
            mmap: offered(&elf, Function::Mmap).map(|offset| bias.wrapping_add(offset)),
        })
    }

    /// Returns the build id; only a library with a build id can be recognised.
    pub(super) fn build_id(&self) -> Result<BuildId, Refusal> {
        self.build_id.clone().ok_or(Refusal::NoBuildId)
    }

    /// Returns the only slot of a function.
    pub(super) fn slot(&self, wanted: Function) -> Result<u64, Refusal> {
        let mut found = self
            .slots
            .iter()
            .filter(|(function, _)| *function == wanted);
        match (found.next(), found.next()) {
            (Some((_, address)), None) => Ok(*address),
            _ => Err(Refusal::NoSlot(wanted)),
        }
    }
}

fn malformed(error: object::read::Error) -> Refusal {
    Refusal::Malformed(error.to_string())
}

/// Parses a library; returns it with the difference between its addresses in process and file.
fn parse<'c>(library: &Library, cache: &'c ReadCache<&'c File>) -> Result<(Elf<'c>, u64), Refusal> {
    check_size(library.file.metadata()?.len(), MAX_FILE_BYTES)?;
    let elf = Elf::parse(cache).map_err(malformed)?;
    if elf.elf_header().e_machine(LittleEndian) != EM_X86_64 {
        return Err(Refusal::Architecture);
    }
    let bias = bias(&elf, library.start).ok_or_else(no_beginning)?;
    Ok((elf, bias))
}

/// Finds the addresses of functions that a library offers, in the order of `names`.
pub(super) fn functions(library: &Library, names: &[&'static str]) -> Result<Vec<u64>, Refusal> {
    let cache = ReadCache::new(&library.file);
    let (elf, bias) = parse(library, &cache)?;
    let mut found = vec![None; names.len()];
    for symbol in elf.dynamic_symbols().take(MAX_SYMBOLS) {
        let is_function = symbol.elf_symbol().st_type() == STT_FUNC && !symbol.is_undefined();
        let name = symbol.name_bytes().ok().filter(|_| is_function);
        let index = names
            .iter()
            .position(|wanted| name == Some(wanted.as_bytes()));
        if let Some(index) = index {
            found[index] = Some(bias.wrapping_add(symbol.address()));
        }
    }
    let each = names.iter().zip(found);
    each.map(|(name, found)| found.ok_or(Refusal::NoFunction(name)))
        .collect()
}

fn no_beginning() -> Refusal {
    Refusal::Malformed("no segment begins where its file begins".to_owned())
}

/// Returns that difference: the segment with the beginning of the file is mapped at `start`.
fn bias(elf: &Elf<'_>, start: u64) -> Option<u64> {
    let mut segments = elf.elf_program_headers().iter();
    let first = segments.find(|segment| {
        segment.p_type(LittleEndian) == PT_LOAD && segment.p_offset(LittleEndian) == 0
    })?;
    Some(start.wrapping_sub(first.p_vaddr(LittleEndian)))
}

fn slots(elf: &Elf<'_>, bias: u64) -> object::read::Result<Vec<(Function, u64)>> {
    let symbols = elf.dynamic_symbol_table();
    let relocations = elf.dynamic_relocations().into_iter().flatten();
    let is_slot =
        |flags| matches!(flags, RelocationFlags::Elf { r_type } if r_type == R_X86_64_JUMP_SLOT);
    let mut found = Vec::new();
    let jumps = relocations.filter(|(_, relocation)| is_slot(relocation.flags()));
    for (offset, relocation) in jumps.take(MAX_SYMBOLS) {
        let (Some(symbols), RelocationTarget::Symbol(index)) = (&symbols, relocation.target())
        else {
            continue;
        };
        let name = symbols.symbol_by_index(index)?.name_bytes()?;
        if let Some(function) = Function::named(name) {
            found.push((function, bias.wrapping_add(offset)));
        }
    }
    Ok(found)
}

/// Finds an ordinary function: an IFUNC would have to be called for its address.
fn offered(elf: &Elf<'_>, wanted: Function) -> Option<u64> {
    let mut symbols = elf.dynamic_symbols().take(MAX_SYMBOLS);
    let found = symbols.find(|symbol| {
        let is_function = symbol.elf_symbol().st_type() == STT_FUNC;
        is_function
            && !symbol.is_undefined()
            && symbol.name_bytes().ok().and_then(Function::named) == Some(wanted)
    });
    Some(found?.address())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use object::elf::EM_AARCH64;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Symbols, Refusal> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Symbols::read(&Library {
            name: b"libcuda.so.1".to_vec(),
            start: 0x7f00_0000_0000,
            file,
        })
    }

    /// Any file gives an answer.
    #[test]
    fn a_damaged_library_is_an_error_or_has_no_slots() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let whole = &whole[..1 << 16];
        for length in (0..whole.len()).step_by(997) {
            assert!(read(&whole[..length]).is_err(), "{length}");
        }
        for place in 0..1024 {
            let mut bytes = whole.to_vec();
            bytes[place] ^= 0xff;
            let _ = read(&bytes).map(|symbols| symbols.slot(Function::Memcpy).unwrap_err());
        }
    }

    /// The code is not tried there, and the driver copies alone.
    #[test]
    fn a_library_for_another_processor_is_refused() {
        const MACHINE: usize = 18;
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(bytes[MACHINE..][..2], EM_X86_64.0.to_le_bytes());
        bytes[MACHINE..][..2].copy_from_slice(&EM_AARCH64.0.to_le_bytes());
        let refusal = read(&bytes).unwrap_err();
        assert!(matches!(refusal, Refusal::Architecture), "{refusal}");
    }

    #[test]
    fn a_library_that_is_too_large_is_not_read() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        let (name, start) = (Vec::new(), 0);
        let refusal = Symbols::read(&Library { name, start, file }).unwrap_err();
        assert!(matches!(refusal, Refusal::Unreadable(_)), "{refusal}");
    }
}
