//! Debian's `docker-registry` in a test host: over TLS, for one user.

use anyhow::Result;

use super::{Daemon, Host};

/// Where it listens, on `localhost`.
pub const PORT: u16 = 5443;
/// What it has stored of blobs, by their digests.
pub const BLOBS: &str = "/var/lib/docker-registry/docker/registry/v2/blobs";

/// A certificate that is nobody's but its own, for all ports.
const CERTIFICATE: &str = "mkdir -p /etc/registry; cd /etc/registry; openssl req -x509 -nodes \
    -newkey rsa:2048 -days 2 -keyout key.pem -out cert.pem -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE \
    && for port; do install -D cert.pem /etc/docker/certs.d/localhost:$port/ca.crt; done";

const SETTINGS: &str = "version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: /var/lib/docker-registry}}
http:
  addr: 127.0.0.1:5443
  tls: {certificate: /etc/registry/cert.pem, key: /etc/registry/key.pem}
auth: {htpasswd: {realm: tests, path: /etc/registry/htpasswd}}
";

/// bcrypt of "secret".
const USER: &str = "user:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";

impl Host {
    /// Starts it, and has this host trust it, at these other ports of `localhost` as well. Its user
    /// is `user`, with the password `secret`.
    ///
    /// # Errors
    /// It does not answer.
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
        self.write(
            program,
            "#!/bin/sh\nexec docker-registry serve /etc/registry/config.yml\n",
        )?;
        self.run(&["chmod", "755", program])?;
        let probe = format!("exec 3<>/dev/tcp/127.0.0.1/{PORT}");
        self.start_daemon("registry", &["bash", "-c", &probe])
    }
}
