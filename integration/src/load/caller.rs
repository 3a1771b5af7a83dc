//! A caller that adds processes one after the other, and goes on where it was once containerd comes
//! back.

use anyhow::{Context, Result};

use super::Size;
use super::containers::id;
use super::exec::{Exec, Phase};
use super::restart::Restart;
use crate::client::containerd::{Answer, Code, Containerd, State, Streams, process};
use crate::host::installed::StasisHost;

/// The next step of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Add,
    Start,
    Wait,
    /// As [`Step::Wait`], for a process whose start was not answered: a start ends with its caller,
    /// and then there is another.
    WaitOrAgain,
    Delete,
    Done,
}

struct Caller<'a> {
    stasis: &'a StasisHost,
    restart: &'a Restart,
    client: Containerd,
}

/// Adds all processes to the containers of this caller's share.
pub(super) fn add_all(
    stasis: &StasisHost,
    restart: &Restart,
    size: Size,
    number: usize,
) -> Result<Vec<Exec>> {
    let ended = of_its_share(stasis, restart, size, number);
    if ended.is_err() {
        restart.caller_has_failed();
    }
    ended
}

fn of_its_share(
    stasis: &StasisHost,
    restart: &Restart,
    size: Size,
    number: usize,
) -> Result<Vec<Exec>> {
    let client = Containerd::connect(&stasis.host)?;
    let mut caller = Caller {
        stasis,
        restart,
        client,
    };
    let mut ended = Vec::new();
    for round in 0..size.execs {
        for container in (number..size.containers()).step_by(size.callers) {
            // A signal gives 128 and more.
            let status = u32::try_from((number * size.execs + round) % 120)?;
            let mut exec = Exec {
                container: id(size, container),
                name: format!("e{round}"),
                status,
                given: None,
                seen_by: restart.phase(),
            };
            let added = caller.add(&mut exec);
            added.with_context(|| format!("process {round} of {}", exec.container))?;
            ended.push(exec);
            restart.one_is_done();
        }
    }
    Ok(ended)
}

impl Caller<'_> {
    fn add(&mut self, exec: &mut Exec) -> Result<()> {
        let mut step = Step::Add;
        while step != Step::Done {
            let begun = self.restart.phase();
            let answer = carry_out(&self.client, step, exec);
            let outlived = self
                .restart
                .outlived(self.stasis, &mut self.client, begun, answer)?;
            step = match outlived {
                Some(next) => next.with_context(|| format!("{step:?}"))?,
                None => self.where_it_is(exec, step)?,
            };
        }
        if self.restart.phase() != exec.seen_by {
            exec.seen_by = Phase::Down;
        }
        Ok(())
    }

    /// Returns the next step after a call that a killed containerd did not answer.
    fn where_it_is(&self, exec: &Exec, step: Step) -> Result<Step> {
        let state = match self.client.state(&exec.container, &exec.name) {
            Ok(process) => process.status(),
            Err(status) if status.code() == Code::NotFound && step == Step::Delete => {
                return Ok(Step::Done);
            }
            Err(status) if status.code() == Code::NotFound && step == Step::Add => {
                return Ok(Step::Add);
            }
            Err(status) => return Err(status).context("after containerd came back"),
        };
        Ok(match state {
            State::Created => Step::Start,
            State::Running | State::Stopped => Step::WaitOrAgain,
            other => anyhow::bail!("{other:?} after containerd came back"),
        })
    }
}

fn carry_out(client: &Containerd, step: Step, exec: &mut Exec) -> Answer<Step> {
    let (container, name) = (&exec.container, &exec.name);
    match step {
        Step::Add => {
            let script = format!("exit {}", exec.status);
            let command = process(&["sh", "-c", &script], false);
            client.exec(container, name, &Streams::default(), command)?;
            Ok(Step::Start)
        }
        Step::Start => client.start(container, name).map(|_| Step::Wait),
        Step::Wait | Step::WaitOrAgain => {
            let given = client.wait(container, name)?.status;
            if step == Step::WaitOrAgain && given != exec.status {
                client.delete_exec(container, name)?;
                return Ok(Step::Add);
            }
            exec.given = Some(given);
            Ok(Step::Delete)
        }
        Step::Delete => client.delete_exec(container, name).map(|_| Step::Done),
        Step::Done => Ok(Step::Done),
    }
}
