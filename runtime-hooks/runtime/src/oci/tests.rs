mod kill;
mod passthrough;

use proptest::prelude::*;
use stasis_config::Flavor;

use super::*;

fn parse(line: &str) -> Invocation {
    Invocation::parse_in(
        line.split_whitespace().map(OsString::from).collect(),
        Path::new("/cwd"),
    )
}

fn line(args: &[OsString]) -> String {
    args.join(OsStr::new(" ")).into_string().unwrap()
}

fn checkpoint(line: &str) -> CheckpointRequest {
    match parse(line).action {
        Action::Checkpoint(options) => options,
        other => panic!("{line}: {other:?}"),
    }
}

fn restore(line: &str) -> RestoreRequest {
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
fn containerds_command_lines_are_parsed() {
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
fn podmans_command_lines_are_parsed() {
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
        "restore --image-path /cwd/checkpoint --pid-file /cwd/p --file-locks -b /b c1"
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
fn incremental_and_lazy_dumps_have_memory_elsewhere() {
    let goes = |options| checkpoint(&format!("checkpoint {options} c1")).memory;
    assert_eq!(
        goes("--leave-running --image-path /i"),
        MemoryTarget::IntoImage
    );
    for options in [
        "--pre-dump",
        "--parent-path ../p",
        "--lazy-pages",
        "--page-server=host:1",
    ] {
        assert_eq!(goes(options), MemoryTarget::Elsewhere, "{options}");
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
                           "--parent-path=../p", "--unknown", "--link-remap", "c1"]).prop_shuffle()
    ) {
        let options = checkpoint(&format!("checkpoint {}", order.join(" ")));
        prop_assert_eq!(options, CheckpointRequest {
            id: "c1".into(),
            image_path: "/i".into(),
            work_path: Some("/w".into()),
            after: AfterDump::LeaveRunning,
            pre_dump: PreDump::No,
            parent_path: Some("../p".into()),
            memory: MemoryTarget::Elsewhere,
            criu: BTreeSet::from([CriuOption::LinkRemap]),
            wait: Duration::ZERO,
        });
    }
}

#[test]
fn a_shim_that_cannot_be_understood_begins_nothing_and_ends_everything() {
    let refused = |version: &str, verb: &str| {
        let given = format!("--root /r --stasis-interface={version} --log /l {verb} c1");
        let invocation = parse(&given);
        let passed = line(&invocation.pass_on(Flavor::Runc));
        let locks = match verb {
            "checkpoint" | "restore" => " --file-locks",
            _ => "",
        };
        assert_eq!(passed, format!("--root /r --log /l {verb}{locks} c1"));
        invocation
            .check_interface()
            .err()
            .map(|error| error.to_string())
    };
    for verb in ["checkpoint", "restore"] {
        assert_eq!(refused("1", verb), None);
        let old = refused("0", verb).unwrap();
        assert!(old.contains("too old") && old.contains("install the version again"));
        for version in ["2", "99999999999", "x"] {
            let new = refused(version, verb).unwrap();
            assert!(
                new.contains("too new") && new.contains("beside it"),
                "{new}"
            );
        }
        assert!(parse(&format!("{verb} c1")).check_interface().is_ok());
    }
    for verb in ["resume", "pause", "delete --force", "kill", "state"] {
        assert_eq!(refused("0", verb), None);
        assert_eq!(refused("99", verb), None);
    }
}
