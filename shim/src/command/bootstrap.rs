//! The request and the answer of `start`.
//!
//! containerd 1.6 to 2.2 pass flags, environment variables and, on standard input, the runtime
//! options; 2.3 and later pass BootstrapParams on standard input. 1.x expects a bare address as the
//! answer. 2.x accepts that as the answer of a version 2 shim. The request of 1.7 is the
//! same as that of 2.2, so both get the bare address.

use std::io::{self, IsTerminal, Read};

use containerd_shim::bootstrap::{BootstrapParams, BootstrapResult, Extension};
use containerd_shim::protos::protobuf::Message;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::{Flags, StartOpts};

use crate::command::serve::TTRPC_ADDRESS;
use crate::error::{Error, Result};

/// The version of the task service in the answer. We serve version 3, too, but for that containerd
/// 2.3 only connects to a pod's shim for each of its containers, and when the shim is killed cleans
/// up after the first alone (core/runtime/v2/shim_manager.go): the others would go on with their
/// GPUs, without a manager. For version 2 it calls `start` and `delete` for each.
const VERSION: i32 = 2;

/// containerd reads at most as much.
const MAX_INPUT_BYTES: u64 = 10 << 20;

/// The request of `start`.
#[derive(Debug)]
pub(crate) struct StartRequest {
    /// The shim to start.
    pub(crate) options: StartOpts,
    /// The form of the answer.
    pub(crate) reply: Reply,
}

/// The form in which containerd expects the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The bare address.
    Address,
    /// A BootstrapResult.
    Message,
}

impl StartRequest {
    /// Reads flags, environment and standard input.
    pub(crate) fn read(flags: &Flags) -> Result<Self> {
        let address = std::env::var(TTRPC_ADDRESS).unwrap_or_default();
        let request = Self::parse(&read_stdin()?, flags, address);
        if request.options.ttrpc_address.is_empty() {
            return Err(Error::Other(format!(
                "{TTRPC_ADDRESS} is not set: this program is started by containerd"
            )));
        }
        Ok(request)
    }

    fn parse(input: &[u8], flags: &Flags, ttrpc_address: String) -> Self {
        // Runtime options decode as BootstrapParams, too. Only real BootstrapParams name this
        // container.
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
    /// Encodes the answer.
    pub(crate) fn encode(self, address: &str) -> Result<Vec<u8>> {
        match self {
            Reply::Address => Ok(address.as_bytes().to_vec()),
            Reply::Message => {
                let result = BootstrapResult {
                    version: VERSION,
                    address: address.to_owned(),
                    protocol: "ttrpc".to_owned(),
                    ..BootstrapResult::default()
                };
                Ok(result.write_to_bytes()?)
            }
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

/// The request on standard input; empty if a person runs this program on a terminal.
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
        .map_err(Error::cannot("read standard input"))?;
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
        let request =
            StartRequest::parse(&any.write_to_bytes().unwrap(), &flags(), "sock".to_owned());
        assert_eq!(request.reply, Reply::Address);
        assert_eq!(request.options.id, "c1");
        assert_eq!(request.options.ttrpc_address, "sock");
        let found = request.options.extension::<Options>().unwrap();
        assert_eq!(found.unwrap().shim_cgroup, "/shims");
        assert_eq!(request.reply.encode("unix:///s").unwrap(), b"unix:///s");
    }

    #[test]
    fn bootstrap_params_are_answered_with_a_message() {
        let params = BootstrapParams {
            instance_id: "c1".to_owned(),
            namespace: "k8s.io".to_owned(),
            containerd_ttrpc_address: "there".to_owned(),
            ..BootstrapParams::default()
        };
        let request =
            StartRequest::parse(&params.write_to_bytes().unwrap(), &flags(), String::new());
        assert_eq!(request.reply, Reply::Message);
        assert_eq!(request.options.ttrpc_address, "there");
        let reply = request.reply.encode("unix:///s").unwrap();
        let reply = BootstrapResult::parse_from_bytes(&reply).unwrap();
        assert_eq!((reply.version, reply.address.as_str()), (2, "unix:///s"));
    }

    #[test]
    fn without_input_the_flags_count() {
        let request = StartRequest::parse(&[], &flags(), "sock".to_owned());
        assert_eq!(request.reply, Reply::Address);
        assert_eq!(request.options.namespace, "k8s.io");
    }
}
