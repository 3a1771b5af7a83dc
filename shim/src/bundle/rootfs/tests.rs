use super::*;

fn overlay(options: &[String]) -> Mount {
    Mount {
        type_: OVERLAY.to_owned(),
        source: OVERLAY.to_owned(),
        options: options.to_vec(),
        ..Mount::default()
    }
}

async fn refused(one: Mount) -> String {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("rootfs");
    std::fs::create_dir(&root).unwrap();
    let scratch = directory.path().join("layers");
    let reaper = Arc::new(Reaper::default());
    let mounted = mount_all(&[one], &root, &scratch, &reaper).await;
    mounted.unwrap_err().to_string()
}

#[tokio::test]
async fn many_layers_below_a_missing_directory_are_an_error() {
    let layers: Vec<_> = (0..500)
        .map(|number| format!("/nonexistent/{number}"))
        .collect();
    let error = refused(overlay(&[format!("lowerdir={}", layers.join(":"))])).await;
    assert!(error.contains("/nonexistent"), "{error}");
}

#[tokio::test]
async fn a_missing_helper_is_named() {
    let mut fuse = overlay(&[]);
    fuse.type_ = "fuse3.nonexistent".to_owned();
    let error = refused(fuse).await;
    assert!(error.contains("mount.fuse3"), "{error}");
}

#[tokio::test]
async fn a_target_that_is_not_there_is_an_error() {
    let mut inside = overlay(&[]);
    inside.target = "/../etc".to_owned();
    let error = refused(inside).await;
    assert!(error.contains("etc in the root file system"), "{error}");
}
