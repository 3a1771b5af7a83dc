//! A process is asked whether its contents can come back.

use std::fs;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::contents::{comes_back, in_memory, suspended_in};
use super::detach::state;
use super::program::{Variant, Workload};
use crate::InjectionError;
use crate::rehearsal::rehearse;

/// The memory that RLIMIT_DATA counts, bytes.
fn data(workload: &Workload) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", workload.pid())).unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib = kib.and_then(|kib| kib.trim().strip_suffix(" kB")).unwrap();
    kib.trim().parse::<u64>().unwrap() << 10
}

fn limit(workload: &Workload, bytes: Option<u64>) {
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(Pid::from_raw(workload.pid()), Resource::Data, limit).unwrap();
}

#[test]
fn the_limit_of_what_comes_back_is_found_before() {
    for variant in [Variant::Lazy, Variant::Locked, Variant::Filtered] {
        let file = in_memory();
        let (workload, contents) = suspended_in(&file, variant);
        let (process, before) = (workload.process(), state(&workload));
        let bytes = contents.length;
        rehearse(&process, bytes, || Ok(())).unwrap();
        limit(&workload, Some(data(&workload) + bytes - 4096));
        let error = rehearse(&process, bytes, || panic!("it was allowed")).unwrap_err();
        let InjectionError::Rehearsal(error) = error else {
            panic!("{error}");
        };
        assert_eq!(error.raw_os_error(), Some(nix::libc::ENOMEM));
        limit(&workload, None);
        assert_eq!(state(&workload), before);
        comes_back(workload, contents);
    }
}
