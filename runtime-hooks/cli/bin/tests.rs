use clap::Command;
use stasis::documents::{EXAMPLES, examples_of};

use super::*;

fn named() -> impl Iterator<Item = &'static str> {
    EXAMPLES
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'))
}

/// Lists faults in the examples of a command line: an example that it does not take, a command
/// without examples, and examples of a command that does not exist.
fn faults(root: &Command) -> Vec<String> {
    let mut root = root.clone();
    root.build();
    let mut known = Vec::new();
    collect(&root, &mut known);
    let without = |name: &&String| examples_of(name).next().is_none();
    let mut faults: Vec<String> = known.iter().filter(without).cloned().collect();
    let root_name = root.get_name().to_owned();
    for name in named().filter(|name| name.split(' ').next() == Some(&root_name)) {
        if name != root_name && !known.iter().any(|known| known == name) {
            faults.push(format!("there is no {name}"));
        }
        for (line, _) in examples_of(name) {
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

#[test]
fn each_command_has_examples_that_it_takes() {
    for command in [
        Arguments::command().disable_help_subcommand(true),
        cuda_checkpoint::command_line(),
    ] {
        assert_eq!(faults(&command), [""; 0]);
    }
}

#[test]
fn each_command_tells_its_exit_codes() {
    let mut command = Arguments::command();
    command.build();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    for verb in verbs.filter(|verb| !verb.has_subcommands()) {
        let about = verb.get_long_about().map(ToString::to_string);
        let about = about.unwrap_or_default();
        assert!(
            about.contains("\n\nExit code 0: "),
            "{}: {about}",
            verb.get_name()
        );
    }
}

#[test]
fn the_help_has_each_verb_in_one_of_three_groups_and_there_are_18_at_most() {
    let mut command = usage::grouped(Arguments::command());
    let help = command.render_help().to_string();
    let grouped = usage::GROUPS.iter().flat_map(|(_, verbs)| *verbs);
    let grouped: Vec<&str> = grouped.copied().chain(["version"]).collect();
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let shown = shown.filter(|verb| verb.get_name() != "help");
    let verbs: Vec<&str> = shown.map(Command::get_name).collect();
    assert_eq!(verbs, grouped, "the manual has the order of the help");
    assert!(verbs.len() <= 18);
    for verb in command.get_subcommands() {
        assert!(
            !verb.has_subcommands(),
            "{} has a second level",
            verb.get_name()
        );
    }
    for (group, verbs) in usage::GROUPS {
        assert!(
            help.contains(&format!("\n{group}:\n  {} ", verbs[0])),
            "{help}"
        );
    }
    assert!(
        help.contains("\n  help        ") && help.contains("\n  version     "),
        "{help}"
    );
    let (verbs, _) = help.split_once("\nOptions:").unwrap();
    assert_eq!(verbs.lines().find(|line| line.len() > 80), None);
}

#[test]
fn a_verb_that_reads_what_others_made_has_few_capabilities() {
    for (line, has_few) in [
        ("push r.example/a:1 /images/a", true),
        ("pull r.example/a:1 /images/a", true),
        ("pull --background r.example/a:1 /images/a", false),
        ("inspect /images/a", true),
        ("verify /images/a", true),
        ("verify --here /images/a", false),
        ("recover", false),
    ] {
        let words = ["stasis"].into_iter().chain(line.split(' '));
        let verb = Arguments::try_parse_from(words).unwrap().verb;
        assert_eq!(verb.only_moves_or_reads_images(), has_few, "{line}");
    }
}
