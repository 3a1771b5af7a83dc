use super::*;

fn kill(line: &str) -> Option<(String, i32)> {
    match parse(line).action {
        Action::Kill(KillRequest { id, signal }) => Some((id, signal)),
        Action::PassThrough => None,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_signal_comes_after_the_container() {
    for line in [
        "kill c1",
        "kill c1 15",
        "kill c1 TERM",
        "kill --all c1 SIGTERM",
        "--root /r --log /l --log-format json kill --all c1 15",
        "kill -a c1 term",
    ] {
        assert_eq!(kill(line), Some(("c1".to_owned(), 15)), "{line}");
    }
    assert_eq!(kill("kill c1 9"), Some(("c1".to_owned(), 9)));
}

#[test]
fn what_is_not_understood_is_the_low_level_runtimes() {
    for line in [
        "kill",
        "kill --regex c 15",
        "kill -r c 15",
        "kill c1 NONE",
        "kill c1 15 more",
        "kill a/b 15",
        "kill --help c1",
    ] {
        assert_eq!(kill(line), None, "{line}");
        assert_eq!(super::line(&parse(line).pass_on(Flavor::Crun)), line);
    }
    let given = "--root /r kill -a c1 15";
    assert_eq!(super::line(&parse(given).pass_on(Flavor::Crun)), given);
}

#[test]
fn what_comes_later_says_nothing_in_its_callers_log() {
    let given = "--stasis-config /s.toml --stasis-low-level runc --root r --log /l --systemd-cgroup \
                 kill --all c1 15";
    let wait = Duration::from_secs(300);
    let commands = parse(given).stop_commands(Path::new("/cwd/r"), Flavor::Runc, wait);
    let later = "--root r --log /l --systemd-cgroup --root /cwd/r --log /dev/null";
    assert_eq!(line(&commands.kill), format!("{later} kill --all c1 15"));
    let own = "--stasis-config /s.toml --stasis-low-level runc --stasis-wait=300";
    assert_eq!(
        line(&commands.checkpoint),
        format!("{own} {later} checkpoint")
    );
    let again = Invocation::parse(
        commands
            .checkpoint
            .into_iter()
            .chain(["--image-path", "/i", "c1"].map(OsString::from))
            .collect(),
    );
    assert_eq!(again.global.root.as_deref(), Some(Path::new("/cwd/r")));
    assert!(matches!(again.action, Action::Checkpoint(request) if request.wait == wait));
    assert_eq!(checkpoint("checkpoint c1").wait, Duration::ZERO);
}
