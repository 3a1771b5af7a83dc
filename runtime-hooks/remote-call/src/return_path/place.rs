//! Finds memory for frames.

use std::io;
use std::ops::{ControlFlow, Range};

use nix::unistd::Pid;
use stasis_linux::procfs::{Mapping, for_each_mapping};

use super::code::{Code, is_c_library};

/// The bytes that functions may use below the stack pointer (x86-64 psABI).
const RED_ZONE: u64 = 128;
/// The alignment that XRSTOR needs.
pub(super) const ALIGNMENT: u64 = 64;

/// The parts of a process that a return path needs.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) code: Code,
    stack: Range<u64>,
}

impl Places {
    /// Returns none for a thread that is not on its process's first stack, or without the code.
    ///
    /// # Errors
    /// Errors of `/proc` and process_vm_readv(2).
    pub(super) fn of(thread: Pid, stack_pointer: u64) -> io::Result<Option<Self>> {
        let mut found = FoundMappings::default();
        for_each_mapping(thread.as_raw(), |mapping| -> ControlFlow<()> {
            found.look_at(&mapping, stack_pointer);
            ControlFlow::Continue(())
        })?;
        let (Some(stack), Some(code)) = (found.stack, found.library.or(found.first)) else {
            return Ok(None);
        };
        let code = Code::find(thread, &code)?;
        Ok(code.map(|code| Self { code, stack }))
    }

    /// Returns the address of that many bytes that a signal handler could use.
    pub(super) fn below(&self, stack_pointer: u64, length: u64) -> Option<u64> {
        let start = stack_pointer.checked_sub(RED_ZONE)?.checked_sub(length)?;
        let start = start & !(ALIGNMENT - 1);
        self.stack.contains(&start).then_some(start)
    }
}

#[derive(Debug, Default)]
struct FoundMappings {
    stack: Option<Range<u64>>,
    library: Option<Range<u64>>,
    first: Option<Range<u64>>,
}

impl FoundMappings {
    fn look_at(&mut self, mapping: &Mapping<'_>, stack_pointer: u64) {
        let range = mapping.start..mapping.end;
        if mapping.has(b'x') && mapping.has(b'r') && mapping.inode != 0 {
            if is_c_library(mapping.path) {
                self.library.get_or_insert(range.clone());
            }
            self.first.get_or_insert(range.clone());
        }
        // Compares with the kernel's name for it, which no file has: files have paths.
        let is_stack = mapping.path == b"[stack]" && mapping.inode == 0;
        let is_own = mapping.has(b'w') && mapping.has(b'p') && range.contains(&stack_pointer);
        if is_stack && is_own {
            self.stack = Some(range);
        }
    }
}
