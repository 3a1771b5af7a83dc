//! Examples of each command, for `--help` and the manual.

use std::fmt::Write;

use clap::Command;

/// The commands, each as `[NAME]` with its examples below: a command line, and what it does.
pub const EXAMPLES: &str = include_str!("examples.txt");

/// Returns the examples of a command, by its full name: command lines, each with what it does.
pub fn examples_of(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let head = format!("[{name}]");
    let below = EXAMPLES
        .lines()
        .skip_while(move |line| *line != head)
        .skip(1);
    below.map_while(|line| line.split_once("  # "))
}

/// Adds the examples to the help of each command.
#[must_use]
pub fn with_examples(command: Command) -> Command {
    let name = command.get_name().to_owned();
    shown(command, &name)
}

fn shown(command: Command, name: &str) -> Command {
    let command = command.mut_subcommands(|verb| {
        let name = format!("{name} {}", verb.get_name());
        shown(verb, &name)
    });
    let mut text = String::new();
    for (line, what) in examples_of(name) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {line}\n          {what}");
    }
    match text.is_empty() {
        true => command,
        false => command.after_long_help(format!("Examples:{text}")),
    }
}
