//! Names that a shell completes.

use anyhow::Result;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};

use super::as_one_of_runc;

on_hosts!(bash_completes_containers_and_images: trixie, sid_v2);

/// Calls what bash calls for the last of these words, and prints what it would offer.
const COMPLETE: &str = r#"
source /tmp/share/bash-completion/completions/stasis.bash
function=$(complete -p stasis | sed 's/.* -F \([^ ]*\) .*/\1/')
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;
const IMAGE: &str = "/images/job-seen";

fn bash_completes_containers_and_images(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::of(kind)?;
    let _containerd = stasis.containerd()?;
    let job = Bundle::make(stasis, "job", &["/bin/counter", "10001"])?;
    job.run()?;
    as_one_of_runc(stasis)?;
    stasis.ask_until_up(10001)?;
    job.checkpoint("seen", &["--leave-running"])?;
    stasis.host.run(&[PROGRAM, "documents", "/tmp/share"])?;
    for (words, offered) in [
        (&["suspend", "jo"][..], "job"),
        (&["suspend", ""], "job"),
        (&["resume", "--wait", "j"], "job"),
        (&["check", "j"], "job"),
        (&["log", "--container", "j"], "job"),
        (&["inspect", "/im"], IMAGE),
        (&["verify", ""], IMAGE),
        (&["suspend", "other"], ""),
        (&["suspend", "--js"], "--json"),
        (&["susp"], "suspend"),
    ] {
        assert_eq!(completed(stasis, words)?, offered, "{words:?}");
    }
    no_shell_gets_what_it_could_carry_out(stasis)?;
    job.delete()
}

fn no_shell_gets_what_it_could_carry_out(stasis: &StasisHost) -> Result<()> {
    let odd = "/images/$(touch forged)";
    stasis.host.run(&["cp", "-r", IMAGE, odd])?;
    let line = serde_json::json!({
        "time": "2026-11-25T10:00:00Z",
        "operation": "checkpoint",
        "container": "odd",
        "image_path": odd,
    });
    let append = ["sh", "-c", "echo \"$0\" >>/var/log/stasis/operations.log"];
    let line = line.to_string();
    stasis.host.run(&[&append[..], &[&line]].concat())?;
    let listed = stasis.host.run_for_text(&[PROGRAM, "images"])?;
    assert!(listed.contains(odd), "{listed}");
    assert_eq!(completed(stasis, &["verify", ""])?, IMAGE);
    Ok(())
}

fn completed(stasis: &StasisHost, words: &[&str]) -> Result<String> {
    let bash = [&["bash", "-c", COMPLETE, "bash", "stasis"], words].concat();
    Ok(stasis.host.run_for_text(&bash)?.trim().to_owned())
}
