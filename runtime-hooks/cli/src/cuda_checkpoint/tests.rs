use std::time::Duration;

use clap::Parser;
use stasis_engine::suspend::Action;
use stasis_gpu::cuda::{GpuMap, GpuUuid};

use super::arguments::{Arguments, Operation};
use super::*;

const OLD: &str = "GPU-07070707-0707-0707-0707-070707070707";
const NEW: &str = "GPU-08080808-0808-0808-0808-080808080808";

fn parse(line: &str) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from([NAME].into_iter().chain(line.split_ascii_whitespace()))
}

fn code(line: &str) -> u8 {
    let words = [NAME].into_iter().chain(line.split_ascii_whitespace());
    main(words.map(OsString::from))
}

#[test]
fn the_command_lines_of_the_criu_plugin_are_understood() {
    for (line, operation) in [
        ("--get-restore-tid --pid 12", Operation::RestoreThread),
        ("--get-state --pid 12", Operation::State),
        (
            "--action lock --pid 12 --timeout 10000",
            Operation::Step(Action::Lock),
        ),
        (
            "--action checkpoint --pid 12",
            Operation::Step(Action::Checkpoint),
        ),
        (
            "--action restore --pid 12",
            Operation::Step(Action::Restore),
        ),
        ("--action unlock --pid 12", Operation::Step(Action::Unlock)),
    ] {
        let arguments = parse(line).unwrap();
        assert_eq!(arguments.operation(), operation, "{line}");
        assert_eq!(arguments.target.pid, Some(12), "{line}");
    }
}

#[test]
fn the_help_that_the_criu_plugin_reads_has_its_option_in_the_first_two_kilobytes() {
    for line in ["-h", "--help"] {
        let help = parse(line).unwrap_err();
        assert!(!help.use_stderr());
        let text = help.to_string();
        assert!(text.find("--action").is_some_and(|at| at < 2000), "{text}");
        assert_eq!(code(line), 0);
    }
}

#[test]
fn short_forms_any_order_and_other_spellings_are_as_good() {
    for line in [
        "--toggle --pid 12",
        "-p 12 --toggle",
        "-p12 --toggle",
        "--pid=12 --tog",
        "--pid 11 --toggle --pid 12",
    ] {
        let arguments = parse(line).unwrap();
        assert_eq!(arguments.operation(), Operation::Toggle, "{line}");
        assert_eq!(arguments.target.pid, Some(12), "{line}");
        assert_eq!(arguments.lock_timeout(), None);
    }
    let arguments = parse("--action lock -t 300 -p 12").unwrap();
    assert_eq!(arguments.lock_timeout(), Some(Duration::from_millis(300)));
    let arguments = parse("--action lock -t 0 -p 12").unwrap();
    assert_eq!(arguments.lock_timeout(), None, "0 waits for ever");
}

#[test]
fn a_device_map_has_whole_pairs_of_gpus() {
    let uuid = |byte| GpuUuid::from_bytes([byte; 16]);
    let line = |map: &str| format!("--action restore --pid 12 --device-map {map}");
    let bare = OLD.trim_start_matches("GPU-");
    let map = format!("{OLD}={NEW},{NEW}={bare}");
    let arguments = parse(&line(&map)).unwrap();
    let expected = GpuMap::new(vec![(uuid(7), uuid(8)), (uuid(8), uuid(7))]);
    assert_eq!(arguments.map(), expected);
    assert_eq!(
        parse(&format!("--action restore -p 1 -d {OLD}={NEW}"))
            .unwrap()
            .map(),
        GpuMap::new(vec![(uuid(7), uuid(8))])
    );
    for wrong in [
        OLD.to_owned(),
        format!("{OLD}=0"),
        format!("{map},{OLD}={OLD}"),
    ] {
        assert!(parse(&line(&wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn a_command_line_that_makes_no_sense_fails_as_everything_does() {
    for line in [
        "",
        "--toggle",
        "--pid 12",
        "--toggle --pid 0",
        "--toggle --pid -3",
        "--toggle --pid x",
        "--toggle --get-state --pid 12",
        "--action suspend --pid 12",
        "--toggle --tree 12",
        "--toggle --pid 12 --root /run/runc",
        "--launch-job --pid 12",
    ] {
        assert!(parse(line).is_err(), "{line}");
        assert_eq!(code(line), 1, "{line}");
    }
}

#[test]
fn states_are_written_as_the_criu_plugin_reads_them() {
    let words = [0, 1, 2, 3].map(|raw| word(CudaState::from(raw)));
    assert_eq!(words, ["running", "locked", "checkpointed", "failed"]);
}
