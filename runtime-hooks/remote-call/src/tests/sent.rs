//! A thread that is sent goes back to its work, even if its sender is killed.

use super::killed::{kill_at_all_as, lines_of_a_tracer};
use super::program::Program;
use super::*;
use crate::{Errand, Sent, Start, memory, send, stack_pointer_of};

/// Not a test: the process that the tests here start. It reads from a line which thread to send
/// where, and sends it once.
#[test]
#[ignore = "started by other tests"]
fn a_sender() {
    let Some(numbers) = lines_of_a_tracer() else {
        return;
    };
    let [pid, thread, code, board, stack, frame] = numbers[..] else {
        return;
    };
    let (pid, thread) = (i32::try_from(pid).unwrap(), i32::try_from(thread).unwrap());
    let back = stack_pointer_of(frame).to_ne_bytes();
    memory::write(pid, board + 8, &back).unwrap();
    let start = Start {
        code,
        stack,
        argument: board,
    };
    let sent = || send(pid, thread, Errand { start, frame }, || false).unwrap();
    until(|| sent() == Sent::Gone);
}

/// Returns the line that [`a_sender`] reads about a program.
fn told(program: &Program) -> String {
    let numbers = (3..8).map(|index| program.number(index).to_string());
    let numbers: Vec<String> = numbers.collect();
    format!("{} {}", program.child.id(), numbers.join(" "))
}

#[test]
fn a_thread_that_is_sent_goes_back_also_if_the_sender_is_killed() {
    let mut program = Program::counting(include_str!("sent.c"), &[]);
    let told = told(&program);
    let steps = kill_at_all_as(
        "tests::sent::a_sender",
        &told,
        &mut program,
        |program, step| {
            for _ in 0..2 {
                program.goes_on();
            }
            assert_eq!(program.number(1), 0, "step {step}");
        },
    );
    assert!(steps >= 12, "{steps}");
    program.goes_on();
    assert_eq!(program.number(1), 0);
    // The thread was sent again and again, also by senders that were killed after it.
    assert!(program.number(2) >= 3, "{}", program.number(2));
}
