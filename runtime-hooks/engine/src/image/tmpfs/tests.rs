use super::*;

fn tmpfs(root_dev: u32, mountpoint: &str) -> MntEntry {
    MntEntry {
        fstype: TMPFS,
        root_dev,
        root: b"/".to_vec(),
        mountpoint: mountpoint.into(),
        with_plugin: None,
        ext_mount: None,
        ext_key: None,
    }
}

/// An image with these mounts, and with the contents of device 41 alone.
fn image(mounts: &[MntEntry]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut bytes = [
        crate::image::criu_file::COMMON_MAGIC.to_ne_bytes(),
        MNTS_MAGIC.to_ne_bytes(),
    ]
    .concat();
    for mount in mounts {
        let entry = mount.encode_to_vec();
        bytes.extend(u32::try_from(entry.len()).unwrap().to_ne_bytes());
        bytes.extend(entry);
    }
    fs::write(directory.path().join("mountpoints-13.img"), bytes).unwrap();
    fs::write(directory.path().join("tmpfs-dev-41.tar.gz.img"), "tar").unwrap();
    directory
}

#[test]
fn a_tmpfs_without_its_contents_is_an_error_with_its_name() {
    verify(image(&[tmpfs(41, "/dev")]).path()).unwrap();
    let error = verify(image(&[tmpfs(41, "/dev"), tmpfs(42, "/run")]).path()).unwrap_err();
    assert!(
        matches!(&error, PstreeError::WithoutTmpfs { mountpoint, .. } if mountpoint == "/run"),
        "{error}"
    );
    assert!(
        error.to_string().contains("tmpfs-dev-42.tar.gz.img"),
        "{error}"
    );
}

/// CRIU dumps no contents of these, and restores them without.
#[test]
fn what_comes_from_outside_needs_no_contents() {
    let with = |change: fn(&mut MntEntry)| {
        let mut mount = tmpfs(42, "/bound");
        change(&mut mount);
        mount
    };
    for given in [
        with(|mount| mount.ext_key = Some(b"/bound".to_vec())),
        with(|mount| mount.ext_mount = Some(true)),
        with(|mount| mount.with_plugin = Some(true)),
        tmpfs(42, "/"),
    ] {
        // Another mount of the same tmpfs is a bind mount of it.
        verify(image(&[tmpfs(42, "/again"), given]).path()).unwrap();
    }
    let part = || with(|mount| mount.root = b"/part".to_vec());
    verify(image(&[part()]).path()).unwrap();
    let part_from_outside = MntEntry {
        ext_key: Some(b"/part".to_vec()),
        ..part()
    };
    verify(image(&[tmpfs(42, "/dev"), part_from_outside]).path()).unwrap_err();
    let other = with(|mount| mount.fstype = 3);
    verify(image(&[other]).path()).unwrap();
}

#[test]
fn an_image_without_mounts_needs_none_and_a_damaged_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    verify(directory.path()).unwrap();
    let path = directory.path().join("mountpoints-13.img");
    fs::write(path, crate::image::criu_file::COMMON_MAGIC.to_ne_bytes()).unwrap();
    let error = verify(directory.path()).unwrap_err();
    assert!(matches!(error, PstreeError::Malformed { .. }), "{error}");
}
