//! Manual pages: clap's sections of names, options and subcommands, and our own of what a command
//! line does not tell.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

use super::examples;

/// What all commands have in common.
const FILES: [(&str, &str); 4] = [
    (
        "/etc/stasis/stasis.toml",
        "The settings, each described there.",
    ),
    (
        "/var/log/stasis/operations.log",
        "What was done; `stasis log` shows it. CRIU's logs of failed \
      operations are beside it.",
    ),
    ("/run/stasis", "What is under way, or to be undone."),
    (
        "/usr/share/doc/stasis/docs",
        "More: commands.md has the fields of the JSON, doctor.md the findings, \
      troubleshooting.md the kinds of failures and what to do.",
    ),
];
const ENVIRONMENT: &str = "No variable changes what stasis does. PATH is where podman, docker, ctr and \
                           crictl are looked for, to which their own variables apply. With NO_COLOR \
                           tables have no colours.";
/// Of a command line that cannot be understood, and whatever ends a command early.
const NO_ANSWER: (&str, &str) = (
    "2",
    "the command line is wrong, or there is no answer: the reason is on \
                                       standard error, with its kind in brackets",
);
/// With which paragraph of its help a command tells its exit codes.
const CODES: &str = "Exit code ";

/// Writes the pages of a command and of all that it has.
///
/// # Errors
/// One cannot be written.
pub(super) fn write(command: Command, directory: &Path) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let root = command.clone();
    pages(&root, &command, directory)
}

fn pages(root: &Command, command: &Command, directory: &Path) -> io::Result<()> {
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name());
    fs::write(directory.join(format!("{name}.1")), page(root, command)?)?;
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    verbs
        .into_iter()
        .try_for_each(|verb| pages(root, verb, directory))
}

fn page(root: &Command, command: &Command) -> io::Result<Vec<u8>> {
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let (codes, told): (Vec<&str>, Vec<&str>) = about
        .split("\n\n")
        .partition(|paragraph| paragraph.starts_with(CODES));
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let shown = command.clone();
    let shown = shown
        .long_about(told.join("\n\n"))
        .override_usage(usage.to_owned());
    let man = Man::new(shown)
        .source(concat!("stasis ", env!("CARGO_PKG_VERSION")))
        .manual("stasis");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    let has_verbs = command.has_subcommands();
    if has_verbs {
        man.render_subcommands_section(&mut text)?;
    }
    let mut more = String::new();
    if !has_verbs {
        let codes = codes.first().copied().unwrap_or_default();
        exit_status(
            &mut more,
            codes,
            root.has_subcommands().then_some(NO_ANSWER),
        );
    }
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    examples(&mut more, name);
    if root.has_subcommands() {
        more += &format!(".SH ENVIRONMENT\n{}\n", escaped(ENVIRONMENT));
    }
    more += ".SH FILES\n";
    for (path, what) in FILES {
        tagged(&mut more, path, what);
    }
    see_also(&mut more, name);
    text.extend(more.into_bytes());
    Ok(text)
}

/// "Exit code 0: this; 1: that." `no_answer` is of all commands, unless they say something else.
fn exit_status(text: &mut String, codes: &str, no_answer: Option<(&'static str, &str)>) {
    let listed = codes.strip_prefix(CODES).unwrap_or_default();
    let mut told: Vec<(&str, String)> = Vec::new();
    for part in listed.trim_end_matches('.').split("; ") {
        match (part.split_once(": "), told.last_mut()) {
            (Some((code, what)), _) if code.bytes().all(|byte| byte.is_ascii_digit()) => {
                told.push((code, what.replace('\n', " ")));
            }
            (_, Some((_, what))) => *what += &format!("; {part}"),
            (_, None) => {}
        }
    }
    if let Some((code, what)) = no_answer
        && told.iter().all(|(told, _)| *told != code)
    {
        told.push((code, what.to_owned()));
    }
    told.sort_by_key(|(code, _)| code.len());
    *text += ".SH EXIT STATUS\n";
    for (code, what) in told {
        tagged(text, code, &format!("{what}."));
    }
}

fn examples(text: &mut String, name: &str) {
    if examples::of(name).next().is_some() {
        *text += ".SH EXAMPLES
";
    }
    for (line, what) in examples::of(name) {
        let end = if what.ends_with('?') { "" } else { "." };
        tagged(text, line, &format!("{what}{end}"));
    }
}

fn see_also(text: &mut String, own: &str) {
    let pages = match own {
        "stasis" => "criu(8), runc(8), crun(1)",
        _ => "stasis(1)",
    };
    *text += &format!(".SH SEE ALSO\n{pages}\n");
}

fn tagged(text: &mut String, tag: &str, what: &str) {
    *text += &format!(
        ".TP\n\\fB{}\\fR\n{}\n",
        escaped(tag).replace('-', "\\-"),
        escaped(what)
    );
}

/// As roff takes it: a backslash begins a request, and so does a dot or an apostrophe that begins a
/// line.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn exit_codes_are_listed_with_those_that_all_commands_have() {
        let mut text = String::new();
        let codes = "Exit code 0: it is; or so; 1: it\nis not; 130: a signal.";
        exit_status(&mut text, codes, Some(("2", "no answer")));
        let listed = [
            "0\\fR\nit is; or so",
            "1\\fR\nit is not",
            "2\\fR\nno answer",
            "130\\fR\na signal",
        ];
        let listed = listed.map(|code| format!(".TP\n\\fB{code}.\n")).concat();
        assert_eq!(text, format!(".SH EXIT STATUS\n{listed}"));
        let mut own = String::new();
        exit_status(
            &mut own,
            "Exit code 0: it is; 2: no.",
            Some(("2", "no answer")),
        );
        assert!(!own.contains("no answer"), "{own}");
    }

    #[test]
    fn a_page_has_what_a_command_line_does_not_tell() {
        let directory = tempfile::tempdir().unwrap();
        let ps = Command::new("ps").long_about("Show.\n\nMore.\n\nExit code 0: shown.");
        let ps = ps.arg(Arg::new("x").value_name("ID").num_args(0..));
        write(Command::new("stasis").subcommand(ps), directory.path()).unwrap();
        let page = fs::read_to_string(directory.path().join("stasis-ps.1")).unwrap();
        for part in [
            "\\fBstasis ps\\fR [ID]...\n",
            ".SH EXIT STATUS\n.TP\n\\fB0\\fR\nshown.\n",
            ".SH EXAMPLES\n.TP\n\\fBstasis ps\\fR\n",
            ".SH SEE ALSO\nstasis(1)\n",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        assert_eq!(page.matches("shown").count(), 1, "{page}");
    }

    #[test]
    fn nothing_is_a_request_of_roff() {
        assert_eq!(escaped(".SH \\fB"), "\\&.SH \\efB");
        let mut text = String::new();
        tagged(&mut text, "--json", "'x'");
        assert_eq!(text, ".TP\n\\fB\\-\\-json\\fR\n\\&'x'\n");
    }
}
