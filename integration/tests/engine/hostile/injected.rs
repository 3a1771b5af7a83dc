//! The injector's reads of a process, its writes there, and its helpers.
//!
//! A mapping of contents that the process keeps is tried in `memory/from_files/as_an_image.rs`.

endured! {
    fn a_second_library_of_the_drivers_name(trixie, "false-library", None);
    fn a_damaged_library_of_the_drivers_name(sid_v2, "spoiled-library", None);
    /// The process spoils its own code.
    fn code_that_is_overwritten(trixie, "overwritten-code", ToItself);
    fn a_job_that_is_overwritten(sid_v2, "overwritten-job", ToItself);
    fn slots_that_are_exchanged(trixie, "exchanged-slots", ToOthers);
    fn helpers_that_are_stopped(trixie, "helpers-stopped", ToOthers);
    fn helpers_that_are_killed(sid_v2, "helpers-killed", ToOthers);
    fn helpers_that_are_traced(trixie, "helpers-traced", ToOthers);
    /// 128 GiB of empty mappings, whose storing would not end.
    fn files_that_are_named_as_ours(trixie, "false-contents", None);
}
