//! Replaces calls that change something in a test's own thread.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// The kernel's own.
    IsMade,
    /// The call fails with this error, and has changed nothing.
    Fails(i32),
    /// The call is made, and fails all the same, as on a file server whose answer was lost
    /// (rename(2), "Bugs").
    FailsOnceMade(i32),
}

thread_local! {
    static HOOK: RefCell<Option<Rc<dyn Fn() -> Call>>> = const { RefCell::new(None) };
}

/// Makes the next call of this thread that changes something.
pub(crate) fn change<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let hook = HOOK.with(|hook| hook.borrow().clone());
    match hook.map_or(Call::IsMade, |hook| hook()) {
        Call::IsMade => call(),
        Call::Fails(error) => Err(io::Error::from_raw_os_error(error)),
        Call::FailsOnceMade(error) => {
            call()?;
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// Calls `work`, and asks `hook` before each change for its outcome.
pub(super) fn asking<T>(hook: impl Fn() -> Call + 'static, work: impl FnOnce() -> T) -> T {
    HOOK.with(|place| *place.borrow_mut() = Some(Rc::new(hook)));
    let done = work();
    HOOK.with(|place| *place.borrow_mut() = None);
    done
}
