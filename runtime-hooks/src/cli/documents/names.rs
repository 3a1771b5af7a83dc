//! What is added to clap's completions, so that shells ask for the names of containers and images
//! (`cli::images::offered` answers). clap's own way (`unstable-dynamic`) is not stable yet.

use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;

/// The verb that shells call. It is for nobody else, so it is not in the command line that they
/// complete.
pub(crate) const VERB: &str = "__complete";

/// What has names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// Containers that run.
    Containers,
    /// Image directories.
    Images,
}

impl Named {
    /// As shells say it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::Images => "images",
        }
    }

    /// What a shell asks for.
    pub(crate) fn asked_for(word: &str) -> Option<Self> {
        let all = [Self::Containers, Self::Images];
        all.into_iter().find(|named| named.word() == word)
    }
}

/// A command line of which clap's completions have a mark where there are names: a hint of clap's
/// that no argument of ours has for itself.
pub(super) fn marked(command: Command) -> Command {
    command.mut_subcommands(|verb| {
        verb.mut_args(|argument| match named(&argument) {
            Some(named) => argument.value_hint(mark(named)),
            None => argument,
        })
    })
}

/// clap's completions of a marked command line, with what completes names.
pub(super) fn with_names(shell: Shell, command: &Command, text: &str) -> String {
    let containers = verbs(command, Named::Containers);
    if containers.is_empty() {
        return text.to_owned();
    }
    let images = verbs(command, Named::Images);
    match shell {
        Shell::Bash => text.to_owned() + &bash(command, &containers, &images),
        Shell::Zsh => zsh(text),
        Shell::Fish => fish(text, &containers, &images) + &values(command),
        _ => text.to_owned(),
    }
}

/// What an argument takes, by how the command line calls that.
fn named(argument: &Arg) -> Option<Named> {
    let mut names = argument.get_value_names().into_iter().flatten();
    match names.next()?.as_str() {
        "ID|NAME" => Some(Named::Containers),
        "DIRECTORY" | "IMAGE" if argument.is_positional() => Some(Named::Images),
        _ => None,
    }
}

fn mark(named: Named) -> ValueHint {
    match named {
        Named::Containers => ValueHint::Hostname,
        Named::Images => ValueHint::Username,
    }
}

/// The verbs with names of a kind behind them.
fn verbs(command: &Command, kind: Named) -> Vec<&str> {
    let takes = |verb: &&Command| verb.get_positionals().any(|one| named(one) == Some(kind));
    let verbs = command.get_subcommands().filter(takes);
    verbs.map(Command::get_name).collect()
}

/// The options whose values are the next word, and of no kind of ours.
fn valued(command: &Command) -> Vec<String> {
    let verbs = command.get_subcommands().chain([command]);
    let options = verbs.flat_map(Command::get_opts);
    let options = options.filter(|option| !option.is_require_equals_set());
    let options = options.filter(|option| named(option).is_none());
    let mut words: Vec<String> = options.flat_map(words).collect();
    words.sort();
    words.dedup();
    words
}

fn words(option: &Arg) -> Vec<String> {
    let long = option.get_long().map(|long| format!("--{long}"));
    let short = option.get_short().map(|short| format!("-{short}"));
    long.into_iter().chain(short).collect()
}

/// Without a word list of compgen, which bash would expand, and so carry out what is in it.
fn bash(command: &Command, containers: &[&str], images: &[&str]) -> String {
    let valued = valued(command).join("|");
    let [containers, images] = [containers, images].map(|verbs| verbs.join("|"));
    let (of_containers, of_images) = (Named::Containers.word(), Named::Images.word());
    format!(
        r#"
_stasis_named() {{
    _stasis "$@"
    local kind="" name
    case "$2" in -*) return 0 ;; esac
    case "$3" in {valued}) return 0 ;; esac
    case "${{COMP_WORDS[1]}}" in
        {containers}) kind={of_containers} ;;
        {images}) kind={of_images} ;;
    esac
    if [ "$3" = --container ]; then kind={of_containers}; fi
    if [ -z "$kind" ] || [ "$COMP_CWORD" -lt 2 ]; then return 0; fi
    COMPREPLY=()
    while IFS= read -r name; do
        case "$name" in "$2"*) COMPREPLY+=("$name") ;; esac
    done < <("$1" {VERB} "$kind" 2>/dev/null)
}}
complete -F _stasis_named -o bashdefault -o default stasis
"#
    )
}

/// clap's marks become functions of ours. The first line is for the shell's own search (#compdef).
fn zsh(text: &str) -> String {
    let text = text.replace(":_hosts'", ":_stasis_containers'");
    let text = text.replace(":_users'", ":_stasis_images'");
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let (of_containers, of_images) = (Named::Containers.word(), Named::Images.word());
    format!(
        r#"{first}

_stasis_containers() {{
    local -a names
    names=(${{(f)"$(stasis {VERB} {of_containers} 2>/dev/null)"}})
    compadd -a names
}}

_stasis_images() {{
    local -a names
    names=(${{(f)"$(stasis {VERB} {of_images} 2>/dev/null)"}})
    compadd -a names
    _files
}}
{rest}"#
    )
}

/// What the positional arguments of verbs may be, for fish.
fn values(command: &Command) -> String {
    let verbs = command.get_subcommands().filter_map(|verb| {
        let positional = verb.get_positionals().flat_map(Arg::get_possible_values);
        let names: Vec<_> = positional
            .map(|value| value.get_name().to_owned())
            .collect();
        let (verb, names) = (verb.get_name(), names.join(" "));
        (!names.is_empty()).then(|| {
            format!(
                "complete -c stasis -n \"__fish_seen_subcommand_from {verb}\" -f -a \"{names}\"\n"
            )
        })
    });
    verbs.collect()
}

/// clap completes no positional argument for this shell.
fn fish(text: &str, containers: &[&str], images: &[&str]) -> String {
    let call = |kind: Named| format!("(stasis {VERB} {} 2>/dev/null)", kind.word());
    let line = |verbs: &[&str], kind: Named| {
        let (verbs, call) = (verbs.join(" "), call(kind));
        format!("complete -c stasis -n \"__fish_seen_subcommand_from {verbs}\" -a \"{call}\"\n")
    };
    let text = text.replace("(__fish_print_hostnames)", &call(Named::Containers));
    text + &line(containers, Named::Containers) + &line(images, Named::Images)
}
