use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use std::time::Duration;

use super::*;

fn parse(text: &str) -> Result<Settings, SettingsError> {
    Settings::parse(Path::new("stasis.toml"), text)
}

fn message(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

/// The shipped file with all keys in force.
fn shipped() -> String {
    let uncomment = |line: &str| match line.strip_prefix('#') {
        Some(code) if !code.starts_with(' ') => code.to_owned(),
        _ => line.to_owned(),
    };
    include_str!("../stasis.toml")
        .lines()
        .map(uncomment)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_shipped_file_shows_the_defaults() {
    assert_eq!(
        parse(include_str!("../stasis.toml")).unwrap(),
        Settings::default()
    );
    let mut shown = parse(&shipped()).unwrap();
    assert_eq!(shown.runtime.flavor.take(), Some(Flavor::Runc));
    // These three are found on the machine.
    assert!(shown.driver.libcuda.take().is_some());
    assert!(shown.driver.nvml.take().is_some());
    shown.criu.plugin_dir = Criu::default().plugin_dir;
    assert_eq!(shown, Settings::default());
}

#[test]
fn an_unknown_key_is_named_with_its_line() {
    let text = message("[runtime]\npath = \"runc\"\nflavour = \"runc\"\n");
    assert!(text.starts_with("stasis.toml:3: "), "{text}");
    assert!(text.contains("flavour"), "{text}");
    assert!(message("[unknown]\n").contains("unknown"));
}

#[test]
fn a_value_of_the_wrong_type_is_named_with_its_line() {
    let text = message("[gpu_checkpoint]\n\nminimum_mib = \"1\"\n");
    assert!(text.starts_with("stasis.toml:3: "), "{text}");
}

#[test]
fn values_that_make_no_sense_are_refused_by_key() {
    for (text, key) in [
        ("deadlines.lock_ms = 0", "deadlines.lock_ms"),
        ("deadlines.lock_ms = 3600001", "deadlines.lock_ms"),
        ("deadlines.driver_s = 0", "deadlines.driver_s"),
        ("deadlines.room_s = 3601", "deadlines.room_s"),
        ("driver.libcuda = \"libcuda.so.1\"", "driver.libcuda"),
        ("runtime.path = \"bin/runc\"", "runtime.path"),
        ("paths.state_dir = \"state\"", "paths.state_dir"),
        (
            "gpu_contents.directory = \"memory\"",
            "gpu_contents.directory",
        ),
        ("gpu_contents.plugin = \"x.so\"", "gpu_contents.plugin"),
        ("gpu_contents.threads = 65", "gpu_contents.threads"),
        (
            "gpu_contents.compression_level = 20",
            "gpu_contents.compression_level",
        ),
        (
            "gpu_contents.compression_level = -1",
            "gpu_contents.compression_level",
        ),
        (
            "gpu_contents.staging_percent = 91",
            "gpu_contents.staging_percent",
        ),
        ("restore.images = [\"/images\", \"more\"]", "restore.images"),
        ("restore.at_create = \"images\"", "restore.at_create"),
        ("restore.keep_at_stop = 1", "restore.keep_at_stop"),
        ("restore.registry = \"a.example/jobs\"", "restore.registry"),
        (
            "[restore]\nat_create = \"/images\"\nregistry = \"a.example/../jobs\"",
            "restore.registry",
        ),
        ("preflight.allow = [\"driver-version\"]", "preflight.allow"),
        ("preflight.allow = [\"exec-session\"]", "preflight.allow"),
    ] {
        let message = message(text);
        assert!(
            message.starts_with(&format!("stasis.toml: {key} must ")),
            "{message}"
        );
    }
}

#[test]
fn a_blocker_that_does_not_exist_is_named_with_its_line() {
    let message = message("[preflight]\nallow = [\"nccl\"]\n");
    assert!(message.starts_with("stasis.toml:2: "), "{message}");
    assert!(
        message.contains("nccl") && message.contains("nccl-p2p"),
        "{message}"
    );
}

#[test]
fn only_a_file_of_root_alone_is_believed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stasis.toml");
    let load = || Settings::load(Some(&path));
    assert!(
        matches!(load(), Err(SettingsError::Read { .. })),
        "an explicit file must exist"
    );
    fs::write(&path, "deadlines.lock_ms = 5000").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    if !nix_is_root() {
        assert!(matches!(load(), Err(SettingsError::Untrusted { .. })));
        return;
    }
    assert_eq!(load().unwrap().deadlines.lock(), Duration::from_secs(5));
    for mode in [0o664, 0o646] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(
            matches!(load(), Err(SettingsError::Untrusted { .. })),
            "{mode:o}"
        );
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    chown(&path, Some(1000), None).unwrap();
    assert!(
        matches!(load(), Err(SettingsError::Untrusted { .. })),
        "another owner"
    );
}

fn nix_is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

#[test]
fn a_huge_file_and_a_directory_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let load = |path: &Path| Settings::load(Some(path));
    assert!(matches!(
        load(directory.path()),
        Err(SettingsError::Untrusted { .. })
    ));
    let path = directory.path().join("stasis.toml");
    fs::write(&path, "#".repeat((64 << 10) + 1)).unwrap();
    assert!(matches!(load(&path), Err(SettingsError::Untrusted { .. })));
}

#[test]
fn the_low_level_runtime_is_an_executable_of_a_known_kind() {
    let directory = tempfile::tempdir().unwrap();
    let program = |name: &str, mode| {
        let path = directory.path().join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Runtime { path, flavor: None }
    };
    assert_eq!(
        program("runc-1.3", 0o755).resolve().unwrap().flavor,
        Flavor::Runc
    );
    assert_eq!(
        program("crun", 0o755).resolve().unwrap().flavor,
        Flavor::Crun
    );
    assert!(program("runc-not-executable", 0o644).resolve().is_err());
    let nvidia = program("nvidia-container-runtime", 0o755);
    assert_eq!(nvidia.resolve().unwrap().flavor, Flavor::Runc);
    let named = Runtime {
        flavor: Some(Flavor::Crun),
        ..program("youki", 0o755)
    };
    assert_eq!(named.resolve().unwrap().flavor, Flavor::Crun);
    let open = program("runc-for-all", 0o757).resolve().unwrap_err();
    let text = open.to_string();
    assert!(text.contains("all users may change"), "{text}");
    assert!(program("runc-of-a-group", 0o775).resolve().is_ok());
    let missing = Runtime {
        path: "no-such-runtime".into(),
        flavor: None,
    };
    assert!(
        missing
            .resolve()
            .unwrap_err()
            .to_string()
            .contains("no-such-runtime")
    );
}

#[test]
fn gpu_contents_are_copied_by_many_threads_until_the_settings_leave_it_to_the_driver() {
    let path = |text: &str| parse(text).map(|settings| settings.gpu_checkpoint.path);
    assert_eq!(path("").unwrap(), GpuCheckpointPath::Auto);
    for (name, expected) in [
        ("auto", GpuCheckpointPath::Auto),
        ("driver", GpuCheckpointPath::Driver),
    ] {
        let text = format!("gpu_checkpoint.path = \"{name}\"");
        assert_eq!(path(&text).unwrap(), expected);
    }
    let error = path("gpu_checkpoint.path = \"fast\"").unwrap_err();
    assert!(error.to_string().contains("fast"), "{error}");
}

#[test]
fn a_mistake_spoils_its_own_table_alone() {
    for mistake in [
        "[deadlines]\nlock_mss = 1\n",
        "[deadlines]\nlock_ms = 0\n",
        "[dead]\nlock_ms = 1\n",
        "deadlines = 1\n",
    ] {
        let text = format!("{mistake}[runtime]\npath = \"crun\"\n");
        assert!(parse(&text).is_err());
        let settings = Settings::usable(&text);
        assert_eq!(settings.runtime.path, Path::new("crun"), "{mistake}");
        assert_eq!(settings.deadlines, Deadlines::default());
    }
    assert_eq!(Settings::usable("[runtime\n"), Settings::default());
}

#[test]
fn a_file_that_others_can_write_is_not_used_in_part_either() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stasis.toml");
    fs::write(&path, "[runtime]\npath = \"crun\"\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let (settings, error) = Settings::load_usable(Some(&path));
    assert_eq!(settings, Settings::default());
    assert!(matches!(error, Some(SettingsError::Untrusted { .. })));
}

fn allows(text: &str, kind: BlockerKind) -> bool {
    parse(text).unwrap().allows(kind)
}

#[test]
fn exec_sessions_are_allowed_until_the_settings_refuse() {
    let allows = |text| allows(text, BlockerKind::ExecSession);
    assert!(allows("") && allows("preflight.exec = \"allow\""));
    assert!(!allows("preflight.exec = \"refuse\""));
    assert!(parse("preflight.exec = \"no\"").is_err());
}

#[test]
fn gpus_without_persistence_mode_are_refused_until_the_settings_ignore_it() {
    let allows = |text| allows(text, BlockerKind::Persistence);
    assert!(!allows("") && !allows("restore.persistence = \"require\""));
    assert!(allows("restore.persistence = \"ignore\""));
}

#[test]
fn the_name_of_a_blocker_is_what_the_settings_take() {
    for &kind in BlockerKind::ALL {
        let text = format!("preflight.allow = [\"{kind}\"]");
        let is_there = kind.setting() == Some("preflight.allow");
        let is_taken = parse(&text).is_ok_and(|read| read.allows(kind));
        assert_eq!(is_taken, is_there, "{kind}");
        assert!(toml::from_str::<Preflight>(&format!("allow = [\"{kind}\"]")).is_ok());
    }
    assert!(parse("preflight.allow = [\"nccl\"]").is_err());
}
