//! The functions that are injected, run by threads of the test.
#![allow(unsafe_code)] // boards of zeros

mod copying;
mod mapping;
mod protocol;

use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use crate::board::{Board, HELPERS};
use crate::serve::serve;

/// Makes a new board: zeros.
fn board() -> Box<Board> {
    // SAFETY: zeros are a board.
    unsafe { Box::new_zeroed().assume_init() }
}

/// Ends the helpers when dropped, also when a test fails.
struct Quit<'b>(&'b Board);

impl Drop for Quit<'_> {
    fn drop(&mut self) {
        self.0.news.quit.store(1, SeqCst);
    }
}

/// Marks the helper at `index` as alive, as clone(2) does.
fn begin(board: &Board, index: usize) {
    board.threads[index].id.store(1, SeqCst);
}

/// Marks it as ended, as the kernel does.
fn end(board: &Board, index: usize) {
    board.threads[index].id.store(0, SeqCst);
}

/// Runs `action` while helpers, which are threads here, serve.
fn with_helpers(board: &Board, helpers: usize, action: impl FnOnce()) {
    assert!(helpers <= HELPERS);
    thread::scope(|scope| {
        let _quit = Quit(board);
        for index in 0..helpers {
            begin(board, index);
            scope.spawn(move || {
                serve(board, index);
                end(board, index);
            });
        }
        action();
    });
}

/// Waits until another thread has made this true.
fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}

/// Returns pseudo-random bytes: each position has its own.
fn random(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(length as u64);
    let words = (0..length.div_ceil(8)).flat_map(|_| random.u64(..).to_ne_bytes());
    words.take(length).collect()
}
