//! The arguments that the low-level runtime receives.

use super::*;

#[test]
fn what_is_not_ours_passes_through() {
    for line in [
        "",
        "checkpoint",
        "checkpoint --help",
        "restore --help c1",
        "--help",
        "--version",
        "features",
        "delete --regex c",
        "delete -f -r c",
        "checkpoint a/b",
        "checkpoint ..",
        "restore --lsm-mount-context",
        "--root",
        "exec c1 checkpoint c1",
    ] {
        assert_eq!(parse(line).action, Action::PassThrough, "{line}");
        assert_eq!(
            line_for_runc(line),
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        );
    }
    for (line, bundle) in [
        ("run c1", "/cwd"),
        ("create --bundle /b --pid-file /p c1", "/b"),
        ("create -b b c1", "/cwd/b"),
    ] {
        let Action::Create(request) = parse(line).action else {
            panic!("{line} creates nothing");
        };
        assert_eq!(request.bundle, Path::new(bundle), "{line}");
        assert_eq!(line_for_runc(line), line);
    }
    let id = || "c1".to_owned();
    assert_eq!(parse("state c1").action, Action::State { id: id() });
    assert_eq!(parse("start c1").action, Action::Start { id: id() });
    assert_eq!(
        parse("resume c1").action,
        Action::Resume { id: "c1".into() }
    );
    for (line, mode) in [
        ("delete c1", DeleteMode::Stopped),
        ("delete --force c1", DeleteMode::Force),
        ("--root /r delete -f c1", DeleteMode::Force),
    ] {
        let id = "c1".into();
        assert_eq!(parse(line).action, Action::Delete { id, mode }, "{line}");
    }
}

fn line_for_runc(line: &str) -> String {
    self::line(&parse(line).pass_on(Flavor::Runc))
}

#[test]
fn our_own_option_is_taken_out_before_the_subcommand_only() {
    let invocation = parse("--stasis-config /s --root /r checkpoint c1");
    assert_eq!(invocation.global.settings.as_deref(), Some(Path::new("/s")));
    assert_eq!(
        line(&invocation.pass_on(Flavor::Runc)),
        "--root /r checkpoint --file-locks c1"
    );
    let invocation = parse("--stasis-config=/s state c1");
    assert_eq!(invocation.global.settings.as_deref(), Some(Path::new("/s")));
    assert_eq!(line(&invocation.pass_on(Flavor::Runc)), "state c1");
    let invocation = parse("exec c1 --stasis-config /s");
    assert_eq!(invocation.global.settings, None);
    assert_eq!(
        line(&invocation.pass_on(Flavor::Runc)),
        "exec c1 --stasis-config /s"
    );
    let invocation = parse("--root --stasis-config state c1");
    assert_eq!(
        invocation.global.root.as_deref(),
        Some(Path::new("--stasis-config"))
    );
}

#[test]
fn runc_gets_its_arguments_byte_for_byte() {
    for given in [CONTAINERD, GO_RUNC, PODMAN] {
        let given = given.split_whitespace().collect::<Vec<_>>().join(" ");
        let passed = line_for_runc(&given);
        assert_eq!(
            passed.replacen(" --file-locks", "", 1),
            given.replacen(" --file-locks", "", 1)
        );
        assert_eq!(passed.matches("--file-locks").count(), 1, "{passed}");
    }
}

#[test]
fn locks_of_files_are_kept_unless_the_caller_says_no() {
    for (given, passed) in [
        ("checkpoint c1", "checkpoint --file-locks c1"),
        ("restore -d c1", "restore --file-locks -d c1"),
        ("checkpoint -file-locks c1", "checkpoint -file-locks c1"),
        (
            "restore --file-locks=false c1",
            "restore --file-locks=false c1",
        ),
        ("state c1", "state c1"),
        ("checkpoint --help", "checkpoint --help"),
    ] {
        assert_eq!(line_for_runc(given), passed);
    }
}

#[test]
fn crun_gets_what_its_parser_takes() {
    let args = parse(GO_RUNC).pass_on(Flavor::Crun);
    assert!(!line(&args).contains("subreaper"), "{args:?}");
    let args = parse("restore -no-pivot --empty-ns network -image-path /i -d c1");
    assert_eq!(
        line(&args.pass_on(Flavor::Crun)),
        "restore --image-path /i --file-locks -d c1"
    );
    // Other verbs are passed on unchanged.
    assert_eq!(
        line(&parse("state -x c1").pass_on(Flavor::Crun)),
        "state -x c1"
    );
}

#[test]
fn an_option_of_ours_goes_behind_the_subcommand() {
    let extra: [(&str, &OsStr); 1] = [("--pid-file", OsStr::new("/p"))];
    let args = parse("--root /r restore -d c1").pass_on_with(Flavor::Runc, &extra);
    assert_eq!(
        line(&args),
        "--root /r restore --pid-file /p --file-locks -d c1"
    );
}

#[test]
fn an_option_of_ours_takes_the_place_of_the_callers() {
    let ours: [(&str, &OsStr); 1] = [("--image-path", OsStr::new("/ours"))];
    let theirs = "--root /r checkpoint -image-path /a --file-locks --image-path=/b c1";
    for flavor in [Flavor::Runc, Flavor::Crun] {
        let args = parse(theirs).pass_on_with(flavor, &ours);
        assert_eq!(
            line(&args),
            "--root /r checkpoint --image-path /ours --file-locks c1"
        );
    }
}

#[test]
fn a_restore_in_the_place_of_a_create_has_its_options() {
    let create = |line: &str| match parse(line) {
        Invocation {
            action: Action::Create(request),
            ..
        } => request,
        other => panic!("{line}: {other:?}"),
    };
    let line = "--root /r --log /l --systemd-cgroup create -b b --pid-file=p --console-socket s \
                --no-pivot c1";
    let request = create(line);
    assert_eq!(request.without_restore, None);
    let restore = RestoreRequest {
        id: request.id.clone(),
        bundle: request.bundle.clone(),
        image_path: "/i".into(),
        work_path: Some("/w".into()),
        pid_file: request.pid_file.clone(),
        mode: RestoreMode::Detached,
    };
    assert_eq!(
        self::line(&parse(line).restore_instead(&request, &restore, &[])),
        "--root /r --log /l --systemd-cgroup --log /dev/null restore --detach --file-locks --no-pivot \
         --bundle /cwd/b --image-path /i --work-path /w --pid-file /cwd/p \
         --console-socket /cwd/s c1"
    );
    let other = |line| create(line).without_restore;
    assert_eq!(other("create --preserve-fds 2 c1"), Some("preserve-fds"));
    assert_eq!(other("create --preserve-fds=0 c1"), None);
    assert_eq!(other("create --pidfd-socket=/s c1"), Some("pidfd-socket"));
}
