//! Manual pages: the help of each command, as clap_mangen renders it.

use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

use super::with_examples;

/// The text behind the help of all commands.
const FILES: &str = "/etc/stasis/stasis.toml has the settings, each described there, \
    /var/log/stasis what was done, and /usr/share/doc/stasis/docs more.";

/// Writes the pages of a command and of all its subcommands.
pub(super) fn write(command: Command, directory: &Path) -> io::Result<()> {
    let mut command = with_examples(command.disable_help_subcommand(true));
    command.build();
    pages(&command, directory)
}

fn pages(command: &Command, directory: &Path) -> io::Result<()> {
    let mut shown = command.clone();
    // Users call `stasis ps`, and not `stasis-ps`.
    let usage = shown.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    let help = command.get_after_long_help().map(ToString::to_string);
    let help = help.unwrap_or_default() + "\n\n" + FILES;
    let man = Man::new(shown.override_usage(usage).after_long_help(help));
    let man = man.manual("stasis");
    man.source(concat!("stasis ", env!("CARGO_PKG_VERSION")))
        .generate_to(directory)?;
    let mut verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    verbs.try_for_each(|verb| pages(verb, directory))
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn a_page_has_the_help_of_its_command() {
        let directory = tempfile::tempdir().unwrap();
        let ps = Command::new("ps").long_about("Show.\n\nMore.\n\nExit code 0: shown.");
        let ps = ps.arg(Arg::new("x").value_name("ID").num_args(0..));
        write(Command::new("stasis").subcommand(ps), directory.path()).unwrap();
        let page = std::fs::read_to_string(directory.path().join("stasis-ps.1")).unwrap();
        for part in [
            "\\fBstasis ps\\fR [ID]...\n",
            "Exit code 0: shown.",
            "stasis ps \\-\\-watch=5",
            "/etc/stasis/stasis.toml",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
    }
}
