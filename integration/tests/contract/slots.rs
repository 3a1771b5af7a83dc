//! A library's calls of others: the slots of its procedure linkage table, read from its file.
//!
//! Source: System V Application Binary Interface, "Dynamic Linking".

use anyhow::Result;
use object::elf::{R_AARCH64_JUMP_SLOT, R_X86_64_JUMP_SLOT};
use object::read::elf::ElfFile64;
use object::{
    LittleEndian, Object, ObjectSymbol, ObjectSymbolTable, Relocation, RelocationFlags,
    RelocationTarget,
};

/// Returns the slot by which the library with this file, of 64 bits and little-endian, calls a
/// function: an offset from the library's load address.
pub(crate) fn jump_slot(file: &[u8], function: &str) -> Result<Option<u64>> {
    let library = ElfFile64::<LittleEndian>::parse(file)?;
    let Some(symbols) = library.dynamic_symbol_table() else {
        return Ok(None);
    };
    for (address, relocation) in library.dynamic_relocations().into_iter().flatten() {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            continue;
        };
        if is_jump_slot(&relocation) && symbols.symbol_by_index(index)?.name()? == function {
            return Ok(Some(address));
        }
    }
    Ok(None)
}

fn is_jump_slot(relocation: &Relocation) -> bool {
    let slots = [R_X86_64_JUMP_SLOT, R_AARCH64_JUMP_SLOT];
    matches!(relocation.flags(), RelocationFlags::Elf { r_type } if slots.contains(&r_type))
}
