//! Resources that CRIU would not dump are found before anything is changed, with a GPU and without
//! one: CRIU fails at each of them if it is tried all the same.

use std::io::Read;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::{PROGRAM, StasisHost};

use super::{check, start};

const PORT: u16 = 10130;
/// The directory of the host's server, as containers see it.
const OUTSIDE: &str = "/run/outside";
const CONFIGURATION: &str = "/etc/criu/runc.conf";

/// A resource that the program holds, the kind of blocker, and its evidence.
const HELD: [(&str, &str, &str); 11] = [
    ("connection", "tcp-connection", "is connected"),
    ("outside", "unix-connection", "(perl)"),
    ("queue", "message-queue", "\"/queue\""),
    (
        "deleted",
        "deleted-file",
        "/removed (deleted)\", of 2097152",
    ),
    ("unmapped", "deleted-file", "is mapped, of 2097152 bytes"),
    ("semaphore", "deleted-file", "it has another name"),
    ("watch", "inotify-watch", "(inotify)"),
    ("nested", "nested-namespace", "of pids of its own"),
    ("faults", "kernel-object", "[userfaultfd]"),
    ("secret", "kernel-object", "/secretmem"),
    ("bpf", "kernel-object", "bpf-map"),
];

/// The options with which CRIU dumps them.
const ASKED: [(&str, &str); 5] = [
    ("connection", "tcp-established"),
    ("deleted", "ghost-limit 4M"),
    ("unmapped", "ghost-limit 4M"),
    ("semaphore", "link-remap"),
    ("watch", "irmap-scan-path /bin"),
];

pub(crate) fn what_criu_does_not_dump_is_refused(stasis: &StasisHost) -> Result<()> {
    stasis.run(&["mkdir", "-p", "/etc/criu", OUTSIDE])?;
    let mut server = server(stasis)?;
    for (what, kind, evidence) in HELD {
        let job = without_gpu(stasis, what, what)?;
        refused(stasis, &job, kind, evidence).with_context(|| format!("{what} is refused"))?;
        criu_fails(stasis, &job, kind).with_context(|| format!("{what} is tried"))?;
        if let Some((_, line)) = ASKED.iter().find(|(asked, _)| *asked == what) {
            stasis.write(CONFIGURATION, &format!("{line}\n"))?;
            let asked = begins(stasis, &job).and_then(|()| job.checkpoint("asked", GOES_ON));
            stasis.write(CONFIGURATION, "")?;
            asked.with_context(|| format!("{what} is asked for"))?;
        }
        job.delete()?;
    }
    server.kill()?;
    server.wait()?;
    options_ask(stasis)?;
    what_criu_dumps_passes(stasis)?;
    beside_a_gpu(stasis)
}

const GOES_ON: &[&str] = &["--leave-running"];

/// Accepts connections of containers, and keeps them.
fn server(stasis: &StasisHost) -> Result<Child> {
    let script = format!(
        "use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0) && bind(S, \
         pack_sockaddr_un('{OUTSIDE}/socket')) && listen(S, 9) || die; $| = 1; print qq(up\\n); \
         while (1) {{ accept(my $one, S); push @kept, $one; }}"
    );
    let mut perl = stasis.host.command("perl");
    let mut server = perl.args(["-e", &script]).stdout(Stdio::piped()).spawn()?;
    let mut says = [0; 3];
    let stdout = server.stdout.as_mut().context("no pipe")?;
    stdout.read_exact(&mut says)?;
    Ok(server)
}

/// Starts a container without a GPU that has `CAP_SYS_ADMIN`.
fn without_gpu<'l>(stasis: &'l StasisHost, id: &str, what: &str) -> Result<Bundle<'l>> {
    let job = Bundle::make(stasis, id, &["/bin/kept", &PORT.to_string(), what])?;
    job.mount(OUTSIDE, OUTSIDE)?;
    job.change(|spec| {
        spec["linux"]["devices"] = json!([]);
        for set in ["bounding", "effective", "permitted"] {
            spec["process"]["capabilities"][set] = json!(["CAP_SYS_ADMIN"]);
        }
    })?;
    if what == "watch" {
        over(stasis, &format!("{}/rootfs", job.directory()))?;
    }
    job.run()?;
    ensure!(stasis.ask_until_up(PORT)? == "1 ok", "{what}");
    Ok(job)
}

/// Mounts an overlay over a directory, as engines do for a container's file system.
fn over(stasis: &StasisHost, directory: &str) -> Result<()> {
    stasis.run(&["mkdir", "-p", "/run/layers/upper", "/run/layers/work"])?;
    let layers =
        format!("lowerdir={directory},upperdir=/run/layers/upper,workdir=/run/layers/work");
    let mount = [
        "mount", "-t", "overlay", "overlay", "-o", &layers, directory,
    ];
    stasis.run(&mount).map(drop)
}

fn refused(stasis: &StasisHost, job: &Bundle<'_>, kind: &str, evidence: &str) -> Result<()> {
    let (code, stdout, stderr) = check(stasis, &["--json", "--root", ROOT, &job.id])?;
    ensure!(code == Some(1), "{stdout}{stderr}");
    let report: Value = serde_json::from_str(&stdout)?;
    ensure!(report["kind"] == "blocked", "{report}");
    let blockers = report["blockers"].as_array().context("no blockers")?;
    let is_it = |found: &&Value| {
        let shown = found["evidence"].as_str().unwrap_or_default();
        found["kind"] == kind && shown.contains(evidence)
    };
    let found = blockers.iter().find(is_it);
    let found = found.with_context(|| format!("no {kind} with {evidence}: {report}"))?;
    ensure!(found["name"] == "kept" && found["way_out"] != "", "{found}");
    let is_alone = blockers.iter().all(|found| found["kind"] == kind);
    ensure!(is_alone, "{report}");
    let message = job.checkpoint_fails("refused", GOES_ON)?;
    let parts = ["refused [blocked]", kind, evidence, "nothing was changed"];
    assert_contains(&message.replace("\\\"", "\""), &parts);
    ensure!(!job.image_path("refused").exists(), "an image directory");
    stasis.nothing_to_put_right()
}

/// CRIU itself would not have dumped the container that is refused.
fn criu_fails(stasis: &StasisHost, job: &Bundle<'_>, kind: &str) -> Result<()> {
    stasis.set("runc", &format!("preflight.allow = [\"{kind}\"]\n"))?;
    let message = job.checkpoint_fails("tried", GOES_ON);
    stasis.set("runc", "")?;
    ensure!(
        message?.contains("criu failed"),
        "it is not CRIU that fails"
    );
    let answer = stasis.ask(PORT)?;
    ensure!(
        answer.is_some_and(|answer| answer.ends_with("ok")),
        "harmed"
    );
    Ok(())
}

fn begins(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let (code, stdout, stderr) = check(stasis, &["--root", ROOT, &job.id])?;
    ensure!(code == Some(0), "{stdout}{stderr}");
    Ok(())
}

/// The options of `stasis checkpoint`, and of the runtime.
fn options_ask(stasis: &StasisHost) -> Result<()> {
    let job = without_gpu(stasis, "options", "connection")?;
    let stasis_checkpoint = |options: &[&str]| -> Result<Value> {
        let mut command = stasis.command(PROGRAM);
        command.args(["checkpoint", &job.id, "--root", ROOT, "--json", "-R"]);
        let output = command.args(["--image", "/images/asked-of"]).args(options);
        Ok(serde_json::from_slice(&output.output()?.stdout)?)
    };
    let told = stasis_checkpoint(&["--dry-run"])?;
    ensure!(told["checkpointable"] == false, "{told}");
    let told = stasis_checkpoint(&["--dry-run", "--tcp-established"])?;
    ensure!(told["checkpointable"] == true, "{told}");
    let refused = stasis_checkpoint(&["--link-remap"])?;
    ensure!(refused["kind"] == "blocked", "{refused}");
    let done = stasis_checkpoint(&["--tcp-established"])?;
    ensure!(done["result"] == "done", "{done}");
    job.checkpoint("asked", &["--tcp-established", "--leave-running"])?;
    ensure!(stasis.ask(PORT)?.is_some(), "it is silent");
    job.delete()
}

fn what_criu_dumps_passes(stasis: &StasisHost) -> Result<()> {
    let holds = ["/bin/kept", "10130", "shared", "locks", "loopback"];
    let job = Bundle::make(stasis, "dumped", &holds)?;
    job.change(|spec| spec["linux"]["devices"] = json!([]))?;
    job.run()?;
    stasis.ask_until_up(PORT)?;
    begins(stasis, &job)?;
    job.checkpoint("dumped", &[])?;
    job.restore("dumped")?;
    let answer = stasis.ask(PORT)?;
    ensure!(answer.as_deref() == Some("2 ok"), "{answer:?}");
    job.delete()
}

fn beside_a_gpu(stasis: &StasisHost) -> Result<()> {
    let script = "/bin/kept 10131 connection deleted & exec /bin/counter 10130";
    let (job, first) = start(stasis, "beside", script, PORT)?;
    stasis.ask_until_up(10131)?;
    let message = job.checkpoint_fails("beside", &[])?;
    assert_contains(
        &message,
        &[
            "tcp-connection: ",
            "deleted-file: ",
            "(kept)",
            "nothing was changed",
        ],
    );
    ensure!(first == "101", "{first}");
    ensure!(stasis.ask(PORT)?.as_deref() == Some("102"), "harmed");
    job.delete()
}
