//! The plugin descriptor that CRIU loads, with our hooks (criu/include/criu-plugin.h).
//!
//! CRIU asks the next plugin only if a hook returns -ENOTSUP, so our hooks return that on success.
//! No panic crosses this boundary.

#![allow(unsafe_code)] // FFI: a symbol that CRIU looks up by name

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::libc::ENOTSUP;
use stasis_linux::error_chain;

use crate::{criu, dump, restore};

/// 0.2.0, the version of CRIU 4.0 to 4.2; later ones accept it as well.
const API_VERSION: c_uint = 0x200;
const HOOKS: usize = 12;
const RESUME_DEVICES_LATE: usize = 9;
const CHECKPOINT_DEVICES: usize = 11;

const STAGE_DUMP: c_int = 0;
const STAGE_RESTORE: c_int = 2;

/// `cr_plugin_desc_t`.
#[repr(C)]
struct Descriptor {
    name: *const c_char,
    init: extern "C" fn(c_int) -> c_int,
    exit: extern "C" fn(c_int, c_int),
    version: c_uint,
    max_hooks: c_uint,
    hooks: [*const c_void; HOOKS],
}

// SAFETY: the descriptor never changes, and it points to code and a constant string.
unsafe impl Sync for Descriptor {}

// SAFETY: no other symbol of this name is in this library.
#[unsafe(no_mangle)]
static CR_PLUGIN_DESC: Descriptor = Descriptor {
    name: c"stasis_memory".as_ptr(),
    init,
    exit,
    version: API_VERSION,
    max_hooks: 12,
    hooks: hooks(),
};

const fn hooks() -> [*const c_void; HOOKS] {
    let mut hooks = [std::ptr::null(); HOOKS];
    hooks[RESUME_DEVICES_LATE] =
        resume_devices_late as extern "C" fn(c_int) -> c_int as *const c_void;
    hooks[CHECKPOINT_DEVICES] =
        checkpoint_devices as extern "C" fn(c_int) -> c_int as *const c_void;
    hooks
}

/// The value that a hook returns to CRIU. An error or a panic is written to CRIU's log.
fn answer(what: &str, work: impl FnOnce() -> Result<(), crate::error::Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => -ENOTSUP,
        Ok(Err(error)) => {
            criu::log_error(&format!("{what}: {}", error_chain(&error)));
            -1
        }
        Err(_) => {
            criu::log_error(&format!(
                "{what}: the plugin panicked, which is a fault in stasis"
            ));
            -1
        }
    }
}

extern "C" fn init(stage: c_int) -> c_int {
    let begun = answer("reading the request", || match stage {
        STAGE_DUMP => dump::begin(),
        STAGE_RESTORE => restore::begin(),
        _ => Ok(()),
    });
    if begun == -1 { -1 } else { 0 }
}

extern "C" fn exit(stage: c_int, _result: c_int) {
    if stage == STAGE_DUMP {
        dump::end();
    }
}

extern "C" fn checkpoint_devices(_pid: c_int) -> c_int {
    answer("verifying the index", dump::verify)
}

extern "C" fn resume_devices_late(_pid: c_int) -> c_int {
    let given = answer("holding the tasks", restore::complete);
    if given == -1 {
        // CRIU takes no notice of an error of this hook and would let the tasks run.
        restore::end_all();
    }
    given
}
