//! Options by which CRIU dumps and restores more, as far as an engine's command has them.
//!
//! Locks of files are no option here: the runtime requests them for every caller.

use std::collections::BTreeSet;

use clap::Args;
use stasis_config::Flavor;
use stasis_engine::operation::verb::Verb;
use stasis_engine::request::CriuOption;
use stasis_locate::engine::Engine;

/// The options of `stasis checkpoint`.
#[derive(Debug, Clone, Args)]
pub(super) struct CriuArguments {
    /// Save TCP connections. The restored container needs the same address. Only for podman and
    /// without an engine; for others write it into /etc/criu/runc.conf.
    #[arg(long)]
    tcp_established: bool,
    /// Leave out connections that a listening socket has not accepted yet. Only without an engine.
    #[arg(long)]
    tcp_skip_in_flight: bool,
    /// Save datagram sockets connected with a socket outside of the container, such as /dev/log,
    /// which a restore finds by its name. Only without an engine.
    #[arg(long)]
    ext_unix_sk: bool,
    /// Save removed files that have another name, such as named semaphores. Only without an engine.
    #[arg(long)]
    link_remap: bool,
}

impl CriuArguments {
    pub(super) fn options(&self) -> BTreeSet<CriuOption> {
        let given = [
            (self.tcp_established, CriuOption::TcpEstablished),
            (self.tcp_skip_in_flight, CriuOption::TcpSkipInFlight),
            (self.ext_unix_sk, CriuOption::ExtUnixSk),
            (self.link_remap, CriuOption::LinkRemap),
        ];
        let given = given.into_iter().filter(|(is_given, _)| *is_given);
        given.map(|(_, option)| option).collect()
    }
}

/// The options that a command has.
pub(super) struct Takes {
    who: String,
    what: Verb,
    options: &'static [CriuOption],
    flavor: Flavor,
}

/// Returns the options of an engine's checkpoint, or of a low-level runtime's (runc checkpoint(8),
/// crun src/checkpoint.c).
pub(super) fn of_checkpoint(engine: Option<Engine>, flavor: Flavor) -> Takes {
    let connections: &[CriuOption] = &[CriuOption::TcpEstablished];
    let (who, options): (_, &[CriuOption]) = match (engine, flavor) {
        (Some(Engine::Podman), _) => ("podman".to_owned(), connections),
        (Some(other), _) => (other.to_string(), &[]),
        (None, Flavor::Runc) => ("runc".to_owned(), CriuOption::ALL),
        (None, Flavor::Crun) => (
            "crun".to_owned(),
            &[CriuOption::TcpEstablished, CriuOption::ExtUnixSk],
        ),
    };
    Takes {
        who,
        what: Verb::Checkpoint,
        options,
        flavor,
    }
}

/// Returns the options of a restore: at most `TcpEstablished`.
pub(super) fn of_restore(engine: Option<Engine>, flavor: Flavor) -> Takes {
    let connections: &[CriuOption] = &[CriuOption::TcpEstablished];
    let of_checkpoint = of_checkpoint(engine, flavor);
    Takes {
        what: Verb::Restore,
        options: match of_checkpoint.options {
            [] => &[],
            _ => connections,
        },
        ..of_checkpoint
    }
}

impl Takes {
    /// Refuses options that the command does not have.
    pub(super) fn admit(&self, options: &BTreeSet<CriuOption>) -> Result<(), NoOption> {
        let mut unknown = options.iter();
        let unknown = unknown.find(|option| !self.options.contains(option));
        unknown.map_or(Ok(()), |option| {
            Err(NoOption {
                who: self.who.clone(),
                what: self.what,
                option: *option,
                flavor: self.flavor,
            })
        })
    }
}

/// A command does not have a requested option.
#[derive(Debug, thiserror::Error)]
#[error(
    "{who} has no option --{option} for a {what}; write a line \"{option}\" into \
     /etc/criu/{flavor}.conf: CRIU reads it for every caller"
)]
pub(super) struct NoOption {
    who: String,
    what: Verb,
    option: CriuOption,
    flavor: Flavor,
}

/// Formats the options, which are spelled the same in all commands that have any.
pub(super) fn words(options: &BTreeSet<CriuOption>) -> impl Iterator<Item = String> {
    options.iter().map(|option| format!("--{option}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_asked_for_what_its_command_has() {
        let all: BTreeSet<_> = CriuOption::ALL.iter().copied().collect();
        let connections = BTreeSet::from([CriuOption::TcpEstablished]);
        let none = BTreeSet::new();
        let takes = |engine, flavor, options: &BTreeSet<_>| {
            let admitted = of_checkpoint(engine, flavor).admit(options);
            admitted.map_err(|no_option| no_option.to_string())
        };
        let (runc, crun) = (Flavor::Runc, Flavor::Crun);
        takes(None, runc, &all).unwrap();
        takes(None, crun, &connections).unwrap();
        takes(Some(Engine::Podman), runc, &connections).unwrap();
        for engine in [Engine::Docker, Engine::Containerd, Engine::Cri] {
            takes(Some(engine), runc, &none).unwrap();
            let refused = takes(Some(engine), runc, &connections).unwrap_err();
            assert!(refused.contains("\"tcp-established\" into /etc/criu/runc.conf"));
        }
        let restore = |engine| of_restore(engine, runc).admit(&connections);
        restore(Some(Engine::Podman)).unwrap();
        restore(None).unwrap();
        let refused = restore(Some(Engine::Docker)).unwrap_err().to_string();
        assert!(refused.starts_with("docker has no option --tcp-established for a restore"));
        let refused = takes(Some(Engine::Podman), crun, &all).unwrap_err();
        assert!(refused.starts_with("podman has no option --tcp-skip-in-flight"));
        assert!(refused.contains("/etc/criu/crun.conf"), "{refused}");
    }

    #[test]
    fn words_are_options() {
        let both = BTreeSet::from([CriuOption::LinkRemap, CriuOption::TcpEstablished]);
        let words: Vec<_> = words(&both).collect();
        assert_eq!(words, ["--tcp-established", "--link-remap"]);
    }
}
