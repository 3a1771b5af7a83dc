//! Manual pages and completions of shells, made from the command lines themselves, so that none of
//! them misses a command or an option.

mod examples;
mod manual;
pub(crate) mod names;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::{Generator, Shell};

pub use examples::{faults, with_examples};

/// Where each shell looks for completions, below `share`.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/vendor-completions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// A directory, or something in it, could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to {directory}")]
pub struct DocumentsError {
    directory: PathBuf,
    pub(crate) source: io::Error,
}

/// Writes those of these command lines below `share`.
///
/// # Errors
/// Something cannot be written.
pub fn write(commands: [Command; 2], share: &Path) -> Result<(), DocumentsError> {
    for command in commands {
        let mut command = names::marked(command);
        let name = command.get_name().to_owned();
        for (shell, place) in SHELLS {
            into(&share.join(place), |directory| {
                let mut text = Vec::new();
                clap_complete::generate(shell, &mut command, &name, &mut text);
                let text = names::with_names(shell, &command, &String::from_utf8_lossy(&text));
                fs::write(directory.join(shell.file_name(&name)), text)
            })?;
        }
        into(&share.join("man/man1"), |directory| {
            manual::write(command, directory)
        })?;
    }
    Ok(())
}

fn into(
    directory: &Path,
    generate: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), DocumentsError> {
    let made = fs::create_dir_all(directory).and_then(|()| generate(directory));
    made.map_err(|source| DocumentsError {
        directory: directory.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn every_verb_has_a_page_and_every_shell_a_completion() {
        let share = tempfile::tempdir().unwrap();
        let verb = Command::new("verb").args([
            Arg::new("option").long("option"),
            Arg::new("of").long("container").value_name("ID|NAME"),
            Arg::new("containers").value_name("ID|NAME"),
        ]);
        let other_verb = Command::new("show").arg(Arg::new("image").value_name("IMAGE"));
        let hidden = Command::new("hidden").hide(true);
        let one_of = Command::new("setup").arg(Arg::new("engine").value_parser(["crio", "docker"]));
        let stasis = Command::new("stasis").subcommands([verb, other_verb, one_of, hidden]);
        let other = Command::new("cuda-checkpoint");
        write([stasis, other.clone()], share.path()).unwrap();
        let read = |name: &str| fs::read_to_string(share.path().join(name)).unwrap();
        let page = read("man/man1/stasis-verb.1");
        assert!(page.contains("option"), "{page}");
        assert!(!share.path().join("man/man1/stasis-hidden.1").exists());
        let bash = read("bash-completion/completions/stasis.bash");
        let added = bash.split_once("_stasis_named() {").unwrap().1;
        for line in [
            "--option) return",
            "verb) kind=containers",
            "show) kind=images",
        ] {
            assert!(bash.contains("--option") && added.contains(line), "{added}");
        }
        let zsh = read("zsh/vendor-completions/_stasis");
        assert!(zsh.starts_with("#compdef stasis\n"), "{zsh}");
        assert_eq!(zsh.matches(":_stasis_containers'").count(), 2, "{zsh}");
        assert_eq!(zsh.matches(":_stasis_images'").count(), 1, "{zsh}");
        let fish = read("fish/vendor_completions.d/stasis.fish");
        assert_eq!(
            fish.matches("(stasis __complete containers").count(),
            2,
            "{fish}"
        );
        assert_eq!(
            fish.matches("(stasis __complete images").count(),
            1,
            "{fish}"
        );
        let values = "__fish_seen_subcommand_from setup\" -f -a \"crio docker\"";
        assert!(fish.contains(values), "{fish}");
        assert!(share.path().join("man/man1/cuda-checkpoint.1").exists());
        let full = write([other.clone(), other], Path::new("/proc/nowhere")).unwrap_err();
        assert_eq!(
            full.to_string(),
            "cannot write to /proc/nowhere/bash-completion/completions"
        );
    }
}
