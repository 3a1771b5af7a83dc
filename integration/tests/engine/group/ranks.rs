//! Ranks of one job in a container each, which meet on their GPUs all the time: the lock of one
//! container alone cannot succeed.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};

const IDS: [&str; 3] = ["rank-a", "rank-b", "rank-c"];
const PORTS: [u16; 3] = [10410, 10411, 10412];
/// On a busy machine the ranks need longer to meet than a lock's default deadline.
const PATIENT: &str = "deadlines.lock_ms = 60000\n";
/// The directory of the memory in which all of them meet.
const SHARED: &str = "/run/meeting";

pub(super) fn in_a_container_each(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.inject("gpus 2")?;
    stasis.set("runc", PATIENT)?;
    stasis.run(&["mkdir", "-p", SHARED])?;
    let ranks: Vec<Bundle<'_>> = (0..3)
        .map(|rank| start(stasis, rank))
        .collect::<Result<_>>()?;
    stasis.ask_until_up(PORTS[0])?;
    let mut met = meetings(stasis)?;
    for cycle in 1..=3 {
        let into = format!("/images/ranks-{cycle}");
        checkpoint(stasis, &into, &["--leave-running"])?;
        let after = meetings(stasis).context("left running")?;
        ensure!(after > met, "cycle {cycle}: {after} after {met}");
        let into = format!("{into}-ended");
        checkpoint(stasis, &into, &[])?;
        for rank in &ranks {
            let mut restore = rank.begin_restore_from(&format!("{into}/{}", rank.id))?;
            ensure!(restore.wait()?.success(), "{:?}", rank.message()?);
        }
        met = meetings(stasis).context("restored")?;
        ensure!(met > after, "cycle {cycle}: {met} after {after}");
    }
    ranks.iter().try_for_each(Bundle::delete)
}

fn start(stasis: &StasisHost, rank: usize) -> Result<Bundle<'_>> {
    let (port, only) = (PORTS[rank].to_string(), format!("only={rank}"));
    let command = [
        "/bin/ranks",
        &port,
        "3",
        &only,
        "file=/meeting/memory",
        "ahead=5",
    ];
    let bundle = Bundle::make(stasis, IDS[rank], &command)?;
    bundle.give(&[0, 1])?;
    bundle.mount(SHARED, "/meeting")?;
    bundle.run()?;
    Ok(bundle)
}

fn checkpoint(stasis: &StasisHost, into: &str, options: &[&str]) -> Result<()> {
    let mut command = stasis.command(PROGRAM);
    command.args(["checkpoint", "--group", "--root", ROOT, "--into", into]);
    let output = command
        .args(options)
        .args(IDS)
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    Ok(())
}

/// Returns the meetings in the containers' answers, "ok RANKS MEETINGS CHECKSUM".
fn meetings(stasis: &StasisHost) -> Result<u64> {
    let mut least = u64::MAX;
    for port in PORTS {
        let answer = stasis.ask(port)?.unwrap_or_default();
        let words: Vec<&str> = answer.split_whitespace().collect();
        ensure!(words.first() == Some(&"ok"), "the ranks say {answer:?}");
        least = least.min(words.get(2).context("no number of meetings")?.parse()?);
    }
    Ok(least)
}
