//! Sockets, as CRIU has them (images/sk-inet.proto, sk-unix.proto).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use prost::Message;
use serde::Serialize;

use super::files::text;

/// `AF_INET6`.
const INET6: u32 = 10;
/// A path of a Unix socket has 108 bytes.
const MAX_NAME: usize = 108;

/// A socket of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Socket {
    pub(crate) protocol: &'static str,
    pub(crate) state: &'static str,
    /// Its address: with port, or a path; "@" begins one that is no file.
    pub(crate) local: Option<String>,
    /// The other end's.
    pub(crate) remote: Option<String>,
}

/// `inet_sk_entry`, as far as it is needed.
#[derive(Message)]
pub(super) struct InetSocket {
    #[prost(uint32, required, tag = "3")]
    family: u32,
    #[prost(uint32, required, tag = "5")]
    protocol: u32,
    #[prost(uint32, required, tag = "6")]
    state: u32,
    #[prost(uint32, required, tag = "7")]
    local_port: u32,
    #[prost(uint32, required, tag = "8")]
    remote_port: u32,
    #[prost(uint32, repeated, packed = "false", tag = "11")]
    local: Vec<u32>,
    #[prost(uint32, repeated, packed = "false", tag = "12")]
    remote: Vec<u32>,
}

/// `unix_sk_entry`, as far as it is needed.
#[derive(Message)]
pub(super) struct UnixSocket {
    #[prost(uint32, required, tag = "4")]
    state: u32,
    #[prost(bytes = "vec", required, tag = "11")]
    name: Vec<u8>,
}

impl Socket {
    pub(super) fn of_inet(socket: &InetSocket) -> Self {
        Self {
            protocol: protocol(socket.family, socket.protocol),
            state: state(socket.state),
            local: address(&socket.local, socket.local_port),
            remote: address(&socket.remote, socket.remote_port),
        }
    }

    pub(super) fn of_unix(socket: &UnixSocket) -> Self {
        let name = match socket.name.split_first() {
            // unix(7): such a name may have any bytes.
            Some((0, rest)) => Some(format!("@{}", text(rest, MAX_NAME))),
            Some(_) => {
                let name = socket.name.split(|byte| *byte == 0).next();
                name.map(|name| text(name, MAX_NAME))
            }
            None => None,
        };
        Self {
            protocol: "unix",
            state: state(socket.state),
            local: name,
            remote: None,
        }
    }
}

/// The words are in the order of the network already, and in the memory of the machine. A peer
/// without a port is none.
fn address(words: &[u32], port: u32) -> Option<String> {
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    let ip: IpAddr = match words {
        [word] => Ipv4Addr::from(word.to_ne_bytes()).into(),
        [a, b, c, d] => {
            let bytes: Vec<u8> = [a, b, c, d]
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect();
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()
        }
        _ => return None,
    };
    Some(SocketAddr::from((ip, port)).to_string())
}

/// As `ss` and netstat(8) name them.
fn protocol(family: u32, protocol: u32) -> &'static str {
    match (family == INET6, protocol) {
        (false, 6) => "tcp",
        (true, 6) => "tcp6",
        (false, 17) => "udp",
        (true, 17) => "udp6",
        (_, 136) => "udplite",
        (_, 1 | 58) => "icmp",
        _ => "raw",
    }
}

/// Of the kernel's net/tcp_states.h, which it uses for all sockets.
fn state(number: u32) -> &'static str {
    match number {
        1 => "established",
        2 => "syn-sent",
        3 => "syn-received",
        4 => "fin-wait-1",
        5 => "fin-wait-2",
        6 => "time-wait",
        7 => "unconnected",
        8 => "close-wait",
        9 => "last-ack",
        10 => "listening",
        11 => "closing",
        _ => "unknown",
    }
}
