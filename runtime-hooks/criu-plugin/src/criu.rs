//! Functions of CRIU that we call. They are looked up by name: not every version has all of them,
//! and unit tests do not run in CRIU.

#![allow(unsafe_code)] // FFI: functions of the program that loaded us

use std::ffi::{CString, c_char, c_int, c_uint};
use std::path::PathBuf;

use libloading::os::unix::{Library, Symbol};

use crate::NAME;
use crate::error::Error;

const ERROR: c_uint = 1;

type Print = unsafe extern "C" fn(c_uint, *const c_char, ...);
type GetImageDir = unsafe extern "C" fn() -> c_int;
type AddInventoryPlugin = unsafe extern "C" fn(*const c_char) -> c_int;
type CheckAndRemoveInventoryPlugin = unsafe extern "C" fn(*const c_char, usize) -> bool;

/// A line for CRIU's log.
pub(crate) fn log_error(text: &str) {
    let line = CString::new(format!("stasis: {text}\n").replace('\0', " "));
    let (Ok(line), Some(print)) = (line, find::<Print>(b"print_on_level\0")) else {
        return;
    };
    // SAFETY: the format takes one string, and is given one that lives as long as the call.
    unsafe { print(ERROR, c"%s".as_ptr(), line.as_ptr()) }
}

/// The image directory, by way of the descriptor that CRIU has open.
pub(crate) fn image_dir() -> Option<PathBuf> {
    let get = find::<GetImageDir>(b"criu_get_image_dir\0")?;
    // SAFETY: it takes nothing and returns a descriptor number.
    let fd = unsafe { get() };
    (fd >= 0).then(|| PathBuf::from(format!("/proc/self/fd/{fd}")))
}

/// Has CRIU record in its inventory image that a restore needs this plugin. CRIU can do that since
/// 4.1; older ones have no such record, and this succeeds.
pub(crate) fn note_in_image() -> Result<(), Error> {
    let (Ok(name), Some(add)) = (
        CString::new(NAME),
        find::<AddInventoryPlugin>(b"add_inventory_plugin\0"),
    ) else {
        return Ok(());
    };
    // SAFETY: it copies the string.
    match unsafe { add(name.as_ptr()) } {
        0 => Ok(()),
        _ => Err(Error::Criu("take a note of the plugin for its image")),
    }
}

/// Strikes this plugin off the list in the inventory image. CRIU refuses a restore if a plugin is
/// left on the list.
pub(crate) fn answer_note() {
    let (Ok(name), Some(check)) = (
        CString::new(NAME),
        find::<CheckAndRemoveInventoryPlugin>(b"check_and_remove_inventory_plugin\0"),
    ) else {
        return;
    };
    // SAFETY: it compares with a string of the given length.
    unsafe { check(name.as_ptr(), NAME.len()) };
}

fn find<T>(name: &[u8]) -> Option<Symbol<T>> {
    // SAFETY: the types are those of CRIU's headers (criu/include/{log,criu-plugin,inventory}.h).
    unsafe { Library::this().get(name).ok() }
}
