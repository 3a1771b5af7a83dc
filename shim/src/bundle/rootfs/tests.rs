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
async fn what_no_snapshotter_of_ours_asks_for_is_refused() {
    let mut fuse = overlay(&[]);
    fuse.type_ = "fuse3.some-fs".to_owned();
    let mut inside = overlay(&[]);
    inside.target = "/etc".to_owned();
    for (mount, named) in [(fuse, "fuse3.some-fs"), (inside, "/etc")] {
        let error = refused(mount).await;
        assert!(
            error.contains(named) && error.contains("snapshotter"),
            "{error}"
        );
    }
}
