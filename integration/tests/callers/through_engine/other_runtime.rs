//! Containers that their engine runs by another runtime than stasis.

use anyhow::Result;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::host::installed::StasisHost;

use super::object;
use crate::commands::{counts_on, json, run};

/// The engine's name for the container, and the port of its counter.
pub(super) const PLAIN: (&str, u16) = ("plain", 10001);
/// The command that starts the container.
pub(super) const COUNTER: [&str; 2] = ["/bin/counter", "10001"];

/// For the container [`PLAIN`]: every command gives the same reason, and changes nothing.
pub(super) fn is_refused_before_anything_is_done(stasis: &StasisHost, called: &str) -> Result<()> {
    let (name, port) = PLAIN;
    stasis.ask_until_up(port)?;
    let (code, rows) = json(stasis, &["ps", name])?;
    assert_eq!((code, rows.len()), (Some(0), 1), "{rows:?}");
    assert_eq!(rows[0]["blockers"], serde_json::json!(["other-runtime"]));
    assert_eq!(rows[0]["checkpointable"], false);
    let (code, stdout, _) = run(stasis, &["check", name])?;
    assert_eq!(code, Some(1));
    let found = format!("calls {called}, not stasis-runtime");
    assert_contains(&stdout, &["other-runtime: process ", &found, "way out: "]);
    let (code, answer) = object(stasis, &["checkpoint", name, "-R", "--dry-run"])?;
    assert_eq!((code, &answer["checkpointable"]), (Some(1), &false.into()));
    assert_eq!(answer["kind"], "blocked");
    assert_eq!(answer["blockers"][0]["kind"], "other-runtime", "{answer}");
    let (code, outcome) = object(stasis, &["checkpoint", name, "-R"])?;
    assert_eq!((code, &outcome["kind"]), (Some(1), &"blocked".into()));
    assert_eq!(outcome["state"], "unharmed");
    assert_eq!(outcome["command"], serde_json::Value::Null, "{outcome}");
    let error = outcome["error"].as_str().unwrap_or_default();
    assert_contains(error, &[&found, "allow = [\"other-runtime\"]"]);
    counts_on(stasis, port)
}
