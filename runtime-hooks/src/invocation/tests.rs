use super::*;
use proptest::prelude::*;

fn parse(line: &str) -> Invocation {
    Invocation::parse_in(
        line.split_whitespace().map(OsString::from).collect(),
        Path::new("/cwd"),
    )
}

fn line(args: &[OsString]) -> String {
    args.join(OsStr::new(" ")).into_string().unwrap()
}

fn checkpoint(line: &str) -> CheckpointOptions {
    match parse(line).action {
        Action::Checkpoint(options) => options,
        other => panic!("{line}: {other:?}"),
    }
}

fn restore(line: &str) -> RestoreOptions {
    match parse(line).action {
        Action::Restore(options) => options,
        other => panic!("{line}: {other:?}"),
    }
}

const CONTAINERD: &str = "--root /run/containerd/runc/default --log /b/log.json --log-format json \
    checkpoint --image-path /i --work-path /b/work/criu-work --file-locks --leave-running c1";
const GO_RUNC: &str = "--root /r --log /b/log.json --log-format json restore --image-path /i \
    --work-path /b/work --detach --pid-file /b/init.pid --console-socket /s -no-subreaper \
    --bundle /b c1";
const PODMAN: &str = "checkpoint --image-path /u/checkpoint --work-path /u --leave-running \
    --tcp-established --leave-running c1";

#[test]
fn what_containerd_sends_is_understood() {
    let invocation = parse(CONTAINERD);
    assert_eq!(
        invocation.global.root.as_deref(),
        Some(Path::new("/run/containerd/runc/default"))
    );
    assert_eq!(
        invocation.global.log.as_deref(),
        Some(Path::new("/b/log.json"))
    );
    assert_eq!(invocation.global.log_format, LogFormat::Json);
    let options = checkpoint(CONTAINERD);
    assert_eq!(
        (options.id.as_str(), options.after),
        ("c1", AfterDump::LeaveRunning)
    );
    assert_eq!(options.image_path, Path::new("/i"));
    assert_eq!(
        options.work_path.as_deref(),
        Some(Path::new("/b/work/criu-work"))
    );
    let options = restore(GO_RUNC);
    assert_eq!(
        (options.id.as_str(), options.mode),
        ("c1", RestoreMode::Detached)
    );
    assert_eq!(options.pid_file.as_deref(), Some(Path::new("/b/init.pid")));
}

#[test]
fn what_podman_sends_is_understood() {
    assert_eq!(checkpoint(PODMAN).after, AfterDump::LeaveRunning);
    assert_eq!(checkpoint("checkpoint c1").after, AfterDump::Exit);
    assert_eq!(
        checkpoint("checkpoint --pre-dump c1").pre_dump,
        PreDump::Only
    );
    assert_eq!(
        checkpoint("checkpoint --leave-running=false c1").after,
        AfterDump::Exit
    );
}

#[test]
fn paths_are_made_absolute_and_have_the_runtimes_defaults() {
    assert_eq!(
        checkpoint("checkpoint c1").image_path,
        Path::new("/cwd/checkpoint")
    );
    assert_eq!(
        checkpoint("checkpoint --image-path=i c1").image_path,
        Path::new("/cwd/i")
    );
    assert_eq!(
        checkpoint("checkpoint -image-path i c1").image_path,
        Path::new("/cwd/i")
    );
    assert_eq!(
        restore("restore -d --pid-file p c1").pid_file.unwrap(),
        Path::new("/cwd/p")
    );
    assert_eq!(restore("restore c1").mode, RestoreMode::Attached);
}

#[test]
fn restore_looks_where_the_runtime_looks() {
    let options = restore("restore --bundle b --image-path i --work-path w --pid-file p c1");
    assert_eq!(options.bundle, Path::new("/cwd/b"));
    assert_eq!(options.image_path, Path::new("/cwd/b/i"));
    assert_eq!(options.work_path.unwrap(), Path::new("/cwd/b/w"));
    assert_eq!(options.pid_file.unwrap(), Path::new("/cwd/p"));
    let options = restore("restore -b /b --image-path /i c1");
    assert_eq!(options.image_path, Path::new("/i"));
    assert_eq!(restore("restore c1").bundle, Path::new("/cwd"));
    assert_eq!(
        restore("restore -b /b c1").image_path,
        Path::new("/cwd/checkpoint")
    );
    // crun would take both from the bundle.
    let args = parse("restore -b /b --pid-file=p c1").pass_on(Flavor::Crun);
    assert_eq!(
        line(&args),
        "restore --image-path /cwd/checkpoint --pid-file /cwd/p -b /b c1"
    );
}

#[test]
fn the_last_of_repeated_options_counts() {
    let options = checkpoint("--root /a --root=/b checkpoint --image-path /1 --image-path=/2 c1");
    assert_eq!(options.image_path, Path::new("/2"));
    assert_eq!(
        parse("--root /a --root=/b state c1").global.root.unwrap(),
        Path::new("/b")
    );
}

#[test]
fn a_value_is_not_taken_for_the_id_nor_for_a_subcommand() {
    let options = checkpoint("--root checkpoint checkpoint --manage-cgroups-mode ignore c1");
    assert_eq!(options.id, "c1");
    assert_eq!(checkpoint("checkpoint c1 --empty-ns network").id, "c1");
    assert_eq!(checkpoint("checkpoint checkpoint").id, "checkpoint");
    assert_eq!(checkpoint("checkpoint -- c1").id, "c1");
    assert_eq!(
        checkpoint("--rootless false --log-level debug checkpoint c1").id,
        "c1"
    );
}

#[test]
fn what_is_not_ours_passes_through() {
    for line in [
        "",
        "state c1",
        "checkpoint",
        "checkpoint --help",
        "restore --help c1",
        "--help",
        "--version",
        "features",
        "run c1",
        "create c1",
        "kill c1 KILL",
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
        "--root /r checkpoint c1"
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
        assert_eq!(line_for_runc(&given), given);
    }
}

#[test]
fn crun_gets_what_its_parser_takes() {
    let args = parse(GO_RUNC).pass_on(Flavor::Crun);
    assert!(!line(&args).contains("subreaper"), "{args:?}");
    let args = parse("restore -no-pivot --empty-ns network -image-path /i -d c1");
    assert_eq!(
        line(&args.pass_on(Flavor::Crun)),
        "restore --image-path /i -d c1"
    );
    // Other verbs are not touched.
    assert_eq!(
        line(&parse("state -x c1").pass_on(Flavor::Crun)),
        "state -x c1"
    );
}

#[test]
fn an_option_of_ours_goes_behind_the_subcommand() {
    let extra: [(&str, &OsStr); 1] = [("--pid-file", OsStr::new("/p"))];
    let args = parse("--root /r restore -d c1").pass_on_with(Flavor::Runc, &extra);
    assert_eq!(line(&args), "--root /r restore --pid-file /p -d c1");
}

#[test]
fn incremental_and_lazy_dumps_have_memory_elsewhere() {
    let goes = |options| checkpoint(&format!("checkpoint {options} c1")).memory;
    assert_eq!(
        goes("--leave-running --image-path /i"),
        MemoryGoes::IntoImage
    );
    for options in [
        "--pre-dump",
        "--parent-path ../p",
        "--lazy-pages",
        "--page-server=host:1",
    ] {
        assert_eq!(goes(options), MemoryGoes::Elsewhere, "{options}");
    }
}

proptest! {
    #[test]
    fn any_arguments_are_survived_and_handed_on(
        args in proptest::collection::vec(proptest::collection::vec(1_u8..255, 0..12), 0..12)
    ) {
        use std::os::unix::ffi::OsStringExt;
        let args: Vec<OsString> = args.into_iter().map(OsString::from_vec).collect();
        let invocation = Invocation::parse_in(args.clone(), Path::new("/cwd"));
        prop_assert_eq!(invocation.pass_on(Flavor::Runc), args);
    }

    #[test]
    fn options_in_any_order_mean_the_same(
        order in Just(vec!["--leave-running", "--image-path=/i", "-work-path=/w", "--file-locks",
                           "--parent-path=../p", "--unknown", "c1"]).prop_shuffle()
    ) {
        let options = checkpoint(&format!("checkpoint {}", order.join(" ")));
        prop_assert_eq!(options, CheckpointOptions {
            id: "c1".into(),
            image_path: "/i".into(),
            work_path: Some("/w".into()),
            after: AfterDump::LeaveRunning,
            pre_dump: PreDump::No,
            memory: MemoryGoes::Elsewhere,
        });
    }
}
