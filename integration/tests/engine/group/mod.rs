//! Several containers that are checkpointed, or restored, together: all of them, or none.

mod cases;
mod killed;
mod ranks;
mod restored;
mod sharing;
mod talking;
mod three;

use anyhow::{Context, Result};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;
use three::Three;

on_hosts!(all_cases: sid, trixie_v2);

type Case = fn(&mut Three<'_>) -> Result<()>;

const CASES: [(&str, Case); 17] = [
    ("left running", cases::left_running),
    ("ended and restored", cases::ended_and_restored),
    ("one is paused", cases::one_is_paused),
    ("a blocker in one", cases::a_blocker_in_one),
    ("not locked in time", cases::not_locked_in_time),
    ("a full disk for one", cases::a_full_disk_for_one),
    (
        "a full disk beside contents apart",
        cases::a_full_disk_beside_contents_apart,
    ),
    ("named twice, a directory in use", cases::refusals),
    ("two that overlap", cases::two_that_overlap),
    ("one ends meanwhile", cases::one_ends_meanwhile),
    (
        "one starts CUDA meanwhile",
        cases::one_starts_cuda_meanwhile,
    ),
    ("a dry run", cases::a_dry_run),
    (
        "killed before all are complete",
        killed::before_all_are_complete,
    ),
    ("killed behind that", killed::behind_that),
    ("told to end while it waits", killed::by_sigterm),
    ("killed in a restore", restored::killed),
    ("hooks behind a restore", restored::hooks),
];

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let mut three = Three::run(stasis, kind.low_level)?;
    for (name, case) in CASES {
        case(&mut three).with_context(|| name.to_owned())?;
        stasis.inject("")?;
        stasis
            .nothing_to_put_right()
            .with_context(|| name.to_owned())?;
        three.go_on().with_context(|| name.to_owned())?;
    }
    three.delete()
}

#[test]
fn memory_of_another_container() -> Result<()> {
    sharing::across_containers(HostKind::sid()?)
}

#[test]
fn ranks_in_a_container_each() -> Result<()> {
    ranks::in_a_container_each(HostKind::sid()?)
}

#[test]
#[ignore = "takes a host of its own, for what CRIU says"]
fn containers_that_talk_over_tcp() -> Result<()> {
    talking::over_tcp(HostKind::sid()?)
}
