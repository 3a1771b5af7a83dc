//! Settings of a test host's containerd with which its CRI plugin comes up.

use anyhow::Result;

use crate::host::image::Image;
use crate::host::{Host, Suite};

const CONFIG: &str = "/etc/containerd/config.toml";
const IMPORTED: &str = "/etc/containerd/conf.d/stasis.toml";
/// Test hosts have the native snapshotter only, without which CRI does not start.
const UNPACK: &str = "[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]\n\
                      platform = 'linux'\nsnapshotter = 'native'\n";
/// On a busy machine its own 2 and 5 s are too short: a shim that answers late is forgotten.
const TIMEOUTS: &str = "[timeouts]\n'io.containerd.timeout.shim.cleanup' = '60s'\n\
                        'io.containerd.timeout.shim.load' = '120s'\n\
                        'io.containerd.timeout.task.state' = '60s'\n";

const CERTS: &str = "/etc/containerd/certs.d";
/// The registry of a test host speaks plain HTTP.
const PLAIN: &str = "[host.'http://localhost']\ncapabilities = ['pull', 'resolve']\n";

/// The snippet that ships for a suite's containerd.
#[must_use]
pub fn shipped(suite: Suite) -> &'static str {
    match suite {
        Suite::Trixie => include_str!("../../../../config/containerd/config-1.x.toml"),
        Suite::Sid => include_str!("../../../../config/containerd/config-2.x.toml"),
    }
}

/// Puts a snippet into force in the way that it asks for; the test image serves as the sandbox's.
///
/// Nothing lowers the score that a sandbox has with the kernel's OOM killer: only a privileged root
/// may, and the root of a test machine that is a container itself is not privileged.
pub fn write(host: &Host, suite: Suite, snippet: &str) -> Result<()> {
    let image = Image::DEFAULT_NAME;
    host.write(&format!("{CERTS}/localhost/hosts.toml"), PLAIN)?;
    match suite {
        Suite::Trixie => {
            let cri = "plugins.'io.containerd.grpc.v1.cri'";
            let main = format!(
                "{snippet}\n{TIMEOUTS}[{cri}]\nsandbox_image = '{image}'\n\
                 restrict_oom_score_adj = true\n\
                 [{cri}.registry]\nconfig_path = '{CERTS}'\n\
                 [{cri}.containerd]\nsnapshotter = 'native'\n{UNPACK}"
            );
            host.write(CONFIG, &main)
        }
        // With a main file of version 3: what one of version 2 says about CRI is lost when a file
        // of version 3 is imported.
        Suite::Sid => {
            let images = "plugins.'io.containerd.cri.v1.images'";
            let runtime = "plugins.'io.containerd.cri.v1.runtime'";
            let main = format!(
                "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n{TIMEOUTS}\
                 [{images}]\nsnapshotter = 'native'\n\
                 [{images}.registry]\nconfig_path = '{CERTS}'\n\
                 [{images}.pinned_images]\nsandbox = '{image}'\n\
                 [{runtime}]\nrestrict_oom_score_adj = true\n\
                 [{runtime}.cni]\nconf_dir = '/etc/cni/net.d'\n{UNPACK}"
            );
            host.write(CONFIG, &main)?;
            host.write(IMPORTED, snippet)
        }
    }
}
