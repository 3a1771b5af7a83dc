//! `cuda-checkpoint`: what scripts, operators and CRIU's CUDA plugin call it for.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde_json::json;
use stasis_integration::bundle::Bundle;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::{CUDA_CHECKPOINT, Lab};
use stasis_integration::native;

const ROOT: &str = "/run/bundles";

#[test]
fn on_hybrid_cgroups() -> Result<()> {
    all_cases(&Lab::start(Suite::Trixie, Cgroups::oldest()?, "runc")?)
}

#[test]
fn on_cgroups_v2() -> Result<()> {
    all_cases(&Lab::start(Suite::Sid, Cgroups::V2, "runc")?)
}

fn all_cases(lab: &Lab) -> Result<()> {
    let _containerd = lab.containerd()?;
    let counter = Bundle::make(lab, "counter", &["/bin/counter", "10200"])?;
    counter.run()?;
    lab.ask_until_up(10200)?;
    let cases: [(&str, Case); 5] = [
        ("toggle", a_toggle_frees_the_gpu_and_gives_it_back),
        ("steps", each_step_says_nothing_and_wrong_ones_say_why),
        ("failure", a_toggle_that_fails_lets_the_process_go_on),
        ("still", what_cannot_answer_is_refused_at_once),
        ("plugin", criu_s_plugin_gets_what_it_asks_for),
    ];
    for (name, case) in cases {
        case(lab, &counter).context(name)?;
        assert_eq!(
            said(lab, &["--get-state", "-p", &pid(&counter)?])?,
            "running\n"
        );
    }
    counter.delete()?;
    a_container_is_toggled_as_a_whole(lab)?;
    ranks_are_locked_together_or_refused(lab)?;
    a_suspended_container_is_not_lost_for_want_of_room(lab)?;
    another_gpu_takes_the_place(lab)
}

type Case = fn(&Lab, &Bundle<'_>) -> Result<()>;

fn pid(bundle: &Bundle<'_>) -> Result<String> {
    Ok(bundle.pid()?.to_string())
}

/// What it writes to standard output; it has to succeed, and write nothing else.
fn said(lab: &Lab, arguments: &[&str]) -> Result<String> {
    let output = lab.command(CUDA_CHECKPOINT).args(arguments).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {errors}");
    ensure!(errors.is_empty(), "{arguments:?} said {errors}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// It has to change something without a word.
fn does(lab: &Lab, arguments: &[&str]) -> Result<()> {
    assert_eq!(said(lab, arguments)?, "", "{arguments:?}");
    Ok(())
}

/// It has to end with 1 and these words on standard error.
fn fails(lab: &Lab, arguments: &[&str], parts: &[&str]) -> Result<()> {
    let output = lab.command(CUDA_CHECKPOINT).args(arguments).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    for part in parts {
        assert!(errors.contains(part), "{part:?} is missing in: {errors}");
    }
    Ok(())
}

fn counts_on(lab: &Lab) -> Result<()> {
    let count = || -> Result<u32> { Ok(lab.ask(10200)?.context("no answer")?.parse()?) };
    let before = count()?;
    assert_eq!(count()?, before + 1);
    Ok(())
}

fn a_toggle_frees_the_gpu_and_gives_it_back(lab: &Lab, counter: &Bundle<'_>) -> Result<()> {
    let pid = pid(counter)?;
    does(lab, &["--toggle", "--pid", &pid])?;
    assert_eq!(
        said(lab, &["--get-state", "--pid", &pid])?,
        "checkpointed\n"
    );
    assert_eq!(lab.gpu_descriptors()?, 0);
    does(lab, &["--pid", &pid, "--toggle"])?;
    assert_ne!(lab.gpu_descriptors()?, 0);
    counts_on(lab)
}

fn each_step_says_nothing_and_wrong_ones_say_why(lab: &Lab, counter: &Bundle<'_>) -> Result<()> {
    let pid = pid(counter)?;
    let step = |action| does(lab, &["--action", action, "--pid", &pid]);
    let refused = |action, parts: &[&str]| fails(lab, &["--action", action, "-p", &pid], parts);
    refused(
        "unlock",
        &["(401)", "it is running now", "only a locked process"],
    )?;
    does(
        lab,
        &["--action", "lock", "--pid", &pid, "--timeout", "1000"],
    )?;
    assert_eq!(said(lab, &["--get-state", "--pid", &pid])?, "locked\n");
    fails(
        lab,
        &["--toggle", "-p", &pid],
        &["locked", "--action unlock"],
    )?;
    refused("restore", &["(401)", "it is locked now"])?;
    step("checkpoint")?;
    refused("checkpoint", &["(401)", "it is checkpointed now"])?;
    step("restore")?;
    step("unlock")?;
    counts_on(lab)?;
    lab.order("lock counter busy")?;
    let arguments = ["--action", "lock", "-p", &pid, "-t", "200"];
    fails(lab, &arguments, &["(600)", "it is running now", "--tree"])?;
    lab.order("")?;
    fails(
        lab,
        &["--toggle", "--pid", "4194303"],
        &["no process 4194303"],
    )?;
    for asked in [
        ["--get-state"].as_slice(),
        &["--get-restore-tid"],
        &["--toggle"],
    ] {
        let arguments = [asked, &["--pid", "1"]].concat();
        fails(lab, &arguments, &["process 1", "has no CUDA state", "(3)"])?;
    }
    fails(
        lab,
        &["--container", "counter", "--toggle"],
        &["no container counter below"],
    )
}

fn a_toggle_that_fails_lets_the_process_go_on(lab: &Lab, counter: &Bundle<'_>) -> Result<()> {
    lab.order("checkpoint counter error:801")?;
    let pid = pid(counter)?;
    let parts = ["(801)", "cudaMallocManaged", "it is running now"];
    fails(lab, &["--toggle", "--pid", &pid], &parts)?;
    counts_on(lab)?;
    // One step alone leaves it as NVIDIA's program does, and says so.
    does(lab, &["--action", "lock", "--pid", &pid])?;
    let parts = ["(801)", "it is locked now", "--action unlock"];
    fails(lab, &["--action", "checkpoint", "--pid", &pid], &parts)?;
    does(lab, &["--action", "unlock", "--pid", &pid])?;
    lab.order("")?;
    counts_on(lab)
}

fn what_cannot_answer_is_refused_at_once(lab: &Lab, counter: &Bundle<'_>) -> Result<()> {
    let pid = pid(counter)?;
    let all: [&[&str]; 5] = [
        &["--get-state", "--pid", &pid],
        &["--toggle", "--pid", &pid],
        &["--action", "lock", "--pid", &pid],
        &["--toggle", "--tree", &pid],
        &["--get-state", "--container", "counter", "--root", ROOT],
    ];
    lab.host.run(&["kill", "-STOP", &pid])?;
    for arguments in all {
        fails(
            lab,
            arguments,
            &["is stopped by a signal", "nothing was done"],
        )?;
    }
    lab.host.run(&["kill", "-CONT", &pid])?;
    ensure!(counter.runtime(&["pause", "counter"]).status()?.success());
    for arguments in all {
        fails(
            lab,
            arguments,
            &["is in a frozen cgroup", "nothing was done"],
        )?;
    }
    ensure!(counter.runtime(&["resume", "counter"]).status()?.success());
    counts_on(lab)
}

/// A process of the host as this process sees it.
fn from_outside(lab: &Lab, pid: &str) -> Result<Pid> {
    let namespace = |path: &Path| fs::read_link(path.join("ns/pid"));
    let wanted = namespace(&lab.host.path(format!("/proc/{pid}")))?;
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let same = namespace(&path).is_ok_and(|found| found == wanted);
        let status = fs::read_to_string(path.join("status")).unwrap_or_default();
        let inside = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let pids: Vec<&str> = inside.unwrap_or_default().split_whitespace().collect();
        if same && pids.contains(&pid) && pids.last() == Some(&"1") {
            return Ok(Pid::from_raw(pids[0].parse()?));
        }
    }
    anyhow::bail!("process {pid} of the host is not to be seen")
}

/// What CRIU's plugin does, in its order: the lock while the process runs, everything else with all of
/// its threads stopped but, for the time of the driver's work, the restore thread.
fn criu_s_plugin_gets_what_it_asks_for(lab: &Lab, counter: &Bundle<'_>) -> Result<()> {
    let pid = pid(counter)?;
    assert!(said(lab, &["-h"])?.contains("--action"));
    let restore_thread = said(lab, &["--get-restore-tid", "--pid", &pid])?;
    let number: u32 = restore_thread.trim().parse()?;
    assert_eq!(restore_thread, format!("{number}\n"));
    // It asks for the state of that thread.
    let thread = restore_thread.trim();
    assert_eq!(said(lab, &["--get-state", "--pid", thread])?, "running\n");
    let lock = ["--action", "lock", "--pid", &pid, "--timeout", "10000"];
    does(lab, &lock)?;

    let process = from_outside(lab, &pid)?;
    let mut of_the_driver = None;
    let mut stopped = Vec::new();
    for entry in fs::read_dir(format!("/proc/{process}/task"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let task = Pid::from_raw(name.parse()?);
        ptrace::seize(task, ptrace::Options::empty())?;
        stop(task)?;
        let status = fs::read_to_string(path.join("status"))?;
        if status.split_whitespace().any(|word| word == thread) {
            of_the_driver = Some(task);
        }
        stopped.push(task);
    }
    let of_the_driver = of_the_driver.context("the restore thread is not to be seen")?;
    assert!(stopped.len() > 1);
    assert_eq!(
        said(lab, &["--get-restore-tid", "--pid", &pid])?,
        restore_thread
    );
    let checkpoint = ["--action", "checkpoint", "--pid", &pid];
    fails(lab, &checkpoint, &["restore thread", "stopped by a tracer"])?;
    for actions in [["checkpoint"].as_slice(), &["restore", "unlock"]] {
        ptrace::cont(of_the_driver, None)?;
        for action in actions {
            does(lab, &["--action", action, "--pid", &pid])?;
        }
        stop(of_the_driver)?;
    }
    for task in stopped {
        ptrace::detach(task, None)?;
    }
    counts_on(lab)
}

fn stop(task: Pid) -> Result<()> {
    ptrace::interrupt(task)?;
    waitpid(task, Some(WaitPidFlag::__WALL))?;
    Ok(())
}

fn a_container_is_toggled_as_a_whole(lab: &Lab) -> Result<()> {
    let tree = Bundle::make(lab, "tree", &["/bin/tree", "10201"])?;
    tree.run()?;
    let first = lab.ask_until_up(10201)?;
    let container = ["--container", "tree", "--root", ROOT];
    let pid = pid(&tree)?;
    let root = ["--tree", &pid];
    let with = |target: &[&'static str], operation: &[&'static str]| [operation, target].concat();
    let states = |target: &[&str]| said(lab, &[&["--get-state"], target].concat());
    let all = |state: &str| -> Result<()> {
        for target in [container.as_slice(), &root] {
            let said = states(target)?;
            let words: Vec<&str> = said.split_whitespace().skip(1).step_by(2).collect();
            assert_eq!(words, [state; 3], "{said}");
        }
        Ok(())
    };
    all("running")?;
    does(lab, &with(&container, &["--toggle"]))?;
    all("checkpointed")?;
    assert_eq!(lab.gpu_descriptors()?, 0);
    does(lab, &[["--toggle"].as_slice(), &root].concat())?;
    all("running")?;
    // One that fails takes none of the others with it.
    lab.order("checkpoint tree-2 error:801")?;
    let parts = ["(801)", "all processes run, with their GPU"];
    fails(lab, &with(&container, &["--toggle"]), &parts)?;
    lab.order("")?;
    all("running")?;
    for (step, state) in [
        ("lock", "locked"),
        ("checkpoint", "checkpointed"),
        ("restore", "locked"),
        ("unlock", "running"),
    ] {
        does(lab, &with(&container, &["--action", step]))?;
        all(state)?;
    }
    // What is not of one state is not taken for it.
    let said = states(&container)?;
    let member = said.split_whitespace().next().context("no member")?;
    does(lab, &["--action", "lock", "--pid", member])?;
    for operation in [["--toggle"].as_slice(), &["--action", "unlock"]] {
        let parts = [
            "not all processes of container tree",
            "is locked",
            "is running",
        ];
        fails(lab, &with(&container, operation), &parts)?;
    }
    does(lab, &["--action", "unlock", "--pid", member])?;
    let (last, now) = (lab.ask(10201)?, lab.ask(10201)?);
    assert!(first.split_whitespace().count() == 8 && last.is_some() && now.is_some());
    tree.delete()?;
    let plain = Bundle::make(lab, "plain", &["/bin/pause"])?;
    plain.run()?;
    let arguments = ["--get-state", "--container", "plain", "--root", ROOT];
    fails(
        lab,
        &arguments,
        &["no process of container plain uses CUDA"],
    )?;
    plain.delete()
}

/// Ranks wait for each other inside CUDA calls: one alone is never done with its work.
fn ranks_are_locked_together_or_refused(lab: &Lab) -> Result<()> {
    let container = ["--container", "ranks", "--root", ROOT];
    let toggle = [["--toggle"].as_slice(), &container].concat();
    let ranks = Bundle::make(lab, "ranks", &["/bin/ranks", "10202", "3"])?;
    ranks.run()?;
    lab.ask_until_up(10202)?;
    for _ in 0..2 {
        does(lab, &toggle)?;
    }
    let answer = lab.ask(10202)?.unwrap_or_default();
    assert!(answer.starts_with("ok "), "{answer}");
    ranks.delete()?;
    let sharing = ["/bin/ranks", "10203", "2", "nccl=/bin/pause"];
    let ranks = Bundle::make(lab, "sharing", &sharing)?;
    ranks.run()?;
    lab.ask_until_up(10203)?;
    let toggle = ["--toggle", "--container", "sharing", "--root", ROOT];
    fails(
        lab,
        &toggle,
        &["nccl-p2p", "NCCL_P2P_DISABLE=1", "nothing was done"],
    )?;
    let answer = lab.ask(10203)?.unwrap_or_default();
    assert!(answer.starts_with("ok "), "{answer}");
    ranks.delete()
}

/// Neither in host memory, where its limit is in the way, nor on the GPU, which another has taken.
fn a_suspended_container_is_not_lost_for_want_of_room(lab: &Lab) -> Result<()> {
    if native::has_gpu() {
        return Ok(());
    }
    lab.order("memory 400")?;
    let memory = Bundle::make(lab, "suspended", &["/bin/memcheck", "64", "10205"])?;
    if lab.host.path("/sys/fs/cgroup/memory").exists() {
        let limit = json!({ "limit": 128 << 20, "swap": 128 << 20 });
        memory.change(|spec| spec["linux"]["resources"]["memory"] = limit)?;
    }
    memory.run()?;
    assert_eq!(lab.ask_until_up(10205)?, "ok 0");
    let toggle = ["--toggle", "--container", "suspended", "--root", ROOT];
    does(lab, &toggle)?;
    let hog = Bundle::make(lab, "hog", &["/bin/memcheck", "250", "10206"])?;
    hog.run()?;
    assert_eq!(lab.ask_until_up(10206)?, "ok 0");
    fails(lab, &toggle, &["MiB free", "nothing was done"])?;
    hog.delete()?;
    does(lab, &toggle)?;
    assert_eq!(lab.ask(10205)?.as_deref(), Some("ok 1"));
    let find = ["find", "/run/stasis/containers", "-type", "f"];
    let recorded = lab.host.run_for_text(&find).unwrap_or_default();
    assert_eq!(recorded, "", "nothing is left to put right");
    memory.delete()?;
    lab.order("")
}

fn another_gpu_takes_the_place(lab: &Lab) -> Result<()> {
    if native::has_gpu() {
        return Ok(());
    }
    lab.order("gpus 2")?;
    let memory = Bundle::make(lab, "moved", &["/bin/memcheck", "16", "10204"])?;
    memory.give(&[0, 1])?;
    memory.run()?;
    assert_eq!(lab.ask_until_up(10204)?, "ok 0");
    let pid = pid(&memory)?;
    let uuid = |gpu| format!("GPU-57415349-5300-4000-8000-00000000000{gpu}");
    let (first, second) = (uuid(1), uuid(2));
    let restore = |map: &str| -> Vec<String> {
        ["--action", "restore", "--pid", &pid, "--device-map", map]
            .map(str::to_owned)
            .to_vec()
    };
    does(lab, &["--toggle", "--pid", &pid])?;
    let incomplete = restore(&format!("{first}={second}"));
    let incomplete: Vec<&str> = incomplete.iter().map(String::as_str).collect();
    fails(
        lab,
        &incomplete,
        &["(1)", "it is checkpointed now", "every GPU"],
    )?;
    let complete = restore(&format!("{first}={second},{second}={first}"));
    let complete: Vec<&str> = complete.iter().map(String::as_str).collect();
    does(lab, &complete)?;
    does(lab, &["--action", "unlock", "--pid", &pid])?;
    assert_eq!(lab.ask(10204)?.as_deref(), Some("ok 1"));
    memory.delete()?;
    lab.order("")
}
