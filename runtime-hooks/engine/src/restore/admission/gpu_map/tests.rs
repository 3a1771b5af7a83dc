use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::container::spec::tests::spec;

fn uuid(byte: u8) -> GpuUuid {
    GpuUuid::from_bytes([byte; 16])
}

fn gpu(byte: u8, name: &str) -> Gpu {
    Gpu {
        uuid: uuid(byte),
        name: name.to_owned(),
        memory_bytes: 80 << 30,
    }
}

fn gpus(bytes: &[u8]) -> Vec<Gpu> {
    bytes.iter().map(|byte| gpu(*byte, "H200")).collect()
}

fn requested(text: &str) -> Result<RequestedMap, AdmissionError> {
    let spec = spec(json!({"annotations": {"io.stasis.gpu-map": text}}));
    RequestedMap::of(&spec, &BTreeMap::from([("never".into(), "read".into())]))
}

fn pair(old: u8, new: u8) -> String {
    format!("{}={}", uuid(old), uuid(new))
}

fn chosen(needed: &[u8], given: &[u8], map: &str) -> Result<Vec<(u8, u8)>, String> {
    let requested = requested(map).map_err(|error| error.to_string())?;
    let pairs = choose(&gpus(needed), &gpus(given), &requested);
    let pairs = pairs.map_err(|error| error.to_string())?;
    let bytes = pairs
        .iter()
        .map(|(old, new)| (old.as_bytes()[0], new.as_bytes()[0]));
    Ok(bytes.collect())
}

#[test]
fn gpus_that_are_given_stay() {
    assert_eq!(chosen(&[1, 2], &[2, 1], ""), Ok(vec![(1, 1), (2, 2)]));
    assert_eq!(chosen(&[2], &[1, 2, 3], ""), Ok(vec![(2, 2)]));
    assert_eq!(chosen(&[], &[], ""), Ok(vec![]));
}

#[test]
fn missing_ones_move_in_order_and_the_others_stay() {
    assert_eq!(chosen(&[1], &[2], ""), Ok(vec![(1, 2)]));
    assert_eq!(chosen(&[1, 2], &[3, 4], ""), Ok(vec![(1, 3), (2, 4)]));
    assert_eq!(
        chosen(&[1, 2, 3], &[2, 3, 4], ""),
        Ok(vec![(1, 4), (2, 2), (3, 3)])
    );
}

#[test]
fn too_few_are_refused_with_those_that_are_given() {
    let said = chosen(&[1, 2], &[1], "").unwrap_err();
    assert!(said.contains(&uuid(2).to_string()), "{said}");
    assert!(
        said.contains(&format!("it has {} (H200)", uuid(1))),
        "{said}"
    );
    assert!(chosen(&[1], &[], "").unwrap_err().contains("it has none"));
}

#[test]
fn another_kind_takes_no_place() {
    let none = RequestedMap::default();
    let (old, mut new) = (vec![gpu(1, "H200")], vec![gpu(2, "H100"), gpu(3, "H200")]);
    assert_eq!(choose(&old, &new, &none).unwrap(), [(uuid(1), uuid(3))]);
    new.pop();
    assert!(choose(&old, &new, &none).is_err());
    let mut smaller = gpus(&[2]);
    smaller[0].memory_bytes = 40 << 30;
    assert!(choose(&old, &smaller, &none).is_err());
    smaller[0].memory_bytes = 75 << 30;
    assert!(choose(&old, &smaller, &none).is_ok());
}

#[test]
fn a_wish_comes_first_and_what_it_says_nothing_of_is_chosen() {
    assert_eq!(
        chosen(&[1, 2], &[1, 2], &pair(1, 2)),
        Ok(vec![(1, 2), (2, 1)])
    );
    assert_eq!(
        chosen(&[1, 2], &[1, 2, 3], &pair(1, 3)),
        Ok(vec![(1, 3), (2, 2)])
    );
    assert_eq!(chosen(&[1], &[1], &pair(7, 8)), Ok(vec![(1, 1)]));
    let both = format!(" {} , {},", pair(1, 2), pair(2, 1));
    assert_eq!(chosen(&[1, 2], &[1, 2], &both), Ok(vec![(1, 2), (2, 1)]));
}

#[test]
fn a_wish_that_cannot_be_is_refused_with_the_reason() {
    for (map, part) in [
        ("GPU-1".to_owned(), "not of the form OLD=NEW"),
        ("a=b".to_owned(), "\"a\" is not a GPU UUID"),
        (
            format!("{},{}", pair(1, 3), pair(2, 3)),
            "would replace two GPUs",
        ),
        (format!("{},{}", pair(1, 2), pair(1, 3)), "named twice"),
        (pair(1, 9), "the new container is not given"),
    ] {
        let said = chosen(&[1, 2], &[1, 2, 3], &map).unwrap_err();
        assert!(said.contains(part) && said.contains("annotation"), "{said}");
    }
    let other = choose(
        &gpus(&[1]),
        &[gpu(2, "H100")],
        &requested(&pair(1, 2)).unwrap(),
    );
    assert!(
        other
            .unwrap_err()
            .to_string()
            .contains("is not of the kind")
    );
}

#[test]
fn the_settings_give_a_map_where_no_annotation_does() {
    let settings = BTreeMap::from([(uuid(1).to_string(), uuid(2).to_string())]);
    let requested = RequestedMap::of(&spec(json!({})), &settings).unwrap();
    assert_eq!(
        choose(&gpus(&[1]), &gpus(&[1, 2]), &requested).unwrap(),
        [(uuid(1), uuid(2))]
    );
    let settings = BTreeMap::from([("x".to_owned(), "y".to_owned())]);
    let said = RequestedMap::of(&spec(json!({})), &settings)
        .unwrap_err()
        .to_string();
    assert!(said.contains("restore.gpu_map"), "{said}");
}

#[test]
fn the_machines_other_gpus_get_the_places_that_are_left() {
    let moved = [(uuid(1), uuid(2))];
    assert_eq!(
        complete(&moved, &gpus(&[1, 2]), &gpus(&[1, 2])),
        [(uuid(2), uuid(1))]
    );
    let others = complete(&moved, &gpus(&[1, 2, 3]), &gpus(&[1, 2, 3]));
    assert_eq!(others, [(uuid(2), uuid(1)), (uuid(3), uuid(3))]);
    assert_eq!(complete(&moved, &gpus(&[1, 3]), &gpus(&[2])), []);
}

proptest! {
    #[test]
    fn a_map_names_each_needed_gpu_once_and_only_given_ones(
        needed in proptest::collection::btree_set(1u8..6, 0..5),
        given in proptest::collection::btree_set(1u8..6, 0..5),
        requested in proptest::option::of((1u8..6, 1u8..6)),
    ) {
        let needed: Vec<u8> = needed.into_iter().collect();
        let given: Vec<u8> = given.into_iter().collect();
        let requested = requested.map(|(old, new)| pair(old, new)).unwrap_or_default();
        match chosen(&needed, &given, &requested) {
            Ok(pairs) => {
                let old: Vec<u8> = pairs.iter().map(|(old, _)| *old).collect();
                prop_assert_eq!(old, needed);
                let mut new: Vec<u8> = pairs.iter().map(|(_, new)| *new).collect();
                prop_assert!(new.iter().all(|new| given.contains(new)));
                new.sort_unstable();
                new.dedup();
                prop_assert_eq!(new.len(), pairs.len());
            }
            Err(_) => prop_assert!(needed.len() > given.len() || !requested.is_empty()),
        }
    }
}
