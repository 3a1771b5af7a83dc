//! `stasis recover`, after an operation and its keeper were killed.

use std::process::Stdio;

use anyhow::{Result, ensure};

use crate::campaign::fault::What;
use crate::campaign::subject::Subject;
use crate::check::process_tree::has_ended;
use crate::faults::call::Class;
use crate::faults::{Action, At, Plan, Trace};
use crate::host::installed::PROGRAM;

impl Subject<'_> {
    /// Runs `stasis recover` in place of a keeper that was killed.
    pub(super) fn is_recovered(&self, what: What) -> Result<()> {
        match what {
            What::KillThenKeeper(_) => {}
            What::KillUpToRecover(_, number) => self.recover_is_killed(number)?,
            _ => return Ok(()),
        }
        let recover = [PROGRAM, "recover", self.id()];
        let output = self
            .stasis
            .host
            .command(recover[0])
            .args(&recover[1..])
            .output()?;
        // It fails if there is no room; and where an operation was killed before it wrote anything
        // down, since there is no record of a container below a root that is not searched.
        let may_fail = self.stasis.is_short_of_room()?;
        let is_nothing_left = output.stderr.ends_with(b"[no-container]\n");
        ensure!(
            may_fail || is_nothing_left || output.status.success(),
            "{output:?}"
        );
        Ok(())
    }

    fn recover_is_killed(&self, number: u32) -> Result<()> {
        self.recover.close()?;
        let mut command = self.stasis.command(&self.recover.path);
        command.args(["recover", self.id()]);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        if let Some(held) = self.recover.held(|| has_ended(&child))? {
            let plan = Plan {
                class: Class::Changes,
                at: At::Number(number),
                action: Action::Kill,
            };
            Trace::from_start(held, plan, self.phase())?.seen()?;
        }
        child.wait()?;
        // Its keeper goes on.
        self.stasis.nobody_works()
    }
}
