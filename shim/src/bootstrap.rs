//! How containerd calls `start` and what it wants to hear.
//!
//! 1.6 to 2.2 give flags, environment and, on standard input, the runtime options; 2.3 and later
//! give BootstrapParams there. 1.x wants a bare address; so does 2.x, as the answer of a version 2
//! shim, and nothing tells 1.7 from 2.2: the bare address is the answer that all understand.

use std::io::{self, IsTerminal, Read};

use containerd_shim::bootstrap::{BootstrapParams, BootstrapResult, Extension};
use containerd_shim::protos::TASK_API_VERSION;
use containerd_shim::protos::protobuf::Message;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::{Flags, StartOpts};

use crate::error::{Error, Result};
use crate::serve::TTRPC_ADDRESS;

/// As much as containerd itself would read.
const MAX_INPUT_BYTES: u64 = 10 << 20;

/// What `start` was called with.
#[derive(Debug)]
pub(crate) struct Call {
    /// What to start.
    pub(crate) options: StartOpts,
    /// The answer that is expected.
    pub(crate) reply: Reply,
}

/// In which form containerd wants the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// By itself.
    Address,
    /// In a BootstrapResult.
    Message,
}

impl Call {
    /// Reads it.
    pub(crate) fn read(flags: &Flags) -> Result<Self> {
        let address = std::env::var(TTRPC_ADDRESS).unwrap_or_default();
        let call = Self::understand(&read_stdin()?, flags, address);
        if call.options.ttrpc_address.is_empty() {
            return Err(Error::Invalid(format!(
                "{TTRPC_ADDRESS} is not set: this program is started by containerd"
            )));
        }
        Ok(call)
    }

    fn understand(input: &[u8], flags: &Flags, ttrpc_address: String) -> Self {
        // Runtime options decode as BootstrapParams, too; only the real ones name this container.
        let params = BootstrapParams::parse_from_bytes(input);
        let named = params
            .ok()
            .filter(|params| params.instance_id == flags.id && params.namespace == flags.namespace);
        match named {
            Some(params) => Self {
                options: params.into(),
                reply: Reply::Message,
            },
            None => Self {
                options: from_flags(input, flags, ttrpc_address).into(),
                reply: Reply::Address,
            },
        }
    }
}

impl Reply {
    /// The answer.
    pub(crate) fn encode(self, address: &str) -> Result<Vec<u8>> {
        match self {
            Reply::Address => Ok(address.as_bytes().to_vec()),
            Reply::Message => BootstrapResult {
                version: TASK_API_VERSION,
                address: address.to_owned(),
                protocol: "ttrpc".to_owned(),
                ..BootstrapResult::default()
            }
            .write_to_bytes()
            .map_err(|error| Error::Invalid(format!("cannot encode the answer: {error}"))),
        }
    }
}

fn from_flags(input: &[u8], flags: &Flags, ttrpc_address: String) -> BootstrapParams {
    let options = Any::parse_from_bytes(input).ok();
    let options = options.filter(|any| !any.type_url.is_empty());
    let extension = |any| Extension {
        value: Some(any).into(),
        ..Extension::default()
    };
    BootstrapParams {
        instance_id: flags.id.clone(),
        namespace: flags.namespace.clone(),
        containerd_ttrpc_address: ttrpc_address,
        containerd_grpc_address: flags.address.clone(),
        containerd_binary: flags.publish_binary.clone(),
        extensions: options.map(extension).into_iter().collect(),
        ..BootstrapParams::default()
    }
}

/// What containerd wrote to standard input; nothing if a person started us.
pub(crate) fn read_stdin() -> Result<Vec<u8>> {
    let stdin = io::stdin();
    let mut input = Vec::new();
    if stdin.is_terminal() {
        return Ok(input);
    }
    stdin
        .lock()
        .take(MAX_INPUT_BYTES)
        .read_to_end(&mut input)
        .map_err(Error::io("read standard input"))?;
    Ok(input)
}

#[cfg(test)]
mod tests {
    use containerd_shim::api::Options;

    use super::*;

    fn flags() -> Flags {
        Flags {
            id: "c1".to_owned(),
            namespace: "k8s.io".to_owned(),
            address: "/run/containerd/containerd.sock".to_owned(),
            ..Flags::default()
        }
    }

    #[test]
    fn runtime_options_are_no_bootstrap_params() {
        let options = Options {
            shim_cgroup: "/shims".to_owned(),
            ..Options::default()
        };
        let any = Any {
            type_url: "containerd.runc.v1.Options".to_owned(),
            value: options.write_to_bytes().unwrap(),
            ..Any::default()
        };
        let call = Call::understand(&any.write_to_bytes().unwrap(), &flags(), "sock".to_owned());
        assert_eq!(call.reply, Reply::Address);
        assert_eq!(call.options.id, "c1");
        assert_eq!(call.options.ttrpc_address, "sock");
        let found = call.options.extension::<Options>().unwrap();
        assert_eq!(found.unwrap().shim_cgroup, "/shims");
        assert_eq!(call.reply.encode("unix:///s").unwrap(), b"unix:///s");
    }

    #[test]
    fn bootstrap_params_are_answered_with_a_message() {
        let params = BootstrapParams {
            instance_id: "c1".to_owned(),
            namespace: "k8s.io".to_owned(),
            containerd_ttrpc_address: "there".to_owned(),
            ..BootstrapParams::default()
        };
        let call = Call::understand(&params.write_to_bytes().unwrap(), &flags(), String::new());
        assert_eq!(call.reply, Reply::Message);
        assert_eq!(call.options.ttrpc_address, "there");
        let reply = call.reply.encode("unix:///s").unwrap();
        let reply = BootstrapResult::parse_from_bytes(&reply).unwrap();
        assert_eq!((reply.version, reply.address.as_str()), (3, "unix:///s"));
    }

    #[test]
    fn without_input_the_flags_count() {
        let call = Call::understand(&[], &flags(), "sock".to_owned());
        assert_eq!(call.reply, Reply::Address);
        assert_eq!(call.options.namespace, "k8s.io");
    }
}
