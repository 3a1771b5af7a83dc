//! The OCI `state` of a container that waits for its start: the low-level runtime reports it as
//! paused, since it is frozen.

use std::ffi::OsString;
use std::io::{self, Write};

use serde_json::Value;
use stasis_linux::exit_status;

use crate::context::{Context, Outcome};
use crate::low_level::answer;
use crate::operation::awaited_start::awaits_start;

/// The states in the OCI runtime specification, and beyond it.
const PAUSED: &str = "paused";
const CREATED: &str = "created";

/// Prints the state of a waiting container; passes other calls on to the low-level runtime.
pub fn state(context: &Context, id: &str, args: &[OsString]) -> io::Result<Outcome> {
    if !awaits_start(&context.settings.paths.state_dir, &context.root, id) {
        return Ok(Outcome::PassThrough);
    }
    let limit = context.settings.deadlines.stalled();
    let output = answer(&context.low_level, args, limit)?;
    io::stderr().write_all(&output.stderr)?;
    io::stdout().write_all(&as_created(&output.stdout))?;
    Ok(Outcome::Done(exit_status::code(output.status)))
}

/// The same state with "created" in the place of "paused".
fn as_created(text: &[u8]) -> Vec<u8> {
    let Ok(mut state) = serde_json::from_slice::<Value>(text) else {
        return text.to_owned();
    };
    if state["status"] != PAUSED {
        return text.to_owned();
    }
    state["status"] = CREATED.into();
    serde_json::to_vec_pretty(&state).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_frozen_is_created_and_who_has_ended_is_not() {
        let said =
            |text: &str| -> Value { serde_json::from_slice(&as_created(text.as_bytes())).unwrap() };
        let paused = said(r#"{"id": "c1", "pid": 7, "status": "paused"}"#);
        assert_eq!(
            (&paused["status"], &paused["pid"]),
            (&"created".into(), &7.into())
        );
        assert_eq!(said(r#"{"status": "stopped"}"#)["status"], "stopped");
        assert_eq!(as_created(b"no such container"), b"no such container");
    }
}
