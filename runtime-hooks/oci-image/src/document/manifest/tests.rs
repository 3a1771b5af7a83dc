use serde_json::{Value, json};

use super::*;

fn layer(kind: Kind, text: &str) -> (Kind, Digest, u64) {
    (kind, Digest::of(text.as_bytes()), 10)
}

fn manifest() -> Manifest {
    let layers = [
        layer(Kind::Criu, "criu"),
        layer(Kind::Index, "index"),
        layer(Kind::Contents, "contents"),
        layer(Kind::Memory, "one"),
        layer(Kind::Memory, "two"),
    ];
    let annotations = Annotations::from([("a".to_owned(), "b".to_owned())]);
    Manifest::new((Digest::of(b"config"), 100), layers, annotations)
}

#[test]
fn a_manifest_reads_as_it_is_written() {
    let text = manifest().to_text().unwrap();
    let again = Manifest::from_text(&text, "m").unwrap();
    assert_eq!(again, manifest());
    assert_eq!(again.bytes(), 150);
    assert_eq!(again.layers(Kind::Memory).count(), 2);
    assert_eq!(
        again.layer(Kind::Index).unwrap().digest,
        Digest::of(b"index")
    );
}

#[test]
fn an_image_belongs_to_another() {
    let subject = Descriptor::new(MANIFEST, Digest::of(b"container image"), 100);
    let whole = manifest().with_subject(Some(subject.clone()));
    let text = whole.to_text().unwrap();
    let again = Manifest::from_text(&text, "m").unwrap();
    assert_eq!(again.subject(), Some(&subject));
    let odd = String::from_utf8(text).unwrap();
    let odd = odd.replace(&subject.digest.to_string(), "sha512:0");
    Manifest::from_text(odd.as_bytes(), "m").unwrap_err();
}

#[test]
fn large_files_may_be_all_that_is_in_blobs_and_have_their_own_index() {
    let of = |kinds: &[(Kind, &str)]| {
        let layers = kinds.iter().map(|(kind, text)| layer(*kind, text));
        let config = (Digest::of(b"config"), 100);
        Manifest::new(config, layers, Annotations::new()).to_text()
    };
    let criu = (Kind::Criu, "criu");
    let index = (Kind::FilesIndex, "index of files");
    let list = (Kind::Contents, "contents");
    let blob = (Kind::Files, "one");
    of(&[criu, index, list, blob]).unwrap();
    // The same bytes may be both.
    let of_memory = (Kind::Index, "index");
    of(&[criu, index, list, blob, of_memory, (Kind::Memory, "one")]).unwrap();
    for odd in [
        vec![criu, list, blob],
        vec![criu, index, blob],
        vec![criu, index, index, list, blob],
        vec![criu, index, list, blob, blob],
        vec![criu, index, list, (Kind::Memory, "one")],
        vec![criu, index, list, (Kind::Files, "config")],
    ] {
        of(&odd).unwrap_err();
    }
}

#[test]
fn what_others_add_is_left_alone() {
    let mut value: Value = serde_json::from_slice(&manifest().to_text().unwrap()).unwrap();
    value["other"] = json!({"mediaType": "x", "digest": "sha512:0", "size": 1});
    value["layers"][0]["urls"] = json!([]);
    Manifest::from_text(value.to_string().as_bytes(), "m").unwrap();
}

#[test]
fn nothing_else_is_that_of_an_image() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 18] = [
        ("schema", |m| m["schemaVersion"] = json!(1)),
        ("type", |m| m["mediaType"] = json!("application/json")),
        ("artifact", |m| m["artifactType"] = json!("other")),
        ("no artifact", |m| m["artifactType"] = Value::Null),
        ("config", |m| m["config"]["mediaType"] = json!("other")),
        ("large config", |m| m["config"]["size"] = json!(1_u64 << 40)),
        ("layer", |m| m["layers"][1]["mediaType"] = json!("other")),
        ("size", |m| m["layers"][3]["size"] = json!(u64::MAX)),
        ("no size", |m| m["layers"][3]["size"] = json!(-1)),
        ("path", |m| {
            m["layers"][3]["digest"] = json!("sha256:../../x")
        }),
        ("twice", |m| m["layers"][3] = m["layers"][4].clone()),
        ("as config", |m| {
            m["layers"][3]["digest"] = m["config"]["digest"].clone()
        }),
        ("no index", |m| {
            drop(m["layers"].as_array_mut().unwrap().remove(1))
        }),
        ("no list", |m| {
            drop(m["layers"].as_array_mut().unwrap().remove(2))
        }),
        ("no files", |m| {
            drop(m["layers"].as_array_mut().unwrap().remove(0))
        }),
        ("annotation", |m| m["annotations"]["a"] = json!({})),
        ("layer of no engine", |m| {
            m["layers"][3]["mediaType"] = json!(Kind::Writable.media_type());
        }),
        ("two engines", |m| {
            for at in [3, 4] {
                m["layers"][at]["mediaType"] = json!(Kind::Engine.media_type());
            }
        }),
    ];
    for (what, change) in changes {
        let mut value: Value = serde_json::from_slice(&manifest().to_text().unwrap()).unwrap();
        change(&mut value);
        let read = Manifest::from_text(value.to_string().as_bytes(), "m");
        assert!(read.is_err(), "{what}");
    }
    let text = String::from_utf8(manifest().to_text().unwrap()).unwrap();
    let twice = text.replacen('{', "{\"layers\":[],", 1);
    let error = Manifest::from_text(twice.as_bytes(), "m").unwrap_err();
    assert!(error.to_string().contains("twice"), "{error}");
}

#[test]
fn more_layers_than_registries_take_are_neither_written_nor_read() {
    let many = |count: usize| {
        let memory = (0..count).map(|number| layer(Kind::Memory, &number.to_string()));
        let lists =
            [Kind::Criu, Kind::Index, Kind::Contents].map(|kind| layer(kind, kind.media_type()));
        Manifest::new(
            (Digest::of(b"config"), 1),
            lists.into_iter().chain(memory),
            Annotations::new(),
        )
    };
    let text = many(397).to_text().unwrap();
    assert!(text.len() < 100 << 10, "{} bytes", text.len());
    many(398).to_text().unwrap_err();
}
