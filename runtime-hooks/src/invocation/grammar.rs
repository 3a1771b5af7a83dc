//! Options, their values, the subcommand and the id, told apart.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Our own options, allowed before the subcommand.
const OWN: [&str; 2] = ["stasis-config", "stasis-low-level"];

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

/// What runc has on checkpoint and restore and crun's argument parser refuses
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

/// A command line with its parts told apart.
pub(super) struct Scan<'a> {
    global: Vec<Given<'a>>,
    options: Vec<Given<'a>>,
    /// Where the subcommand is.
    pub(super) subcommand: usize,
    /// The subcommand.
    pub(super) name: &'a OsStr,
    /// The last argument that is no option and no value of one.
    pub(super) id: Option<&'a OsStr>,
}

/// An option as it was given.
struct Given<'a> {
    name: &'a OsStr,
    value: Option<&'a OsStr>,
}

impl<'a> Scan<'a> {
    /// The value of a global option; the last one counts.
    pub(super) fn global(&self, name: &str) -> Option<&'a OsStr> {
        last(&self.global, name).and_then(|given| given.value)
    }

    /// The value of an option of the subcommand.
    pub(super) fn value(&self, name: &str) -> Option<&'a OsStr> {
        last(&self.options, name).and_then(|given| given.value)
    }

    /// Whether a switch is on: `--switch` or `--switch=true`, but not `--switch=false`.
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

/// Tells the parts apart. `None` if there is no subcommand, or somebody asks for help: then the
/// low-level runtime answers.
pub(super) fn scan(args: &[OsString]) -> Option<Scan<'_>> {
    let mut at = 0;
    let global = options(args, &mut at, GLOBAL_VALUES);
    let subcommand = at;
    let name = args.get(at)?;
    at += 1;
    let (mut given, mut id) = (Vec::new(), None);
    while at < args.len() {
        given.extend(options(args, &mut at, VALUES));
        if let Some(positional) = args.get(at) {
            if positional != "--" {
                id = Some(positional.as_os_str());
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
        id,
    })
}

/// The options from `at` on, up to the first argument that is none.
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

/// The name and inline value of `--name`, `-name`, `--name=value`, `-name=value`.
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

/// What our own options say.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// `--stasis-config PATH`
    pub(super) settings: Option<PathBuf>,
    /// `--stasis-low-level PATH`
    pub(super) low_level: Option<PathBuf>,
}

/// Takes our own options out of those before the subcommand.
pub(super) fn take_own_options(args: Vec<OsString>) -> (Vec<OsString>, Own) {
    let mut end = 0;
    options(&args, &mut end, GLOBAL_VALUES);
    let (mut kept, mut own) = (Vec::with_capacity(args.len()), Own::default());
    let mut args = args.into_iter().enumerate();
    while let Some((at, arg)) = args.next() {
        match option(&arg) {
            Some((name, inline)) if at < end && OWN.iter().any(|own| name == *own) => {
                let inline = inline.map(OsStr::to_os_string);
                let value = inline.or_else(|| args.next().map(|(_, value)| value));
                let meant = if name == OWN[0] {
                    &mut own.settings
                } else {
                    &mut own.low_level
                };
                *meant = value.map(PathBuf::from);
            }
            // The value of another option is not looked at.
            Some((name, None)) if at < end && GLOBAL_VALUES.iter().any(|known| name == *known) => {
                kept.push(arg);
                kept.extend(args.next().map(|(_, value)| value));
            }
            _ => kept.push(arg),
        }
    }
    (kept, own)
}

/// The arguments after the subcommand as crun's parser takes them: with two dashes, since it takes
/// `-long` for single letters, and without what it does not know and what is `replaced`.
pub(super) fn for_crun(args: &[OsString], replaced: &[(&str, &OsStr)]) -> Vec<OsString> {
    let replaced = replaced
        .iter()
        .map(|(name, _)| name.trim_start_matches('-'));
    let dropped: Vec<&str> = NOT_IN_CRUN.iter().copied().chain(replaced).collect();
    let mut kept = Vec::with_capacity(args.len());
    let mut at = 0;
    while at < args.len() {
        let first = at;
        let Some((name, inline)) = option(&args[at]) else {
            kept.push(args[at].clone());
            at += 1;
            continue;
        };
        at += 1;
        if inline.is_none() && VALUES.iter().any(|known| name == *known) {
            at = (at + 1).min(args.len());
        }
        if dropped.iter().any(|dropped| name == *dropped) {
            continue;
        }
        kept.push(with_two_dashes(&args[first], name));
        kept.extend_from_slice(&args[first + 1..at]);
    }
    kept
}

fn with_two_dashes(arg: &OsStr, name: &OsStr) -> OsString {
    if name.len() == 1 || arg.as_bytes().starts_with(b"--") {
        return arg.to_os_string();
    }
    let mut long = OsString::from("-");
    long.push(arg);
    long
}
