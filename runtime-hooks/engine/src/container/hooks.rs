//! The hooks of a container: commands that are run in it around a checkpoint, by its annotations or
//! by the settings.
//!
//! An annotation is a command line of `/bin/sh`, as it would stand behind `sh -c`, or a JSON array
//! of a program and its arguments, as Kubernetes' lifecycle handlers (`exec.command`) and the hooks
//! of the OCI runtime specification have them. An empty one disables the settings' hook.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stasis_config::hooks::MOST_SECONDS;
use stasis_linux::escape::escaped;

use crate::container::Container;
use crate::container::spec::Spec;
use crate::container::spec::annotation::HOOK;

const TIMEOUT: &str = "io.stasis.hook.timeout";
/// How much of a value a message shows, in characters.
const SHOWN: usize = 200;

/// When a hook is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// Before the CUDA processes of the container are locked.
    BeforeCheckpoint,
    /// When all of them have their GPU again.
    AfterRestore,
}

/// A command that is run in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// The moment.
    pub when: When,
    /// The program and its arguments; never empty.
    pub command: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
}

/// The hooks of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hooks {
    /// Before its CUDA processes are locked.
    pub before_checkpoint: Option<Hook>,
    /// When all have their GPU again.
    pub after_restore: Option<Hook>,
}

/// An annotation that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the annotation {name}={} of the container cannot be used: {what}", shown(.value))]
pub struct InvalidHook {
    name: String,
    value: String,
    what: String,
}

impl When {
    /// The annotation that has the command.
    fn annotation(self) -> &'static str {
        match self {
            Self::BeforeCheckpoint => "io.stasis.hook.before-checkpoint",
            Self::AfterRestore => "io.stasis.hook.after-restore",
        }
    }

    /// The phase in which it is run.
    #[must_use]
    pub fn phase(self) -> &'static str {
        match self {
            Self::BeforeCheckpoint => "before-checkpoint hook",
            Self::AfterRestore => "after-restore hook",
        }
    }
}

impl Hooks {
    /// Returns a container's hooks; only the settings' if its specification cannot be read.
    pub fn of(settings: &stasis_config::Hooks, container: &Container) -> Result<Self, InvalidHook> {
        Self::declared(settings, container.spec().as_ref())
    }

    /// Returns the hooks of a specification.
    pub(crate) fn declared(
        settings: &stasis_config::Hooks,
        spec: Option<&Spec>,
    ) -> Result<Self, InvalidHook> {
        let annotation = |name| spec.and_then(|spec| spec.annotation(name));
        let known = [
            When::BeforeCheckpoint.annotation(),
            When::AfterRestore.annotation(),
            TIMEOUT,
        ];
        let mut names = spec.into_iter().flat_map(Spec::annotations);
        if let Some(name) = names.find(|name| name.starts_with(HOOK) && !known.contains(name)) {
            let what = format!("there are only {}", known.join(", "));
            return Err(InvalidHook::of(
                name,
                annotation(name).unwrap_or_default(),
                what,
            ));
        }
        let timeout = annotation(TIMEOUT).map_or_else(|| Ok(settings.timeout()), seconds)?;
        let hook = |when: When, of_settings: &[String]| {
            let command = match annotation(when.annotation()) {
                Some(value) => command(when.annotation(), value)?,
                None => of_settings.to_vec(),
            };
            let hook = Hook {
                when,
                command,
                timeout,
            };
            Ok(Some(hook).filter(|hook| !hook.command.is_empty()))
        };
        Ok(Self {
            before_checkpoint: hook(When::BeforeCheckpoint, &settings.before_checkpoint)?,
            after_restore: hook(When::AfterRestore, &settings.after_restore)?,
        })
    }

    /// Iterates over the hooks that exist.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Hook> {
        self.before_checkpoint.iter().chain(&self.after_restore)
    }
}

/// Parses the program and its arguments; empty for an empty value.
fn command(name: &str, value: &str) -> Result<Vec<String>, InvalidHook> {
    let invalid = |what: String| InvalidHook::of(name, value, what);
    let trimmed = value.trim();
    if trimmed.contains('\0') {
        return Err(invalid("it has a zero byte".to_owned()));
    }
    if trimmed.is_empty() {
        return Ok(Vec::new());
    }
    if !trimmed.starts_with('[') {
        return Ok(["/bin/sh", "-c", trimmed].map(str::to_owned).to_vec());
    }
    let command: Vec<String> = serde_json::from_str(trimmed).map_err(|error| {
        invalid(format!(
            "what begins with \"[\" has to be a JSON array of a program and its arguments, and all \
             else is run by /bin/sh ({error})"
        ))
    })?;
    if command.first().is_some_and(String::is_empty) {
        return Err(invalid("it names no program".to_owned()));
    }
    if command.iter().any(|argument| argument.contains('\0')) {
        return Err(invalid("it has a zero byte".to_owned()));
    }
    Ok(command)
}

fn seconds(value: &str) -> Result<Duration, InvalidHook> {
    let seconds: Option<u32> = value.trim().parse().ok();
    match seconds.filter(|seconds| (1..=MOST_SECONDS).contains(seconds)) {
        Some(seconds) => Ok(Duration::from_secs(seconds.into())),
        None => {
            let what = format!("it has to be a number of seconds, 1 to {MOST_SECONDS}");
            Err(InvalidHook::of(TIMEOUT, value, what))
        }
    }
}

fn shown(value: &str) -> String {
    let begin: String = value.chars().take(SHOWN).collect();
    let rest = if begin.len() < value.len() { "..." } else { "" };
    format!("\"{}{rest}\"", escaped(begin.as_bytes()))
}

impl InvalidHook {
    fn of(name: &str, value: &str, what: String) -> Self {
        Self {
            name: escaped(name.as_bytes()),
            value: value.to_owned(),
            what,
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = self.command.join(" ");
        write!(f, "{} hook {}", self.when, shown(&command))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};

    use super::*;

    fn declared(annotations: &Value) -> Result<Hooks, InvalidHook> {
        let settings = stasis_config::Hooks {
            before_checkpoint: vec!["flush".to_owned()],
            ..stasis_config::Hooks::default()
        };
        let bundle = tempfile::tempdir().unwrap();
        let text = json!({ "annotations": annotations }).to_string();
        fs::write(bundle.path().join("config.json"), text).unwrap();
        Hooks::declared(&settings, Some(&Spec::read(bundle.path()).unwrap()))
    }

    fn before(value: &str) -> Option<Vec<String>> {
        let hooks = declared(&json!({"io.stasis.hook.before-checkpoint": value})).unwrap();
        hooks.before_checkpoint.map(|hook| hook.command)
    }

    #[test]
    fn an_annotation_is_a_command_line_or_an_array_and_comes_first() {
        let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(before("a | b"), words(&["/bin/sh", "-c", "a | b"]));
        assert_eq!(before(r#" ["a", "b c"]"#), words(&["a", "b c"]));
        for none in ["", "  ", "[]"] {
            assert_eq!(before(none), None, "{none:?}");
        }
        let settings = declared(&json!({})).unwrap();
        assert_eq!(
            settings.before_checkpoint.map(|hook| hook.command),
            words(&["flush"])
        );
        assert_eq!(settings.after_restore, None);
    }

    #[test]
    fn the_time_is_bounded() {
        let hooks = declared(&json!({"io.stasis.hook.timeout": "600"})).unwrap();
        let timeout = hooks.before_checkpoint.map(|hook| hook.timeout);
        assert_eq!(timeout, Some(Duration::from_mins(10)));
        for value in ["0", "601", "-1", "30s", "", "99999999999999999999"] {
            let refused = declared(&json!({"io.stasis.hook.timeout": value}));
            let said = refused.unwrap_err().to_string();
            assert!(
                said.contains("io.stasis.hook.timeout=") && said.contains("1 to 600"),
                "{said}"
            );
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_and_acts_on_no_terminal() {
        for (name, value) in [
            ("io.stasis.hook.before-checkpoint", "[ -e /x ] && y"),
            ("io.stasis.hook.before-checkpoint", "[\"\"]"),
            ("io.stasis.hook.before-checkpoint", "[1]"),
            ("io.stasis.hook.after-restore", "[\"a\\u0000\"]"),
            ("io.stasis.hook.after-restore", "a\0\u{1b}"),
            ("io.stasis.hook.before_checkpoint", "a"),
            ("io.stasis.hook.pre\u{1b}", "a"),
        ] {
            let said = declared(&json!({ name: value })).unwrap_err().to_string();
            assert!(said.contains("io.stasis.hook."), "{said}");
            assert!(!said.contains('\u{1b}'), "{said}");
        }
        let long = format!("[{}", "x".repeat(100_000));
        let refused = declared(&json!({"io.stasis.hook.after-restore": long}));
        assert!(refused.unwrap_err().to_string().len() < 1000);
    }
}
