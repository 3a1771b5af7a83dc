//! Manual pages and completions of shells, made from the command lines themselves, so that no page
//! or completion misses a command or an option.

mod examples;
mod manual;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;

pub use examples::{EXAMPLES, examples_of, with_examples};

/// The directory of each shell's completions, below `share`.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/vendor-completions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// A directory, or a file in it, could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to {directory}")]
pub struct DocumentsError {
    directory: PathBuf,
    pub(crate) source: io::Error,
}

/// Writes the pages and completions of these command lines below `share`.
///
/// # Errors
/// A file or directory cannot be written.
pub fn write(commands: [Command; 2], share: &Path) -> Result<(), DocumentsError> {
    for mut command in commands {
        let name = command.get_name().to_owned();
        // First: a completion makes `help` a verb with verbs of its own.
        into(&share.join("man/man1"), |directory| {
            manual::write(command.clone(), directory)
        })?;
        for (shell, place) in SHELLS {
            into(&share.join(place), |directory| {
                clap_complete::generate_to(shell, &mut command, &name, directory).map(drop)
            })?;
        }
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
        let verb = Command::new("verb").arg(Arg::new("option").long("option"));
        let hidden = Command::new("hidden").hide(true);
        let stasis = Command::new("stasis").subcommands([verb, hidden]);
        let other = Command::new("cuda-checkpoint");
        write([stasis, other.clone()], share.path()).unwrap();
        let read = |name: &str| fs::read_to_string(share.path().join(name)).unwrap();
        let page = read("man/man1/stasis-verb.1");
        assert!(page.contains("option"), "{page}");
        for none in ["hidden", "help", "help-verb"] {
            let page = format!("man/man1/stasis-{none}.1");
            assert!(!share.path().join(page).exists(), "{none}");
        }
        for completion in [
            "bash-completion/completions/stasis.bash",
            "zsh/vendor-completions/_stasis",
            "fish/vendor_completions.d/stasis.fish",
        ] {
            let text = read(completion);
            assert!(text.contains("verb") && text.contains("option"), "{text}");
        }
        assert!(share.path().join("man/man1/cuda-checkpoint.1").exists());
        let full = write([other.clone(), other], Path::new("/proc/nowhere")).unwrap_err();
        assert_eq!(full.to_string(), "cannot write to /proc/nowhere/man/man1");
    }
}
