//! What a test has in the place of a call that changes something: of those of its own thread.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// What the kernel makes of it.
    IsMade,
    /// It fails with this error, and has changed nothing.
    Fails(i32),
    /// It is made, and fails all the same, as on a file server whose answer was lost (rename(2),
    /// "Bugs").
    FailsOnceMade(i32),
}

thread_local! {
    static HOOK: RefCell<Option<Rc<dyn Fn() -> Call>>> = const { RefCell::new(None) };
}

/// The next call of this thread that changes something.
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

/// Works, and asks before each change what becomes of it.
pub(super) fn asking<T>(hook: impl Fn() -> Call + 'static, work: impl FnOnce() -> T) -> T {
    HOOK.with(|place| *place.borrow_mut() = Some(Rc::new(hook)));
    let done = work();
    HOOK.with(|place| *place.borrow_mut() = None);
    done
}
