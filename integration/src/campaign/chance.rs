//! Faults by chance.

use fastrand::Rng;
use nix::errno::Errno;
use nix::sys::signal::Signal;

use crate::campaign::fault::{AtCall, Beside, DriverFault, Fault, Mover, Program, What};
use crate::campaign::verb::Verb;
use crate::faults::call::Class;

/// The codes that calls fail with; 2 is final in a restore.
const CODES: [i32; 5] = [2, 304, 401, 801, 999];
const CALLS: [&str; 5] = ["lock", "checkpoint", "restore", "unlock", "get-state"];

/// Whether other operations are under way in the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    /// None are, so programs that all containers share can be hit.
    Alone,
    /// Some are.
    Among,
}

/// The processes that can be hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victims {
    /// The programs of an operation.
    Programs,
    /// Also processes that move GPU contents for it.
    Movers,
    /// The engine, where it changes something in the directory of an image, and its keeper.
    Images,
    /// Processes that have a part in stops, and in creates from what these have saved.
    Stops,
}

impl Fault {
    /// Draws a fault for an operation on a container whose processes have these tags.
    pub fn any(
        random: &mut Rng,
        verb: Verb,
        tags: &[String],
        company: Company,
        victims: Victims,
    ) -> Self {
        if victims == Victims::Images && (verb.makes_image() || verb == Verb::Restore) {
            return Self::AtCall(AtCall::at_image(random, verb));
        }
        if victims == Victims::Movers && random.u32(..4) == 0 {
            return Self::AtCall(AtCall::of_mover(random, verb));
        }
        if victims == Victims::Stops && random.u32(..6) == 0 {
            return Self::of_life(random, verb);
        }
        match random.u32(..20) {
            0 => Self::None,
            1..5 if verb != Verb::Create => Self::Driver(DriverFault::any(random, tags)),
            _ => Self::AtCall(AtCall::any(random, verb, company)),
        }
    }

    /// Draws a fault of the caller that stops and creates a container.
    fn of_life(random: &mut Rng, verb: Verb) -> Self {
        let later = random.u64(..400);
        match (verb, random.u32(..4)) {
            (Verb::Stop, 0) => Self::Beside(Beside::Checkpoint, later),
            (Verb::Stop, 1) => Self::Beside(Beside::Kill, later),
            (Verb::Stop, 2) => Self::ClockBack,
            (Verb::Stop | Verb::Create | Verb::Start, _) => Self::Beside(Beside::Same, later / 4),
            _ => Self::None,
        }
    }
}

impl AtCall {
    fn of_mover(random: &mut Rng, verb: Verb) -> Self {
        let (counted, class) = (Program::Engine, Class::Changes);
        let mover = [Mover::Copies, Mover::Holds][random.usize(..2)];
        Self {
            counted,
            class,
            number: random.u32(1..=most_calls(counted, verb, class)),
            what: What::KillMover(mover),
        }
    }

    fn at_image(random: &mut Rng, verb: Verb) -> Self {
        let (counted, class) = (Program::Engine, Class::Images);
        let what = match random.u32(..20) {
            0..7 => What::Fail(error(random)),
            7..11 => What::Kill,
            11 | 12 => What::Signal(Signal::SIGTERM),
            13 => What::KillKeeper,
            14 => What::KillCaller,
            15..18 => What::KillThenKeeper(random.u32(1..60)),
            _ => What::KillUpToRecover(random.u32(1..20), random.u32(1..60)),
        };
        Self {
            counted,
            class,
            number: random.u32(1..=most_calls(counted, verb, class)),
            what,
        }
    }

    fn any(random: &mut Rng, verb: Verb, company: Company) -> Self {
        let counted = counted(random, verb, company);
        let what = match (counted, random.u32(..20)) {
            (_, 0..7) => What::Fail(error(random)),
            (Program::Runc | Program::Criu | Program::Kill | Program::Stopper, _) | (_, 7..12) => {
                What::Kill
            }
            (_, 12..14) => What::Signal(Signal::SIGTERM),
            (_, 14..16) => What::KillKeeper,
            (_, 16) => What::KillCaller,
            (_, 17..19) => What::KillThenKeeper(random.u32(1..60)),
            _ => What::KillUpToRecover(random.u32(1..20), random.u32(1..60)),
        };
        let class = match what {
            What::Fail(_) => Class::Files,
            _ => Class::Changes,
        };
        let number = random.u32(1..=most_calls(counted, verb, class));
        Self {
            counted,
            class,
            number,
            what,
        }
    }
}

fn counted(random: &mut Rng, verb: Verb, company: Company) -> Program {
    let has_criu = verb.has_criu() && company == Company::Alone;
    match random.u32(..10) {
        4 if verb == Verb::Stop => Program::Kill,
        5 | 6 if verb == Verb::Stop => Program::Stopper,
        0..2 if has_criu => Program::Runc,
        2..4 if has_criu => Program::Criu,
        _ => Program::Engine,
    }
}

fn error(random: &mut Rng) -> Errno {
    [Errno::ENOSPC, Errno::EIO][random.usize(..2)]
}

/// Returns how many calls a program makes in an operation; runs differ by a few.
fn most_calls(counted: Program, verb: Verb, class: Class) -> u32 {
    match (counted, class, verb) {
        (Program::Engine, Class::Changes, Verb::LeaveRunning) => 180,
        (Program::Engine, Class::Changes, Verb::Checkpoint | Verb::Paused | Verb::Stop) => 155,
        (Program::Engine, Class::Changes, Verb::Restore | Verb::Create) => 115,
        (Program::Engine, Class::Changes, _) => 90,
        (Program::Engine, Class::Files, _) => 40,
        (Program::Engine, Class::Images, Verb::Restore) => 4,
        (Program::Engine, Class::Images, _) => 60,
        (Program::Runc, ..) => 17,
        (Program::Kill, Class::Changes, _) => 20,
        (Program::Stopper, Class::Changes, _) => 9,
        (Program::Kill | Program::Stopper, ..) => 10,
        // Not by chance.
        (_, Class::Tracing | Class::Images, _) => 1,
        (Program::Criu, Class::Changes, _) => 130,
        (Program::Criu, Class::Files, _) => 90,
    }
}

impl DriverFault {
    fn any(random: &mut Rng, tags: &[String]) -> Self {
        let call = CALLS[random.usize(..CALLS.len())];
        let tag = tags[random.usize(..tags.len())].clone();
        let action = match random.u32(..10) {
            0 => "crash".to_owned(),
            1 | 2 => format!("slow:{}", random.u32(10..600)),
            3 | 4 if call == "lock" => "busy".to_owned(),
            _ => format!("error:{}", CODES[random.usize(..CODES.len())]),
        };
        let times = random.u32(1..3);
        Self {
            call,
            tag,
            action,
            times,
        }
    }
}
