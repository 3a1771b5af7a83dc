//! Debian's `docker-registry` in a test host: over TLS, for one user.

use std::fs;

use anyhow::Result;

use super::network::address;
use super::{Daemon, Host};

/// Its port, on `localhost` and in the network between hosts.
pub const PORT: u16 = 5443;
/// The address by which other hosts name it.
pub const REGISTRY: &str = "registry.test:5443";
/// The directory of its blobs, by their digests.
pub const BLOBS: &str = "/var/lib/docker-registry/docker/registry/v2/blobs";

/// A self-signed certificate, for all ports.
const CERTIFICATE: &str = "mkdir -p /etc/registry; cd /etc/registry; openssl req -x509 -nodes \
    -newkey rsa:2048 -days 2 -keyout key.pem -out cert.pem -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,DNS:registry.test -addext basicConstraints=critical,CA:FALSE \
    && for port; do install -D cert.pem /etc/docker/certs.d/localhost:$port/ca.crt; done";

const SETTINGS: &str = "version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: /var/lib/docker-registry}}
http:
  addr: :5443
  tls: {certificate: /etc/registry/cert.pem, key: /etc/registry/key.pem}
auth: {htpasswd: {realm: tests, path: /etc/registry/htpasswd}}
";

/// "user:secret"
const CREDENTIALS: &str = r#"{"auths":{"registry.test:5443":{"auth":"dXNlcjpzZWNyZXQ="}}}"#;

/// bcrypt of "secret".
const USER: &str = "user:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";

impl Host {
    /// Starts it, and has this host trust it, at these other ports of `localhost` as well. Its user
    /// is `user`, with the password `secret`.
    pub fn docker_registry(&self, other_ports: &[u16]) -> Result<Daemon<'_>> {
        let ports: Vec<_> = other_ports
            .iter()
            .chain([&PORT])
            .map(u16::to_string)
            .collect();
        let mut certify = vec!["bash", "-c", CERTIFICATE, "certify"];
        certify.extend(ports.iter().map(String::as_str));
        self.run(&certify)?;
        self.write("/etc/registry/config.yml", SETTINGS)?;
        self.write("/etc/registry/htpasswd", USER)?;
        let program = "/usr/local/bin/registry";
        self.script(
            program,
            "#!/bin/sh\nexec docker-registry serve /etc/registry/config.yml\n",
        )?;
        self.docker_registry_again()
    }

    /// Starts it once more, after it was killed.
    pub fn docker_registry_again(&self) -> Result<Daemon<'_>> {
        let probe = format!("exec 3<>/dev/tcp/127.0.0.1/{PORT}");
        self.start_daemon("registry", &["bash", "-c", &probe])
    }

    /// Has another host know the registry that runs in this one, number 1 of their network, trust
    /// it, and log in there as root.
    pub fn is_registry_of(&self, other: &Host) -> Result<()> {
        let certificate = fs::read_to_string(self.path("/etc/registry/cert.pem"))?;
        let trusted = format!("/etc/docker/certs.d/{REGISTRY}/ca.crt");
        other.write(&trusted, &certificate)?;
        let hosts = format!("127.0.0.1 localhost\n{} registry.test\n", address(1));
        other.write("/etc/hosts", &hosts)?;
        other.write("/root/.docker/config.json", CREDENTIALS)
    }
}
