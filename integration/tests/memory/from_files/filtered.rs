//! Containers whose seccomp profile refuses the calls that stasis makes in them: they are made with
//! the filter suspended, and the filter is in force afterwards.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::contents::IN_MEMORY;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

use super::has_holes;
use crate::suspended::{in_file, seen, toggled};

/// Calls that the program itself does not make.
const CALLS: [&str; 17] = [
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "memfd_create",
    "userfaultfd",
    "socketpair",
    "recvmsg",
    "sendmsg",
    "pidfd_open",
    "pidfd_getfd",
    "close_range",
    "mlock2",
    "munlock",
    "mremap",
    "wait4",
    "clone3",
];
const PROT_EXEC: u64 = 4;
const MADV_WIPEONFORK: u64 = 18;
const CLONE_THREAD: u64 = 0x0001_0000;
const MAP_SHARED_FIXED: u64 = 0x11;
const MAP_ANONYMOUS: u64 = 0x20;
/// The smallest mapping of contents, bytes.
const SMALLEST: u64 = 4 << 20;

#[test]
fn what_is_refused() -> Result<()> {
    // At ENOSYS, the C library makes threads in the older way.
    goes_through_files(HostKind::trixie()?, |rule| {
        rule["action"] = json!("SCMP_ACT_ERRNO");
        rule["errnoRet"] = json!(38);
    })
}

#[test]
fn what_is_deadly() -> Result<()> {
    goes_through_files(HostKind::sid_v2()?, |rule| {
        let starts_threads = rule["names"] == json!(["clone3"]);
        rule["action"] = json!(match starts_threads {
            true => "SCMP_ACT_ERRNO",
            false => "SCMP_ACT_KILL_PROCESS",
        });
        if starts_threads {
            rule["errnoRet"] = json!(38);
        }
    })
}

/// The program has no handler for SIGSYS.
#[test]
fn what_is_trapped() -> Result<()> {
    goes_through_files(HostKind::trixie()?, |rule| {
        let starts_threads = rule["names"] == json!(["clone3"]);
        rule["action"] = json!(match starts_threads {
            true => "SCMP_ACT_ERRNO",
            false => "SCMP_ACT_TRAP",
        });
        if starts_threads {
            rule["errnoRet"] = json!(38);
        }
    })
}

fn goes_through_files(kind: HostKind, act: impl Fn(&mut Value)) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let bundle = Bundle::make(stasis, "job", &["/bin/memcheck", "48", "10000"])?;
    let mut rules = rules();
    rules.iter_mut().for_each(act);
    bundle.change(|spec| {
        spec["linux"]["seccomp"] = json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "architectures": ["SCMP_ARCH_X86_64"],
            "syscalls": rules,
        });
    })?;
    let job = MemoryContainer::of(stasis, bundle, 10000)?;
    // A thread of the program gets memory of its own with its first answer.
    job.bundle.checkpoint("first", &["--leave-running"])?;
    job.goes_on()?;
    let filters = is_filtered(stasis, &job)?;
    for settings in ["", IN_MEMORY] {
        stasis.set(&stasis.low_level, settings)?;
        let before = seen(stasis, &job.bundle)?;
        job.bundle.checkpoint("goes-on", &["--leave-running"])?;
        has_holes(&job, "goes-on").context(settings)?;
        job.goes_on().context(settings)?;
        assert_eq!(seen(stasis, &job.bundle)?, before, "{settings}");
        assert_eq!(is_filtered(stasis, &job)?, filters);
        job.bundle.checkpoint("ends", &[])?;
        job.bundle.restore("ends")?;
        job.goes_on().context(settings)?;
        assert_eq!(is_filtered(stasis, &job)?, filters);
    }
    toggle(stasis)?;
    ensure!(in_file(stasis, &job.bundle)? > 0, "they are elsewhere");
    toggle(stasis)?;
    job.goes_on()?;
    assert_eq!(is_filtered(stasis, &job)?, filters);
    job.end()
}

fn toggle(stasis: &StasisHost) -> Result<()> {
    let output = toggled(stasis, "job").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.is_empty(), "{said}");
    Ok(())
}

/// Returns a rule for each call, and for calls that the program itself makes with other arguments.
fn rules() -> Vec<Value> {
    let masked = |name: &str, index: u32, mask: u64, value: u64| {
        json!({
            "names": [name],
            "args": [{
                "index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"
            }],
        })
    };
    let whole = CALLS.iter().map(|name| json!({ "names": [name] }));
    let with_arguments = [
        masked("mprotect", 2, PROT_EXEC, PROT_EXEC),
        masked("madvise", 1, u64::from(u32::MAX), MADV_WIPEONFORK),
        masked("clone", 0, CLONE_THREAD, 0),
        // The driver maps its devices, which are smaller, with such a call.
        json!({
            "names": ["mmap"],
            "args": [
                { "index": 1, "value": SMALLEST, "op": "SCMP_CMP_GE" },
                {
                    "index": 3, "value": MAP_SHARED_FIXED | MAP_ANONYMOUS,
                    "valueTwo": MAP_SHARED_FIXED, "op": "SCMP_CMP_MASKED_EQ"
                },
            ],
        }),
    ];
    whole.chain(with_arguments).collect()
}

/// Returns the number of each thread's filters; every thread has some, and all are in force.
fn is_filtered(stasis: &StasisHost, job: &MemoryContainer<'_>) -> Result<String> {
    let status = format!("cat /proc/{}/task/*/status", job.bundle.pid()?);
    let status = stasis.run_for_text(&["sh", "-c", &status])?;
    let modes = status.lines().filter(|line| line.starts_with("Seccomp:"));
    let modes: Vec<&str> = modes.collect();
    ensure!(
        !modes.is_empty() && modes.iter().all(|mode| mode.ends_with("\t2")),
        "{modes:?}"
    );
    let filters = status
        .lines()
        .filter(|line| line.starts_with("Seccomp_filters:"));
    Ok(filters.collect::<Vec<_>>().join("\n"))
}
