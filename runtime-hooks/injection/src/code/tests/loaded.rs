//! The image in memory, and processes that share it.

use std::ffi::c_void;
use std::ptr;

use nix::libc;
use stasis_injected_copy::{Board, Reported, Settings};

use super::{Image, image};

/// The stack that a helper may need, and that is promised to it (`Image::helper`).
const STACK: usize = 4096;

/// Of registers, for ptrace(2).
const RAX: usize = std::mem::offset_of!(libc::user_regs_struct, rax);
const ORIG_RAX: usize = std::mem::offset_of!(libc::user_regs_struct, orig_rax);

type Memcpy = unsafe extern "C" fn(*mut u8, *const u8, usize) -> *mut u8;
type Mmap = unsafe extern "C" fn(usize, usize, i32, i32, i32, i64) -> usize;
type Entry = unsafe extern "C" fn(usize) -> !;

/// A helper's entry, and its argument.
type Begin = (Entry, usize);

/// No helper is left behind when the test is killed.
extern "C" fn begin(begin: *mut c_void) -> libc::c_int {
    // SAFETY: the argument lives as long as the helper; the entry takes one word.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let (entry, index) = *begin.cast::<Begin>();
        entry(index)
    }
}

/// The image, where it has been put.
pub(super) struct Loaded {
    image: Image,
    base: *mut u8,
}

// SAFETY: its code is made for several threads, and its board is read and written as a whole.
unsafe impl Sync for Loaded {}

/// A process that shares the memory of the test; it is killed when this is dropped.
pub(super) struct Helper {
    pid: i32,
    has_ended: bool,
    stack: *mut u8,
}

/// Memory of the process, in whole pages.
pub(super) fn map(length: usize) -> *mut u8 {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: anywhere.
    let mapping = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
    assert_ne!(mapping, libc::MAP_FAILED);
    mapping.cast()
}

pub(super) fn unmap(address: *mut u8, length: usize) {
    // SAFETY: from `map`, and not used any more.
    assert_eq!(unsafe { libc::munmap(address.cast(), length) }, 0);
}

fn protect(address: *mut u8, length: usize, protection: i32) {
    // SAFETY: pages from `map`, whose use fits.
    let result = unsafe { libc::mprotect(address.cast(), length, protection) };
    assert_eq!(result, 0);
}

impl Loaded {
    /// Puts the image as it is injected: written, then executable, and not writable any more.
    pub(super) fn new(settings: Option<Settings>) -> Self {
        let image = image();
        let base = map(image.board + Board::LENGTH);
        let loaded = Self { image, base };
        // SAFETY: the mapping is long enough.
        unsafe { base.copy_from_nonoverlapping(image.code.as_ptr(), image.code.len()) };
        if let Some(settings) = settings {
            loaded.write(Board::SETTINGS, &settings.to_bytes());
        }
        protect(base, image.board, libc::PROT_READ | libc::PROT_EXEC);
        loaded
    }

    pub(super) fn memcpy(&self, to: *mut u8, from: *const [u8]) {
        // SAFETY: the entry has this type; the target is as long as the source.
        unsafe {
            let memcpy: Memcpy = std::mem::transmute(self.base.add(self.image.memcpy));
            assert_eq!(memcpy(to, from.cast(), from.len()), to);
        }
    }

    /// Asks for writable memory, anywhere; returns an address, or errno.
    pub(super) fn mmap(&self, length: usize, flags: i32) -> Result<usize, i32> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the entry has this type.
        let address = unsafe {
            let mmap: Mmap = std::mem::transmute(self.base.add(self.image.mmap));
            mmap(0, length, protection, flags, -1, 0)
        };
        if address == usize::MAX {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap());
        }
        Ok(address)
    }

    pub(super) fn reported(&self) -> Reported {
        Reported::from_bytes(&self.read(Board::REPORT))
    }

    pub(super) fn thread_id(&self, index: usize) -> u32 {
        u32::from_ne_bytes(self.read(Board::thread_ids().nth(index).unwrap()))
    }

    pub(super) fn quit(&self) {
        self.write(Board::QUIT, &1_u64.to_ne_bytes());
    }

    fn read<const LENGTH: usize>(&self, offset: usize) -> [u8; LENGTH] {
        let address = self.base.wrapping_add(self.image.board + offset);
        // SAFETY: the range lies in the board.
        unsafe { address.cast::<[u8; LENGTH]>().read_volatile() }
    }

    fn write<const LENGTH: usize>(&self, offset: usize, bytes: &[u8; LENGTH]) {
        let address = self.base.wrapping_add(self.image.board + offset);
        // SAFETY: the range lies in the board.
        unsafe { address.cast::<[u8; LENGTH]>().write_volatile(*bytes) }
    }

    /// Starts a helper: all signals blocked, 4 KiB of stack, and below it nothing.
    pub(super) fn helper(&self, index: usize) -> Helper {
        let stack = map(2 * STACK);
        protect(stack, STACK, libc::PROT_NONE);
        let id = self
            .base
            .wrapping_add(self.image.board + Board::thread_ids().nth(index).unwrap());
        let flags = libc::CLONE_VM | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
        // The lower end of its stack.
        let first = stack.wrapping_add(STACK).cast::<Begin>();
        let (parents, tls) = (ptr::null_mut::<c_void>(), ptr::null_mut::<c_void>());
        // SAFETY: the entry takes one word and never returns; the stack is its own; the board lives
        // until all helpers have been waited for.
        let pid = unsafe {
            let entry: Entry = std::mem::transmute(self.base.add(self.image.helper));
            first.write((entry, index));
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let top = stack.add(2 * STACK).cast();
            let pid = libc::clone(begin, top, flags, first.cast(), parents, tls, id);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
            pid
        };
        assert!(pid > 0);
        Helper {
            pid,
            has_ended: false,
            stack,
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        unmap(self.base, self.image.board + Board::LENGTH);
    }
}

impl Helper {
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn kill(&self) {
        // SAFETY: it is a child that has not been waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }

    /// Waits for its end; returns its status as the kernel gives it.
    pub(super) fn wait(mut self) -> i32 {
        self.has_ended = true;
        self.next_status()
    }

    /// Stops it; only the same thread can trace it further.
    pub(super) fn stop(&self) {
        self.trace(libc::PTRACE_SEIZE);
        self.trace(libc::PTRACE_INTERRUPT);
        assert!(libc::WIFSTOPPED(self.next_status()));
    }

    /// Lets it do one instruction.
    pub(super) fn step(&self) {
        self.trace(libc::PTRACE_SINGLESTEP);
        assert!(libc::WIFSTOPPED(self.next_status()));
    }

    /// Lets it run until it begins a system call, and gives the call's number.
    pub(super) fn next_call(&self) -> libc::c_long {
        loop {
            self.trace(libc::PTRACE_SYSCALL);
            assert!(libc::WIFSTOPPED(self.next_status()));
            // The kernel sets this result before the call has one.
            if self.register(RAX) == -libc::c_long::from(libc::ENOSYS) {
                return self.register(ORIG_RAX);
            }
        }
    }

    /// Lets it end the call that it has begun, and refuses it.
    pub(super) fn refuse_call(&self) {
        self.trace(libc::PTRACE_SYSCALL);
        assert!(libc::WIFSTOPPED(self.next_status()));
        let refused = -libc::c_long::from(libc::EPERM);
        // SAFETY: a register of the child is set.
        let result = unsafe { libc::ptrace(libc::PTRACE_POKEUSER, self.pid, RAX, refused) };
        assert_eq!(result, 0);
    }

    /// Resumes it.
    pub(super) fn let_go(&self) {
        self.trace(libc::PTRACE_DETACH);
    }

    fn register(&self, offset: usize) -> libc::c_long {
        let null = ptr::null_mut::<c_void>();
        // SAFETY: a register of the child is read.
        unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, self.pid, offset, null) }
    }

    fn trace(&self, request: libc::c_uint) {
        let null = ptr::null_mut::<c_void>();
        // SAFETY: none of the requests touches memory.
        assert_eq!(unsafe { libc::ptrace(request, self.pid, null, null) }, 0);
    }

    fn next_status(&self) -> i32 {
        let mut status = 0;
        // SAFETY: it is a child that has not been waited for.
        let pid = unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) };
        assert_eq!(pid, self.pid);
        status
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if !self.has_ended {
            self.kill();
            self.next_status();
        }
        unmap(self.stack, 2 * STACK);
    }
}
