//! Restartable sequences: a thread that is stopped inside of one has to begin it again.
//!
//! While it is in such a sequence, the thread's registered area (rseq(2)) points to a description
//! of it. When the thread returns to user space after it was interrupted, the kernel looks at the
//! pointer: inside of the sequence it sends the thread to the sequence's abort handler, outside of
//! it the kernel clears the pointer (kernel/rseq.c). Our calls are outside, so afterwards the
//! thread would not come to the handler, and would commit with what it read before. So the pointer
//! is put back together with the registers, as CRIU does it, and the kernel does the rest.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nix::unistd::Pid;

use crate::ffi;

/// The offset of `rseq_cs` in `struct rseq` (linux/rseq.h).
const POINTER: u64 = 8;

/// `struct rseq_cs`: version and flags, `start_ip`, `post_commit_offset` and `abort_ip`.
const DESCRIPTION: usize = 32;

/// The description of a sequence that a stopped thread may be in.
#[derive(Debug)]
pub(crate) struct CriticalSection {
    /// The address of the thread's pointer to the description.
    place: u64,
    pointer: [u8; 8],
}

impl CriticalSection {
    /// Returns none for a thread without a sequence.
    ///
    /// # Errors
    /// Errors of ptrace(2) and `/proc`.
    pub(crate) fn of(thread: Pid) -> io::Result<Option<Self>> {
        let Some(area) = ffi::rseq_area(thread)? else {
            return Ok(None);
        };
        let place = area.saturating_add(POINTER);
        let mut pointer = [0; 8];
        File::open(memory(thread))?.read_exact_at(&mut pointer, place)?;
        Ok((pointer != [0; 8]).then_some(Self { place, pointer }))
    }

    pub(crate) fn restore(&self, thread: Pid) -> io::Result<()> {
        let memory = File::options().write(true).open(memory(thread))?;
        memory.write_all_at(&self.pointer, self.place)
    }

    /// Returns where the kernel resumes the thread if it was interrupted at this instruction.
    pub(crate) fn leave(&self, thread: Pid, instruction: u64) -> io::Result<u64> {
        let mut description = [0; DESCRIPTION];
        let place = u64::from_ne_bytes(self.pointer);
        File::open(memory(thread))?.read_exact_at(&mut description, place)?;
        let (words, _) = description.as_chunks();
        let [start, length, abort] = [words[1], words[2], words[3]].map(u64::from_ne_bytes);
        let is_inside = instruction.wrapping_sub(start) < length;
        Ok(if is_inside { abort } else { instruction })
    }
}

fn memory(thread: Pid) -> String {
    format!("/proc/{thread}/mem")
}
