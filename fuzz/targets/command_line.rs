//! The command line of runc and crun: arguments with line feeds between them. Arguments that are
//! not ours are passed on to runc unchanged.
#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use libfuzzer_sys::fuzz_target;
use stasis_config::Flavor;
use stasis_runtime::oci::{Action, Invocation};

fuzz_target!(|text: &[u8]| {
    let args = text.split(|byte| *byte == b'\n');
    let args: Vec<OsString> = args.map(|arg| OsString::from_vec(arg.to_vec())).collect();
    let invocation = Invocation::parse(args.clone());
    let _ = invocation.pass_on(Flavor::Crun);
    let passed_on = invocation.pass_on(Flavor::Runc);
    if invocation.action == Action::PassThrough && invocation.global.low_level.is_none() {
        let ours = |arg: &OsString| arg.to_string_lossy().contains("stasis");
        assert!(
            passed_on == args || args.iter().any(ours),
            "{args:?}: {passed_on:?}"
        );
    }
});
