//! The OCI runtime: runc's (or crun's) command line, with checkpoint and restore of GPU state.
//!
//! Everything that is not ours is handed on by exec(2), so it is answered by the low-level
//! runtime itself, byte for byte.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, Result};
use stasis::cancel::Cancel;
use stasis::checkpoint::checkpoint;
use stasis::delete::delete;
use stasis::engine::{Engine, Outcome};
use stasis::guard::guard;
use stasis::guardian::Charge;
use stasis::invocation::{Action, Invocation};
use stasis::low_level::default_root;
use stasis::passthrough;
use stasis::report::Report;
use stasis::restore::restore;
use stasis::resume::resume;
use stasis::watchdog;
use stasis::write_behind::WriteBehind;
use stasis_config::{LowLevel, Settings};

fn main() -> ExitCode {
    let code = match Charge::of_this_process() {
        Some(charge) => u8::from(guard(charge).is_err()),
        None => match WriteBehind::of_this_process() {
            Some(copy) => u8::from(copy.carry_out().is_err()),
            None => carry_out(),
        },
    };
    watchdog::end_in_spite_of_calls(code);
    ExitCode::from(code)
}

fn carry_out() -> u8 {
    let invocation = Invocation::parse(env::args_os().skip(1).collect());
    run(&invocation).unwrap_or_else(|error| {
        let ours = error.downcast_ref::<stasis::error::Error>();
        let criu_log = ours.and_then(stasis::error::Error::criu_log);
        Report::new(&invocation.global).error(error.as_ref(), criu_log);
        1
    })
}

/// Gives the exit code, or never returns because the low-level runtime took our place.
fn run(invocation: &Invocation) -> Result<u8> {
    let settings = Settings::load(invocation.global.settings.as_deref())?;
    let low_level = match &invocation.global.low_level {
        Some(chosen) => settings.runtime.resolve_instead(chosen)?,
        None => settings.runtime.resolve()?,
    };
    if matches!(invocation.action, Action::PassThrough) {
        return Err(hand_over(&low_level, invocation));
    }
    let root: PathBuf = invocation
        .global
        .root
        .clone()
        .unwrap_or_else(|| default_root(low_level.flavor));
    let cancel = Cancel::on_signals().context("cannot prepare for signals")?;
    let engine = Engine {
        settings,
        low_level,
        root,
        cancel,
        began: SystemTime::now(),
    };
    let args = invocation.pass_on(engine.low_level.flavor);
    let outcome = match &invocation.action {
        Action::Checkpoint(options) => checkpoint(&engine, options, &args)?,
        Action::Restore(options) => restore(&engine, options, invocation)?,
        Action::Resume { id } => resume(&engine, id, &args)?,
        Action::Delete { id, mode } => {
            delete(&engine, id, *mode, &args).context("cannot delete")?
        }
        Action::PassThrough => Outcome::PassThrough,
    };
    match outcome {
        Outcome::Done(code) => Ok(code),
        Outcome::PassThrough => {
            engine
                .cancel
                .stand_down()
                .context("not handed on to the low-level runtime")?;
            Err(hand_over(&engine.low_level, invocation))
        }
    }
}

fn hand_over(low_level: &LowLevel, invocation: &Invocation) -> anyhow::Error {
    let error = passthrough::exec(&low_level.path, invocation.pass_on(low_level.flavor));
    anyhow::Error::new(error).context(format!("cannot start {}", low_level.path.display()))
}
