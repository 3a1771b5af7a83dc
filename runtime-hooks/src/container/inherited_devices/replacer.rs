//! The process that replaces devices.
//!
//! If whoever has a thread of a child make a call is killed meanwhile, the child is lost if that
//! thread has no way back (`remote-call`). Callers kill operations, so this is a process of its
//! own: it ends what it does also when the operation is gone.

use std::io::{self, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stasis_linux::ProcessRef;

use super::replace::{InheritedDevices, Replaced};
use crate::host::deadline::within;
use crate::host::respawn;

/// How long it may take for all of them: what it does to one has deadlines of its own.
const MOST: Duration = Duration::from_mins(2);
/// The first argument of such a process.
const VERB: &str = "stasis-replace";

/// The children whose devices it replaces.
#[derive(Debug, Serialize, Deserialize)]
pub struct Replacer(Vec<Child>);

#[derive(Debug, Serialize, Deserialize)]
struct Child {
    pid: i32,
    start_time: u64,
}

/// What became of the devices of one child.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// None, if it has ended.
    Replaced(Option<Replaced>),
    /// The error's number.
    Failed(i32),
    /// What is no error of the kernel.
    Refused(String),
}

/// Replaces the devices of each of these children; none of one that has ended.
///
/// # Errors
/// That of the process, which may have done a part.
pub(super) fn replace_all(
    children: &[ProcessRef],
) -> io::Result<Vec<io::Result<Option<Replaced>>>> {
    let job = children.iter().map(|child| Child {
        pid: child.pid(),
        start_time: child.start_time(),
    });
    let (mut answers, write) = io::pipe()?;
    let job = Replacer(job.collect());
    let mut process = respawn::start_with(VERB, &job, [Stdio::null(), write.into()])?;
    let text = within(MOST, move || {
        let mut text = String::new();
        answers.read_to_string(&mut text).map(|_| text)
    });
    // One that is overdue is left behind: its end would be that of the child whose thread it has.
    let text = text??;
    let status = process.wait()?;
    if !status.success() {
        return Err(io::Error::other(format!("{VERB} ended with {status}")));
    }
    let answers: Vec<Answer> = serde_json::from_str(&text)?;
    Ok(answers.into_iter().map(Answer::into_result).collect())
}

impl Replacer {
    /// The process that this one was started as, if it was.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        respawn::job_of(VERB, c"stasis-replace")
    }

    /// Replaces the devices, and says what became of them.
    ///
    /// # Errors
    /// Nobody hears it.
    pub fn run(self) -> io::Result<()> {
        let answer = |child: &Child| Answer::of(child.replace());
        let answers: Vec<Answer> = self.0.iter().map(answer).collect();
        io::stdout().write_all(&serde_json::to_vec(&answers)?)
    }
}

impl Child {
    fn replace(&self) -> io::Result<Option<Replaced>> {
        let process = ProcessRef::open(self.pid)?;
        match process.filter(|process| process.start_time() == self.start_time) {
            None => Ok(None),
            Some(process) => match InheritedDevices::replace(&process) {
                Err(_) if process.is_gone() => Ok(None),
                replaced => replaced.map(|devices| Some(devices.count())),
            },
        }
    }
}

impl Answer {
    fn of(result: io::Result<Option<Replaced>>) -> Self {
        match result {
            Ok(replaced) => Self::Replaced(replaced),
            Err(error) => match error.raw_os_error() {
                Some(number) => Self::Failed(number),
                None => Self::Refused(error.to_string()),
            },
        }
    }

    fn into_result(self) -> io::Result<Option<Replaced>> {
        match self {
            Self::Replaced(replaced) => Ok(replaced),
            Self::Failed(number) => Err(io::Error::from_raw_os_error(number)),
            Self::Refused(text) => Err(io::Error::other(text)),
        }
    }
}
