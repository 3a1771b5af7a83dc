//! Separates options, their values, the subcommand and the id.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use stasis_config::interface;

/// Our own options, allowed before the subcommand.
const OWN: [&str; 5] = [
    "stasis-config",
    "stasis-low-level",
    "stasis-group",
    interface::OPTION,
    WAIT,
];
/// Seconds that a checkpoint waits for another operation on the container.
pub(super) const WAIT: &str = "stasis-wait";

/// Options before the subcommand that take a value: runc's, and crun's `--cgroup-manager` and
/// `--log-level`.
const GLOBAL_VALUES: &[&str] = &[
    "root",
    "log",
    "log-format",
    "rootless",
    "criu",
    "cgroup-manager",
    "log-level",
    OWN[0],
    OWN[1],
    OWN[2],
    OWN[3],
    OWN[4],
];

/// Options of checkpoint, restore, resume and delete that take a value (runc 1.1 to 1.5, crun).
const VALUES: &[&str] = &[
    "image-path",
    "work-path",
    "parent-path",
    "bundle",
    "b",
    "pid-file",
    "console-socket",
    "manage-cgroups-mode",
    "empty-ns",
    "status-fd",
    "page-server",
    "lsm-profile",
    "lsm-mount-context",
    "network-lock",
    "preserve-fds",
];

/// Options of runc's checkpoint and restore that crun's argument parser refuses
/// (crun src/checkpoint.c, src/restore.c).
const NOT_IN_CRUN: &[&str] = &[
    "no-subreaper",
    "no-pivot",
    "empty-ns",
    "auto-dedup",
    "lazy-pages",
    "status-fd",
    "page-server",
    "link-remap",
    "tcp-skip-in-flight",
];

/// A command line, separated into its parts.
pub(super) struct Scan<'a> {
    global: Vec<Given<'a>>,
    options: Vec<Given<'a>>,
    /// The index of the subcommand.
    pub(super) subcommand: usize,
    /// The subcommand.
    pub(super) name: &'a OsStr,
    /// The arguments that are neither an option nor an option's value.
    pub(super) operands: Vec<&'a OsStr>,
}

/// An option of the command line.
struct Given<'a> {
    name: &'a OsStr,
    value: Option<&'a OsStr>,
}

impl<'a> Scan<'a> {
    /// Returns the container of most verbs: the last operand.
    pub(super) fn id(&self) -> Option<&'a OsStr> {
        self.operands.last().copied()
    }

    /// Returns the value of a global option; the last one counts.
    pub(super) fn global(&self, name: &str) -> Option<&'a OsStr> {
        last(&self.global, name).and_then(|given| given.value)
    }

    /// Returns the value of an option of the subcommand.
    pub(super) fn value(&self, name: &str) -> Option<&'a OsStr> {
        last(&self.options, name).and_then(|given| given.value)
    }

    /// Returns whether a switch is on: `--switch` or `--switch=true`, but not `--switch=false`.
    pub(super) fn has(&self, name: &str) -> bool {
        let off = |value: &OsStr| {
            ["false", "f", "0", "F", "FALSE", "False"]
                .iter()
                .any(|no| value == *no)
        };
        last(&self.options, name).is_some_and(|given| !given.value.is_some_and(off))
    }
}

fn last<'s, 'a>(given: &'s [Given<'a>], name: &str) -> Option<&'s Given<'a>> {
    given.iter().rev().find(|given| given.name == name)
}

/// Separates a command line into its parts. `None` without a subcommand, or with an option for help
/// or the version: then the low-level runtime answers.
pub(super) fn scan(args: &[OsString]) -> Option<Scan<'_>> {
    let mut at = 0;
    let global = options(args, &mut at, GLOBAL_VALUES);
    let subcommand = at;
    let name = args.get(at)?;
    at += 1;
    let (mut given, mut operands) = (Vec::new(), Vec::new());
    while at < args.len() {
        given.extend(options(args, &mut at, VALUES));
        if let Some(positional) = args.get(at) {
            if positional != "--" {
                operands.push(positional.as_os_str());
            }
            at += 1;
        }
    }
    let asks_for_help = |given: &Given<'_>| {
        ["help", "h", "?", "usage", "version", "v", "V"]
            .iter()
            .any(|name| given.name == *name)
    };
    if global.iter().chain(&given).any(asks_for_help) {
        return None;
    }
    Some(Scan {
        global,
        options: given,
        subcommand,
        name,
        operands,
    })
}

/// Returns the options from `at` on, up to the first argument that is not an option.
fn options<'a>(args: &'a [OsString], at: &mut usize, values: &[&str]) -> Vec<Given<'a>> {
    let mut found = Vec::new();
    while let Some((name, inline)) = args.get(*at).and_then(|arg| option(arg)) {
        *at += 1;
        let value = match inline {
            None if values.iter().any(|known| name == *known) => {
                let value = args.get(*at).map(OsString::as_os_str);
                *at += 1;
                value
            }
            other => other,
        };
        found.push(Given { name, value });
    }
    *at = (*at).min(args.len());
    found
}

/// Returns the name and inline value of `--name`, `-name`, `--name=value`, `-name=value`.
fn option(arg: &OsStr) -> Option<(&OsStr, Option<&OsStr>)> {
    let bytes = arg.as_bytes();
    let text = bytes
        .strip_prefix(b"--")
        .or_else(|| bytes.strip_prefix(b"-"))?;
    if text.is_empty() {
        return None;
    }
    let split = text.iter().position(|byte| *byte == b'=');
    Some(match split {
        Some(at) => (
            OsStr::from_bytes(&text[..at]),
            Some(OsStr::from_bytes(&text[at + 1..])),
        ),
        None => (OsStr::from_bytes(text), None),
    })
}

/// Removes our own options from the options before the subcommand; returns their values, in the
/// order of [`OWN`].
pub(super) fn take_own_options(
    args: Vec<OsString>,
) -> (Vec<OsString>, [Option<OsString>; OWN.len()]) {
    let mut end = 0;
    options(&args, &mut end, GLOBAL_VALUES);
    let (mut kept, mut own) = (Vec::with_capacity(args.len()), [const { None }; OWN.len()]);
    let mut args = args.into_iter().enumerate();
    while let Some((at, arg)) = args.next() {
        let given = option(&arg).filter(|_| at < end);
        let is_own = given.and_then(|(name, _)| OWN.iter().position(|own| name == *own));
        match (given, is_own) {
            (Some((_, inline)), Some(which)) => {
                let inline = inline.map(OsStr::to_os_string);
                own[which] = inline.or_else(|| args.next().map(|(_, value)| value));
            }
            // Skip the value of another option.
            (Some((name, None)), None) if GLOBAL_VALUES.iter().any(|known| name == *known) => {
                kept.push(arg);
                kept.extend(args.next().map(|(_, value)| value));
            }
            _ => kept.push(arg),
        }
    }
    (kept, own)
}

/// Returns the arguments after the subcommand without options that are `replaced`.
pub(super) fn without(args: &[OsString], replaced: &[(&str, &OsStr)]) -> Vec<OsString> {
    let mut kept = Vec::with_capacity(args.len());
    for (name, given) in with_values(args) {
        if !name.is_some_and(|name| is_among(name, replaced)) {
            kept.extend_from_slice(given);
        }
    }
    kept
}

/// Returns the arguments after the subcommand in crun's form: with two dashes, since its parser
/// reads `-long` as single letters, and without options unknown to it or `replaced`.
pub(super) fn for_crun(args: &[OsString], replaced: &[(&str, &OsStr)]) -> Vec<OsString> {
    let mut kept = Vec::with_capacity(args.len());
    for (name, given) in with_values(args) {
        match (name, given) {
            (Some(name), _)
                if is_among(name, replaced) || NOT_IN_CRUN.iter().any(|no| name == *no) => {}
            (Some(name), [first, value @ ..]) => {
                kept.push(with_two_dashes(first, name));
                kept.extend_from_slice(value);
            }
            _ => kept.extend_from_slice(given),
        }
    }
    kept
}

/// Returns whether an option is given, with any value.
pub(super) fn is_given(args: &[OsString], name: &str) -> bool {
    let mut given = args.iter().filter_map(|arg| option(arg));
    given.any(|(given, _)| given == name)
}

fn is_among(name: &OsStr, options: &[(&str, &OsStr)]) -> bool {
    let mut names = options.iter().map(|(name, _)| name.trim_start_matches('-'));
    names.any(|among| name == among)
}

/// Returns the arguments one after the other: an option with its name and its value, if that is
/// apart, or an operand.
fn with_values(args: &[OsString]) -> Vec<(Option<&OsStr>, &[OsString])> {
    let mut found = Vec::with_capacity(args.len());
    let mut at = 0;
    while at < args.len() {
        let first = at;
        let given = option(&args[at]);
        at += 1;
        if let Some((name, None)) = given
            && VALUES.iter().any(|known| name == *known)
        {
            at = (at + 1).min(args.len());
        }
        found.push((given.map(|(name, _)| name), &args[first..at]));
    }
    found
}

fn with_two_dashes(arg: &OsStr, name: &OsStr) -> OsString {
    if name.len() == 1 || arg.as_bytes().starts_with(b"--") {
        return arg.to_os_string();
    }
    let mut long = OsString::from("-");
    long.push(arg);
    long
}
