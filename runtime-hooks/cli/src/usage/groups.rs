//! The verbs in groups, by what they act on.

use std::fmt::Write;

use clap::Command;

/// The groups, with their verbs in the order of the help.
pub const GROUPS: [(&str, &[&str]); 3] = [
    (
        "Containers",
        &["ps", "check", "checkpoint", "restore", "suspend", "resume"],
    ),
    (
        "Images",
        &["images", "inspect", "verify", "push", "pull", "gc"],
    ),
    ("Node", &["doctor", "setup", "recover", "log", "metrics"]),
];

/// Verbs about the program itself.
const OWN: [(&str, &str); 2] = [
    ("help", "Show this text, or the help of a command"),
    ("version", "Show the version of stasis"),
];

/// Has the help list the verbs in groups: clap knows one list alone.
#[must_use]
pub fn grouped(command: Command) -> Command {
    let mut text = String::new();
    for (group, verbs) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{group}:");
        for verb in verbs {
            let about = command.find_subcommand(verb).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {verb:<12}{about}");
        }
        text.push('\n');
    }
    for (verb, about) in OWN {
        let _ = writeln!(text, "  {verb:<12}{about}");
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}\n\
         Options:\n{{options}}{{after-help}}"
    ))
}
