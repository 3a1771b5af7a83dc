//! Examples of each command, for `--help` and the manual.

use std::fmt::Write;

use clap::Command;

/// The commands, each as `[NAME]` with its examples below: a command line, and what it does.
const EXAMPLES: &str = include_str!("examples.txt");

/// Returns the examples of a command, by its full name: command lines, each with what it does.
pub(super) fn of(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let head = format!("[{name}]");
    let below = EXAMPLES
        .lines()
        .skip_while(move |line| *line != head)
        .skip(1);
    below.map_while(|line| line.split_once("  # "))
}

fn named() -> impl Iterator<Item = &'static str> {
    EXAMPLES
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'))
}

/// Lists faults in the examples of a command line: an example that it does not take, a command
/// without examples, and examples of a command that does not exist.
#[must_use]
pub fn faults(root: &Command) -> Vec<String> {
    let mut root = root.clone();
    root.build();
    let mut known = Vec::new();
    collect(&root, &mut known);
    let without = |name: &&String| of(name).next().is_none();
    let mut faults: Vec<String> = known.iter().filter(without).cloned().collect();
    let root_name = root.get_name().to_owned();
    for name in named().filter(|name| name.split(' ').next() == Some(&root_name)) {
        if name != root_name && !known.iter().any(|known| known == name) {
            faults.push(format!("there is no {name}"));
        }
        for (line, _) in of(name) {
            if let Err(error) = root.clone().try_get_matches_from(line.split(' ')) {
                faults.push(format!("{line}: {error}"));
            }
        }
    }
    faults
}

/// Collects the names of all commands that can be called.
fn collect(command: &Command, names: &mut Vec<String>) {
    let shown: Vec<&Command> = command
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set())
        .collect();
    if shown.is_empty() {
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
        names.push(name.to_owned());
    }
    shown.into_iter().for_each(|verb| collect(verb, names));
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
    for (line, what) in of(name) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {line}\n          {what}");
    }
    match text.is_empty() {
        true => command,
        false => command.after_long_help(format!("Examples:{text}")),
    }
}
